"""Find where a pattern may be replaced: nothing else reads its inner results, or they are cheap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tvm import relax
from tvm.relax.dpl import DFPattern

from worker.compiler.layout.relax_graph import operator_of, read_graph

CHEAP = frozenset(
    {
        "add",
        "astype",
        "broadcast_to",
        "divide",
        "expand_dims",
        "maximum",
        "minimum",
        "multiply",
        "negative",
        "nn.relu",
        "reshape",
        "squeeze",
        "subtract",
    }
)
"""Operators that take no longer to repeat than to read: at most one operation per element."""


@dataclass(frozen=True)
class Occurrence:
    """A match in a graph: the root's variable, those inside, and the expression of each part."""

    root: relax.Var
    inside: tuple[relax.Var, ...]
    captured: Mapping[DFPattern, relax.Expr]


class Finder:
    """Looks for patterns in one function."""

    def __init__(self, function: relax.Function) -> None:
        self.graph = read_graph(function)
        # TVM's own map: it would copy a dictionary at every match.
        self._bound = relax.analysis.get_var2val(function)

    @cached_property
    def _variables(self) -> dict[relax.Expr, relax.Var]:
        """The variable of each value: patterns capture values."""
        return {value: variable for variable, value in self.graph.values.items()}

    def find(self, pattern: DFPattern) -> Iterator[Occurrence]:
        """The replaceable matches of a pattern, from the last to the first."""
        operators = _root_operators(pattern)
        for variable, value in reversed(self.graph.values.items()):
            if operators is not None and operator_of(value) not in operators:
                continue
            captured = pattern.extract_matched_expr(value, self._bound)
            if captured is not None:
                found = self._occurrence(variable, dict(captured))
                if self._is_replaceable(found):
                    yield found

    def _occurrence(self, root: relax.Var, captured: dict[DFPattern, relax.Expr]) -> Occurrence:
        leaves = {value for pattern, value in captured.items() if not _computes(pattern)}
        matched = set(captured.values()) - leaves
        inside: dict[relax.Var, None] = {}
        self._collect(self.graph.values[root], matched, inside)
        named = {pattern: self._variables.get(value, value) for pattern, value in captured.items()}
        return Occurrence(root, tuple(inside), named)

    def _collect(self, value: relax.Expr, matched: set[relax.Expr], inside: dict[relax.Var, None]) -> None:
        """Collect the variables below a value that the pattern matched, producers first."""
        for operand in relax.analysis.free_vars(value):
            bound = self.graph.values.get(operand)
            if bound is not None and bound in matched and operand not in inside:
                self._collect(bound, matched, inside)
                inside[operand] = None

    def _is_replaceable(self, found: Occurrence) -> bool:
        """Whether the variables inside that must stay for other readers are all cheap."""
        kept: set[relax.Var] = set()
        own = {found.root, *found.inside}
        for variable in reversed(found.inside):
            readers = self.graph.readers.get(variable, [])
            if variable in self.graph.outputs or any(one not in own or one in kept for one in readers):
                kept.add(variable)
        return all(operator_of(self.graph.values[variable]) in CHEAP for variable in kept)


def _computes(pattern: DFPattern) -> bool:
    """Whether a pattern matches a call, not any operand."""
    return type(pattern).__name__ in {"CallPattern", "OrPattern", "AndPattern", "AttrPattern"}


def _root_operators(pattern: DFPattern) -> frozenset[str] | None:
    """The operators of the calls that a pattern matches; None if it may match others."""
    match type(pattern).__name__:
        case "CallPattern" if type(pattern.op).__name__ == "ExprPattern":
            return frozenset({str(pattern.op.expr.name).removeprefix("relax.")})
        case "OrPattern":
            left, right = _root_operators(pattern.left), _root_operators(pattern.right)
            return None if left is None or right is None else left | right
        case "AttrPattern":
            return _root_operators(pattern.pattern)
    return None
