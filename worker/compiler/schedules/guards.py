"""What a branch of an expression keeps from being computed where it is not taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import is_branch
from worker.compiler.schedules.vector_math.numbers import Expression

_QUOTIENTS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)


def guards(select: tirx.Select, known: Callable[[TensorLoad], bool]) -> bool:
    """Whether either branch may do what must not be done where it is not taken.

    That is to read what the condition does not read, or to divide integers, which by zero ends the process.
    What branches within the branches guard is theirs to keep.

    Args:
        select: a choice between two values.
        known: whether what a load reads can be read anywhere.
    """
    read = tuple(_loads(_certain(select.condition)))
    inside = (*_certain(select.true_value), *_certain(select.false_value))
    if any(_may_trap(part) for part in inside):
        return True
    return not all(known(load) or _is_fixed(load) or _is_among(load, read) for load in _loads(inside))


def _certain(expression: Expression) -> Iterator[Any]:
    """The loads and the quotients that are computed whichever branches within the expression are taken."""
    found: list[Any] = []

    def note(part: Any) -> None:
        found.append(part)

    def decide(condition: Expression) -> tvm_ffi.WalkResult:
        found.extend(_certain(condition))
        return tvm_ffi.WalkResult.SKIP

    def call(call: Call) -> tvm_ffi.WalkResult | None:
        return decide(call.args[0]) if is_branch(call) else None

    def select(select: tirx.Select) -> tvm_ffi.WalkResult:
        return decide(select.condition)

    callbacks = [(Call, call), (tirx.Select, select), ((TensorLoad, *_QUOTIENTS), note)]
    tvm_ffi.structural_walk(expression, callbacks, order="pre")
    return iter(found)


def _loads(parts: Iterable[Any]) -> Iterator[TensorLoad]:
    return (part for part in parts if isinstance(part, TensorLoad))


def _may_trap(part: Any) -> bool:
    if not isinstance(part, _QUOTIENTS) or "int" not in nest.dtype_of(part):
        return False
    return not (isinstance(part.b, tirx.IntImm) and int(part.b) > 0)


def _is_fixed(load: TensorLoad) -> bool:
    """Whether it reads one element that there always is, as of a scalar parameter."""
    return all(
        isinstance(index, tirx.IntImm) and isinstance(size, tirx.IntImm) and 0 <= int(index) < int(size)
        for index, size in zip(load.indices, load.source.shape, strict=True)
    )


def _is_among(load: TensorLoad, loads: tuple[TensorLoad, ...]) -> bool:
    return any(tvm_ffi.structural_equal(load, other) for other in loads)
