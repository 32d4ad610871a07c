"""The two kinds of rewrite, and the match that a rewriter gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import DFPattern, is_op

from worker.compiler.layout.constants import Array, numpy_of

Group = Callable[["Match", str], relax.Expr | None]
"""Makes a primitive function of a match; returns a call of it."""


@dataclass(frozen=True)
class Match:
    """One match of a pattern.

    Attributes:
        root: the variable of the pattern's root.
        inside: the other variables that the pattern matched, producers first.
        bound: the value of each variable.
    """

    root: relax.Var
    inside: tuple[relax.Var, ...]
    bound: Mapping[relax.Var, relax.Expr]
    captured: Mapping[DFPattern, relax.Expr]
    make_group: Group

    def __contains__(self, pattern: DFPattern) -> bool:
        """Whether a part of the pattern matched; of alternatives only one does."""
        return pattern in self.captured

    def __getitem__(self, pattern: DFPattern) -> relax.Expr:
        """The variable or constant that a part of the pattern matched, with its type in ``.ty``."""
        return self.captured[pattern]

    def call(self, pattern: DFPattern) -> relax.Call:
        """The call that a part of the pattern matched, with its ``attrs``."""
        found = self.captured[pattern]
        return self.bound.get(found, found) if isinstance(found, relax.Var) else found

    def array(self, pattern: DFPattern) -> Array | None:
        """The value of a constant; None for other expressions, and for dtypes that numpy lacks."""
        return numpy_of(self.captured[pattern])

    def scalar(self, pattern: DFPattern) -> float | None:
        """The value of a constant of one element; None for other expressions."""
        values = self.array(pattern)
        return None if values is None or values.size != 1 else float(values.reshape(()))

    def is_close(self, pattern: DFPattern, value: float) -> bool:
        """Whether a part is a constant of one element that equals ``value`` to a relative 0.001."""
        found = self.scalar(pattern)
        return found is not None and bool(np.isclose(found, value, rtol=1e-3, atol=0))

    def group(self, name: str) -> relax.Expr | None:
        """A call of a new primitive function that computes the match.

        Args:
            name: the name of the function, which should list its operators.

        Returns:
            The call; None if the request fuses nothing, or if a size is dynamic.
        """
        return self.make_group(self, name)


Rewriter = Callable[[Match], relax.Expr | None]
"""Returns the expression that replaces a match, nested calls allowed; None leaves the match alone."""


@dataclass(frozen=True)
class Rewrite:
    """Replaces the matches of a dataflow pattern.

    Attributes:
        name: its name in requests and reports.
        summary: one line on what it does.
        pattern: a pattern of ``tvm.relax.dpl``. A match stays if something else reads its inner results,
            unless these are cheap to compute again.
        rewriter: makes the replacement of a match.
        is_default: whether it runs unless a request disables it.
    """

    name: str
    summary: str
    pattern: DFPattern
    rewriter: Rewriter
    is_default: bool = False


@dataclass(frozen=True)
class GraphRewrite:
    """Rewrites a whole module, for structures that a pattern cannot express.

    Attributes:
        name: its name in requests and reports.
        summary: one line on what it does.
        apply: takes the module; returns the new one, and the variables whose values it replaced.
        is_default: whether it runs unless a request disables it.
    """

    name: str
    summary: str
    apply: Callable[[tvm.IRModule], tuple[tvm.IRModule, tuple[relax.Var, ...]]]
    is_default: bool = False


AnyRewrite = Rewrite | GraphRewrite


def commuted(operator: str, one: DFPattern, other: DFPattern) -> DFPattern:
    """A call of an operator with two operands in either order."""
    call = is_op(operator)
    return call(one, other) | call(other, one)
