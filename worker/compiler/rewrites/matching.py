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
"""What takes no longer to compute again than to read: one operation per element, or none."""


@dataclass(frozen=True)
class Occurrence:
    """A pattern in a graph: the root's variable, those inside, and what each part matched."""

    root: relax.Var
    inside: tuple[relax.Var, ...]
    captured: Mapping[DFPattern, relax.Expr]


class Finder:
    """Looks for patterns in one function."""

    def __init__(self, function: relax.Function) -> None:
        self.graph = read_graph(function)
        # As TVM holds it: a dictionary would be copied at every match.
        self._bound = relax.analysis.get_var2val(function)

    @cached_property
    def _variables(self) -> dict[relax.Expr, relax.Var]:
        """The variable that is bound to each value: patterns capture values."""
        return {value: variable for variable, value in self.graph.values.items()}

    def find(self, pattern: DFPattern) -> Iterator[Occurrence]:
        """Where a pattern matches and nobody needs what is inside, from the last to the first."""
        for variable, value in reversed(self.graph.values.items()):
            captured = pattern.extract_matched_expr(value, self._bound)
            if captured is not None:
                found = self._occurrence(variable, dict(captured))
                if self._is_needless(found):
                    yield found

    def _occurrence(self, root: relax.Var, captured: dict[DFPattern, relax.Expr]) -> Occurrence:
        leaves = {value for pattern, value in captured.items() if not _computes(pattern)}
        matched = set(captured.values()) - leaves
        inside: dict[relax.Var, None] = {}
        self._collect(self.graph.values[root], matched, inside)
        named = {pattern: self._variables.get(value, value) for pattern, value in captured.items()}
        return Occurrence(root, tuple(inside), named)

    def _collect(self, value: relax.Expr, matched: set[relax.Expr], inside: dict[relax.Var, None]) -> None:
        """The variables of a value whose own values were matched, producers first."""
        for operand in relax.analysis.free_vars(value):
            bound = self.graph.values.get(operand)
            if bound is not None and bound in matched and operand not in inside:
                self._collect(bound, matched, inside)
                inside[operand] = None

    def _is_needless(self, found: Occurrence) -> bool:
        """Whether everything inside that others read, and what that needs, is cheap."""
        kept: set[relax.Var] = set()
        own = {found.root, *found.inside}
        for variable in reversed(found.inside):
            readers = self.graph.readers.get(variable, [])
            if variable in self.graph.outputs or any(one not in own or one in kept for one in readers):
                kept.add(variable)
        return all(operator_of(self.graph.values[variable]) in CHEAP for variable in kept)


def _computes(pattern: DFPattern) -> bool:
    """Whether a pattern stands for a call of its own, not for an operand of whatever kind."""
    return type(pattern).__name__ in {"CallPattern", "OrPattern", "AndPattern", "AttrPattern"}
