"""The two kinds of rewrite, and the match that a rewriter gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.dpl import DFPattern, is_op

Group = Callable[["Match", str], relax.Expr | None]
"""Makes a primitive function of what was matched, and calls it."""


@dataclass(frozen=True)
class Match:
    """Where a pattern matches.

    Attributes:
        root: what the pattern's root is bound to.
        inside: the variables that the replacement makes needless, the root's producers first.
        bound: what each variable is bound to.
    """

    root: relax.Var
    inside: tuple[relax.Var, ...]
    bound: Mapping[relax.Var, relax.Expr]
    captured: Mapping[DFPattern, relax.Expr]
    make_group: Group

    def __contains__(self, pattern: DFPattern) -> bool:
        """Whether a part of the pattern matched; of alternatives, only one does."""
        return pattern in self.captured

    def __getitem__(self, pattern: DFPattern) -> relax.Expr:
        """What a part of the pattern matched: a variable or a constant, which has a type, in ``.ty``."""
        return self.captured[pattern]

    def call(self, pattern: DFPattern) -> relax.Call:
        """The call that a part of the pattern matched, with its ``attrs``."""
        found = self.captured[pattern]
        return self.bound.get(found, found) if isinstance(found, relax.Var) else found

    def array(self, pattern: DFPattern) -> NDArray[Any] | None:
        """The value of a constant; None for what is none, and for types that numpy lacks."""
        found = self.captured[pattern]
        if not isinstance(found, GenericConst) or "bfloat" in str(found.value.dtype):
            return None
        return found.value.numpy()

    def scalar(self, pattern: DFPattern) -> float | None:
        """The value of a constant of one element; None for what is none."""
        values = self.array(pattern)
        return None if values is None or values.size != 1 else float(values.reshape(()))

    def is_close(self, pattern: DFPattern, value: float) -> bool:
        """Whether a part is a constant of one element, of this value as far as its dtype can tell."""
        found = self.scalar(pattern)
        return found is not None and bool(np.isclose(found, value, rtol=1e-3, atol=0))

    def group(self, name: str) -> relax.Expr | None:
        """A call of a new primitive function that does what was matched; None where the request
        fuses nothing, and where sizes are open.

        Args:
            name: of the function; it ought to say what it holds.
        """
        return self.make_group(self, name)


Rewriter = Callable[[Match], relax.Expr | None]
"""What replaces a match: an expression of what was captured, calls within calls allowed; None leaves it."""


@dataclass(frozen=True)
class Rewrite:
    """Replaces what a dataflow pattern matches.

    Attributes:
        name: what requests and reports call it.
        summary: one line on what it does.
        pattern: what to look for (``tvm.relax.dpl``). Matches whose inner results others read are left
            alone, unless these are cheap to compute again.
        rewriter: what replaces a match.
        is_default: whether it is on unless a request switches it off.
    """

    name: str
    summary: str
    pattern: DFPattern
    rewriter: Rewriter
    is_default: bool = False


@dataclass(frozen=True)
class GraphRewrite:
    """Replaces what no pattern can say, such as any number of readers of one tensor.

    Attributes:
        name: what requests and reports call it.
        summary: one line on what it does.
        apply: takes the module; returns the new one, and the variables that it bound to something else.
        is_default: whether it is on unless a request switches it off.
    """

    name: str
    summary: str
    apply: Callable[[tvm.IRModule], tuple[tvm.IRModule, tuple[relax.Var, ...]]]
    is_default: bool = False


AnyRewrite = Rewrite | GraphRewrite


def commuted(operator: str, one: DFPattern, other: DFPattern) -> DFPattern:
    """A call of an operator of two operands, in either order."""
    call = is_op(operator)
    return call(one, other) | call(other, one)
