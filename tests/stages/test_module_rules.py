"""Translation rules for modules by their class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stage_samples import capture_module, make_context
from torch import nn
from tvm import relax

from bessemer.contract.problem import ErrorCode
from worker.candidates.server import fork_server
from worker.compiler.pipeline import translate as translating
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.translate import translate
from worker.compiler.pipeline.tune import tune
from worker.compiler.pipeline.verify import verify
from worker.compiler.translation import importer
from worker.compiler.translation.emitter import Emitter
from worker.compiler.translation.registry import RuleBook, make_rule_book
from worker.compiler.translation.rule import ModuleRule
from worker.errors import JobError

Express = Callable[..., Any]


class Block(nn.Module):
    """A layer with its norm, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.relu(self.layer(x)) + y)


class Halves(nn.Module):
    """Two results."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, second = x.split(4, dim=-1)
        return first * 2, second + first


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.halves = Block(), Halves()
        self.out = nn.Linear(4, 3, bias=False)
        self.convolution = nn.Conv2d(1, 2, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.halves(self.block(self.block(x, x * 3), x * 2))
        image = self.convolution(x[None, None])
        return self.out(first - second) + image.sum()


NETWORK, X = Network(), torch.randn(5, 8)


def linear(emit: Emitter, x: relax.Expr, *, weight: relax.Expr, bias: relax.Expr | None = None) -> relax.Expr:
    product = emit(relax.op.matmul(x, relax.op.permute_dims(weight)))
    return product if bias is None else relax.op.add(product, bias)


def block(
    emit: Emitter,
    x: relax.Expr,
    y: relax.Expr,
    *,
    layer_weight: relax.Expr,
    layer_bias: relax.Expr,
    norm_weight: relax.Expr,
    norm_bias: relax.Expr,
) -> relax.Expr:
    hidden = emit(relax.op.nn.relu(emit(linear(emit, x, weight=layer_weight, bias=layer_bias))))
    return relax.op.nn.layer_norm(relax.op.add(hidden, y), norm_weight, norm_bias, axes=[-1])


def halves(emit: Emitter, x: relax.Expr) -> tuple[relax.Expr, ...]:
    parts = emit(relax.op.split(x, 2, axis=-1))
    first, second = (emit(relax.TupleGetItem(parts, place)) for place in range(2))
    return relax.op.multiply(first, relax.const(2.0)), relax.op.add(second, first)


def convolution(emit: Emitter, x: relax.Expr, *, weight: relax.Expr, bias: relax.Expr) -> relax.Expr:
    ((operator, arguments),) = emit.calls
    assert operator == "aten.convolution.default"
    product = emit(relax.op.nn.conv2d(x, weight, strides=arguments["stride"]))
    return relax.op.add(product, relax.op.reshape(bias, (1, -1, 1, 1)))


def book_of(*rules: ModuleRule) -> RuleBook:
    built_in = make_rule_book(())
    return RuleBook(
        rules=built_in.rules,
        modules={rule.type_name: rule for rule in rules},
        decompositions=built_in.decompositions,
        of_complex=built_in.of_complex,
    )


def use(monkeypatch: pytest.MonkeyPatch, *rules: ModuleRule) -> list[str]:
    """Let rules take effect, and return the classes that they translate, in order."""
    calls: list[str] = []

    def counted(rule: ModuleRule) -> ModuleRule:
        def translated(emit: Emitter, *arguments: Any, **named: Any) -> Any:
            calls.append(rule.type_name.rpartition(".")[2])
            return rule.translate(emit, *arguments, **named)

        found = ModuleRule(rule.module, translated)
        found.__dict__["keywords"] = rule.keywords
        return found

    book = book_of(*map(counted, rules))
    for module in (importer, translating):
        monkeypatch.setattr(module, "rule_book", lambda: book)
    return calls


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("rules", "calls"),
    [
        ((ModuleRule(nn.Linear, linear),), ["Linear"] * 3),
        ((ModuleRule(Block, block),), ["Block"] * 2),
        ((ModuleRule("Block", block), ModuleRule(nn.Linear, linear)), ["Block", "Block", "Linear"]),
        ((ModuleRule(Halves, halves), ModuleRule(nn.Conv2d, convolution)), ["Halves", "Conv2d"]),
    ],
    ids=["layer", "block", "outermost", "results-and-attributes"],
)
def test_a_rule_translates_each_call_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: tuple[ModuleRule, ...], calls: list[str]
) -> None:
    found = use(monkeypatch, *rules)
    with fork_server(tmp_path) as candidates:
        context = make_context(tmp_path, candidates)
        captured = capture_module(NETWORK, X)
        built = build(tune(optimize(translate(captured, context), context), context), context)
        comparison = verify(built, context).comparisons[0]
    assert (sorted(found), comparison.mismatches) == (sorted(calls), 0)


def test_a_rule_may_take_the_parameters_as_separate_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, ModuleRule(nn.Linear, linear))
    translated = translate(capture_module(NETWORK, X, parameters="separate"), make_context(tmp_path))
    assert len(translated.module["main"].params) == 1 + len(dict(NETWORK.named_parameters()))


def test_a_parameter_that_modules_share_has_its_own_name_in_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tied = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    tied[1].weight = tied[0].weight
    calls = use(monkeypatch, ModuleRule(nn.Linear, linear))
    translate(capture_module(tied, X), make_context(tmp_path))
    assert calls == ["Linear", "Linear"]


@pytest.mark.parametrize(
    ("express", "detail"),
    [
        (lambda emit, x: relax.op.astype(x, "float16"), "was translated to float16, but torch gives float32"),
        (lambda emit, x: relax.op.sum(x, axis=0), "was translated to shape"),
        (lambda emit, x: (x, x), "gave 2 results, but the module gives 1"),
        (lambda emit, x, *, scale: x, "missing 1 required keyword-only argument: 'scale'"),
    ],
)
def test_a_rule_that_is_wrong_is_named_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, express: Express, detail: str
) -> None:
    book = book_of(ModuleRule(Block, lambda emit, x, *rest: None), ModuleRule(nn.ReLU, express))
    for module in (importer, translating):
        monkeypatch.setattr(module, "rule_book", lambda: book)
    with pytest.raises(JobError) as caught:
        translate(capture_module(nn.Sequential(nn.ReLU()), X), make_context(tmp_path))
    assert caught.value.code is ErrorCode.TRANSLATE_FAILED
    assert detail in caught.value.detail
    assert "torch.nn.modules.activation.ReLU" in caught.value.detail


def test_a_module_that_reads_what_depends_on_its_result_keeps_its_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.shape[0] + x

    calls = use(monkeypatch, ModuleRule(Inner, lambda emit, x: relax.op.add(x, relax.const(5.0))))
    translated = translate(capture_module(nn.Sequential(Inner()), X), make_context(tmp_path))
    assert (calls, translated.operators) == (["Inner"], {"add": 1})
    assert np.isfinite(X.numpy()).all()
