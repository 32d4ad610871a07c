"""Sources and precedence of rules, and rules for custom operators."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from stage_samples import capture_module, make_context
from test_translation_rules import run
from torch import nn
from tvm import relax, topi

from worker.compiler.extensions import ExtensionError
from worker.compiler.pipeline.translate import translate
from worker.compiler.translation import decompositions, importer, registry
from worker.compiler.translation.emitter import Emitter
from worker.compiler.translation.registry import make_rule_book
from worker.compiler.translation.rule import Decomposition, Rule
from worker.errors import OperatorsUnsupportedError


@torch.library.custom_op("samplelib::relu", mutates_args=())
def its_relu(x: torch.Tensor, scale: float = 2.0, *, shift: float = 1.0) -> torch.Tensor:
    """Differs from ``aten.relu``."""
    return x * scale + shift


@its_relu.register_fake
def _(x: torch.Tensor, scale: float = 2.0, *, shift: float = 1.0) -> torch.Tensor:
    return torch.empty_like(x)


def as_relax(emit: Emitter, x: relax.Expr, scale: float, *, shift: float) -> relax.Expr:
    product = emit(relax.op.multiply(x, relax.const(scale, emit.dtype)))
    return relax.op.add(product, relax.const(shift, emit.dtype))


def as_tensor_expression(emit: Emitter, x: relax.Expr, scale: float, *, shift: float) -> relax.Expr:
    return emit.tensor_expression(lambda data: topi.add(topi.multiply(data, scale), shift), x)


def as_torch(x: torch.Tensor, scale: float = 2.0, *, shift: float = 1.0) -> torch.Tensor:
    return torch.add(x * scale, shift)


POINT = EntryPoint(name="sample", value="sample_extension:RULES", group=registry.POINT.group)


class Custom(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.samplelib.relu(x, 3.0)


CUSTOM = Custom()


def install(package: ModuleType, monkeypatch: pytest.MonkeyPatch, *rules: Rule | Decomposition) -> None:
    package.RULES = rules  # type: ignore[attr-defined]
    book = make_rule_book([POINT])
    for module in (registry, importer, decompositions):
        monkeypatch.setattr(module, "rule_book", lambda: book)
    decompositions.tables.cache_clear()


@pytest.mark.parametrize(
    "rule",
    [
        Rule("samplelib.relu.default", as_relax),
        Rule("samplelib.relu.default", as_tensor_expression),
        Decomposition("samplelib.relu.default", as_torch),
    ],
    ids=["relax", "tensor-expression", "torch"],
)
def test_a_custom_operator_works_through_a_rule(
    package: ModuleType, monkeypatch: pytest.MonkeyPatch, rule: Rule | Decomposition
) -> None:
    install(package, monkeypatch, rule)
    x = torch.randn(2, 3)

    (found,) = run(CUSTOM, (x,))
    decompositions.tables.cache_clear()

    np.testing.assert_allclose(found, x.numpy() * 3 + 1, rtol=1e-6)


def test_a_custom_operator_is_not_confused_with_torchs_of_the_same_name(tmp_path: Path) -> None:
    with pytest.raises(OperatorsUnsupportedError) as raised:
        translate(capture_module(CUSTOM, torch.randn(2, 3)), make_context(tmp_path))

    (place,) = raised.value.places
    assert place.operator == "samplelib.relu.default"
    assert place.line is not None


def test_the_error_holds_a_rule_to_fill_in_and_its_message_does_not(tmp_path: Path) -> None:
    with pytest.raises(OperatorsUnsupportedError) as raised:
        translate(capture_module(CUSTOM, torch.randn(2, 3)), make_context(tmp_path))

    template = raised.value.template
    assert "Rule(" not in raised.value.detail
    assert "`bessemer check --explain` prints a translation rule" in raised.value.detail
    assert "--extension my_rules.py" in template
    names: dict[str, object] = {}
    exec(template, names)  # as a reader would
    (rule,) = names["RULES"]  # type: ignore[misc]
    assert rule.operator == "samplelib.relu.default"
    assert rule.keywords == {"shift"}
    assert "samplelib::relu(Tensor x, float scale=2." in template


def test_an_installed_rule_replaces_a_built_in_one(package: ModuleType) -> None:
    package.RULES = (Rule("aten.amax.default", as_relax),)  # type: ignore[attr-defined]

    book = make_rule_book([POINT])

    assert book.rules["aten.amax.default"].translate is as_relax


def test_an_installed_decomposition_replaces_a_built_in_rule(package: ModuleType) -> None:
    package.RULES = (Decomposition("aten.amax.default", as_torch),)  # type: ignore[attr-defined]

    book = make_rule_book([POINT])

    assert "aten.amax.default" not in book.rules
    assert "aten.amax.default" in book.decompositions


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (
            (Rule("aten.x.default", as_relax), Rule("aten.x.default", as_relax)),
            "'aten.x.default' is in ",
        ),
        ([Rule("aten.x.default", as_relax)], "is not a tuple of .*Rule or .*ModuleRule"),
        (("aten.x.default",), "is not a tuple of .*Rule or .*ModuleRule"),
    ],
)
def test_entry_points_without_valid_rules_are_refused(
    package: ModuleType, rules: object, reason: str
) -> None:
    package.RULES = rules  # type: ignore[attr-defined]

    with pytest.raises(ExtensionError, match=reason):
        make_rule_book([POINT])


def test_every_built_in_rule_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "translation.md").read_text()
    table = page.partition("<!-- rules -->")[2].partition("<!-- end of rules -->")[0]

    rows = re.findall(r"^\| ([^|]+) \| (`.*`) \|$", table, re.MULTILINE)

    points = [EntryPoint(name="rules", value=value, group="built-in") for value in registry.POINT.built_in]
    groups = {
        point.module.rpartition(".")[2].replace("_", " "): sorted(rule.operator for rule in point.load())
        for point in points
    }
    assert {group: operators.strip("`").split("`, `") for group, operators in rows} == groups


def test_an_entry_point_that_does_not_load_is_named() -> None:
    with pytest.raises(
        ExtensionError, match=r"sample_extension:RULES of .* does not load: ModuleNotFoundError"
    ):
        make_rule_book([POINT])


def test_constants_keep_their_elements_whatever_their_strides() -> None:
    class Transposed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 4).mT)
            self.register_buffer("mask", torch.arange(4).expand(3, 4) > 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight.mT + self.mask

    module, x = Transposed(), torch.randn(3, 4)

    (found,) = run(module, (x,))

    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-6)


def test_a_translation_whose_type_differs_from_torchs_is_refused(
    package: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(package, monkeypatch, Rule("samplelib.relu.default", lambda emit, x, scale: x.astype("int32")))
    x = torch.randn(2, 3)

    with pytest.raises(TypeError, match="translated to int32, but torch gives float32"):
        run(CUSTOM, (x,))
    decompositions.tables.cache_clear()
