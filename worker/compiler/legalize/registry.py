"""What operators become in TensorIR: rules of installed packages, then our own, then TVM's.

Rules are tuples under the entry points of ``GROUP``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

import tvm
from tvm import relax

from worker.compiler.extensions import ExtensionError, built_in, collect
from worker.compiler.legalize.lowerings import register_lowerings

GROUP = "bessemer.legalizations"

BUILT_IN = built_in(GROUP, "worker.compiler.legalize.*:LEGALIZATIONS", ("operators",))

Rule = Callable[[relax.BlockBuilder, relax.Call], relax.Expr | None]
"""What replaces a call; None leaves it to the next rule, at last to TVM."""


@dataclass(frozen=True)
class Legalization:
    """What becomes of the calls of one operator.

    Attributes:
        operator: by Relax's name, such as ``relax.nn.gelu``.
        rule: replaces a call, as a rule with ``builder.call_te(compute, *call.args)``.
    """

    operator: str
    rule: Rule


@lru_cache(maxsize=1)
def legalization_map() -> dict[str, Callable[[relax.BlockBuilder, relax.Call], relax.Expr]]:
    """For ``LegalizeOps``: the rules in force, by operator. What they write with has lowerings from then on.

    Raises:
        ExtensionError: an entry point gives no rules, two packages give one for the same operator, or there
            is no such operator.
    """
    register_lowerings()
    return make_legalization_map(BUILT_IN, entry_points(group=GROUP))


def make_legalization_map(
    own: Iterable[EntryPoint], installed: Iterable[EntryPoint]
) -> dict[str, Callable[[relax.BlockBuilder, relax.Call], relax.Expr]]:
    """The rules of entry points; see ``legalization_map``."""
    chains: dict[str, list[Rule]] = {}
    for points in (installed, own):
        for operator, (found, source) in collect(points, (Legalization,), lambda one: one.operator).items():
            _check_operator(operator, source)
            chains.setdefault(operator, []).append(found.rule)
    return {operator: _in_turn(operator, rules) for operator, rules in chains.items()}


def _check_operator(operator: str, source: str) -> None:
    if operator not in tvm.ir.Op.list_op_names():
        raise ExtensionError(f"{source} legalizes '{operator}', which Relax does not have")


def _in_turn(operator: str, rules: list[Rule]) -> Callable[[relax.BlockBuilder, relax.Call], relax.Expr]:
    default = tvm.ir.Op.get(operator).get_attr("FLegalize")

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        for rule in rules:
            replaced = rule(builder, call)
            if replaced is not None:
                return replaced
        return call if default is None else default(builder, call)

    return legalize
