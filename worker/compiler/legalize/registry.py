"""What operators become in TensorIR: rules of installed packages, then built-in ones, then TVM's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import tvm
from tvm import relax

from worker.compiler import legalize
from worker.compiler.extensions import Extension, ExtensionError, ExtensionPoint, cached_book, in_modules

Rule = Callable[[relax.BlockBuilder, relax.Call], relax.Expr | None]
"""Replaces a call, or returns None to leave it to the next rule and at last to TVM."""


@dataclass(frozen=True)
class Legalization:
    """What becomes of the calls of one operator.

    Attributes:
        operator: by Relax's name, such as ``relax.nn.gelu``.
        rule: replaces a call, as a rule with ``builder.call_te(compute, *call.args)``.
    """

    operator: str
    rule: Rule


POINT = ExtensionPoint(
    group="bessemer.legalizations",
    attribute="LEGALIZATIONS",
    kinds=(Legalization,),
    name_of=lambda legalization: legalization.operator,
    built_in=in_modules(legalize, "LEGALIZATIONS", ("operators",)),
)


@cached_book
def legalization_map() -> dict[str, Callable[[relax.BlockBuilder, relax.Call], relax.Expr]]:
    """For ``LegalizeOps``: the rules in force, by operator.

    Raises:
        ExtensionError: an entry point does not give rules, two packages give one for the same operator, or
            Relax does not have the operator.
    """
    return make_legalization_map(POINT.installed())


def make_legalization_map(
    installed: Iterable[EntryPoint],
) -> dict[str, Callable[[relax.BlockBuilder, relax.Call], relax.Expr]]:
    """The built-in rules and those of entry points; see ``legalization_map``."""
    chains = POINT.chains(installed)
    for operator, chain in chains.items():
        _check_operator(operator, chain[0])
    return {
        operator: _in_turn(operator, [found.item.rule for found in chain])
        for operator, chain in chains.items()
    }


def _check_operator(operator: str, found: Extension[Legalization]) -> None:
    if operator not in tvm.ir.Op.list_op_names():
        raise ExtensionError(f"{found.source} legalizes '{operator}', which Relax does not have")


def _in_turn(operator: str, rules: list[Rule]) -> Callable[[relax.BlockBuilder, relax.Call], relax.Expr]:
    default = tvm.ir.Op.get(operator).get_attr("FLegalize")

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        for rule in rules:
            replaced = rule(builder, call)
            if replaced is not None:
                return replaced
        return call if default is None else default(builder, call)

    return legalize
