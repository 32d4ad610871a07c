"""Built-in and installed rewrites and legalizations: their order, and which one wins."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
from ir_text import program
from stage_samples import TARGET
from tvm import relax, topi
from tvm.relax.dpl import is_op, wildcard

from bessemer.contract.options import OptimizeOptions
from worker.compiler.extensions import ExtensionError
from worker.compiler.legalize import registry as legalizations
from worker.compiler.legalize.registry import Legalization, make_legalization_map
from worker.compiler.rewrites import registry
from worker.compiler.rewrites.registry import make_rewrite_book
from worker.compiler.rewrites.rewrite import Match, Rewrite
from worker.compiler.target import compile_target


def nothing(_match: Match) -> relax.Expr | None:
    return None


def named(name: str) -> Rewrite:
    return Rewrite(name, "does nothing", is_op("relax.exp")(wildcard()), nothing)


def twice(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    return builder.call_te(lambda x: topi.add(x, x), call.args[0], primfunc_name_hint="twice")


REWRITES = EntryPoint(name="sample", value="sample_extension:REWRITES", group=registry.POINT.group)
RULES = EntryPoint(name="sample", value="sample_extension:LEGALIZATIONS", group=legalizations.POINT.group)


def test_an_installed_rewrite_runs_before_the_built_in_ones(package: ModuleType) -> None:
    package.REWRITES = (named("mine"),)  # type: ignore[attr-defined]

    book = make_rewrite_book([REWRITES])

    assert next(iter(book.rewrites)) == "mine"
    assert book.sources["mine"] == REWRITES.value
    assert book.chosen(OptimizeOptions(enable=("mine",)))[0].name == "mine"


def test_an_installed_rewrite_replaces_a_built_in_one_with_its_name(package: ModuleType) -> None:
    package.REWRITES = (named("gelu_erf"),)  # type: ignore[attr-defined]

    book = make_rewrite_book([REWRITES])

    assert book.rewrites["gelu_erf"].summary == "does nothing"


@pytest.mark.parametrize(
    ("rewrites", "reason"),
    [
        ((named("one"), named("one")), "'one' is in"),
        ([named("one")], "is not a tuple of .*Rewrite or .*GraphRewrite"),
        (("one",), "is not a tuple of .*Rewrite or .*GraphRewrite"),
    ],
)
def test_entry_points_without_valid_rewrites_are_refused(
    package: ModuleType, rewrites: object, reason: str
) -> None:
    package.REWRITES = rewrites  # type: ignore[attr-defined]

    with pytest.raises(ExtensionError, match=reason):
        make_rewrite_book([REWRITES])


def test_an_entry_point_that_does_not_load_is_named() -> None:
    with pytest.raises(ExtensionError, match=r"sample_extension:REWRITES of .* does not load"):
        make_rewrite_book([REWRITES])


@pytest.mark.parametrize(
    ("rule", "function"), [(twice, "twice"), (lambda _builder, _call: None, "argmax")], ids=["one", "none"]
)
def test_an_installed_legalization_comes_before_the_built_in_one(
    package: ModuleType, rule: legalizations.Rule, function: str
) -> None:
    package.LEGALIZATIONS = (Legalization("relax.argmax", rule),)  # type: ignore[attr-defined]
    with compile_target(TARGET).llvm:
        rules = make_legalization_map([RULES])
        module = relax.transform.LegalizeOps(rules)(program("x: (4, 8)", "out = R.argmax(x, axis=1)"))

    assert function in {variable.name_hint for variable in module.get_global_vars()}


def test_a_legalization_of_an_unknown_operator_is_refused(package: ModuleType) -> None:
    package.LEGALIZATIONS = (Legalization("relax.nn.nothing", twice),)  # type: ignore[attr-defined]

    with pytest.raises(ExtensionError, match=r"'relax\.nn\.nothing', which Relax does not have"):
        make_legalization_map([RULES])


def test_every_built_in_rewrite_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rewriting.md").read_text()
    table = page.partition("<!-- rewrites -->")[2].partition("<!-- end of rewrites -->")[0]
    listed = re.findall(r"^\| `([^`]+)` \| (yes|no) \| (.+) \|$", table, re.MULTILINE)

    built_in = make_rewrite_book(()).rewrites.values()
    expected = [(one.name, "yes" if one.is_default else "no", one.summary) for one in built_in]

    assert listed == expected
