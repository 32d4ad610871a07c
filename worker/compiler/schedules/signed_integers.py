"""Integer arithmetic that cannot wrap, as signed arithmetic::

    reinterpret(int64, reinterpret(uint64, a) - reinterpret(uint64, b))    →    a - b

Legalization adds, subtracts and multiplies unsigned integers, which wrap as torch's signed ones do
(``legalize.differences``). But TVM (0.27) tells LLVM that unsigned integers do not wrap (``nuw``). If LLVM
knows that ``a`` is not negative, because it is a bool or the index of a loop, it takes ``a - b`` for not
negative, too: ``mask - 1 < 0`` is always false.

So arithmetic is signed where the ranges of both sides show that the result fits its dtype, and in ``a - b``
if ``a`` is not negative. The latter could wrap only for ``b`` near the smallest integer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.sym import Analyzer

from worker.compiler.schedules import nest
from worker.compiler.schedules.conditions import analyzer_of

_REINTERPRET = Op.get(str(tirx.reinterpret("int64", tirx.Var("x", "uint64")).op.name))
_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
}
_UNBOUNDED = 1 - (1 << 63)
"""What TVM gives as the smallest value if it knows none."""


class _Range(NamedTuple):
    """The smallest and the largest value."""

    least: int
    most: int


def with_signed_integers(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with signed integers where wrapping ones need not wrap."""

    @cache
    def analyzer() -> Analyzer:
        return analyzer_of(function.body)

    def signed(call: Call) -> Any:
        operation: Any = call.args[0] if _is_reinterpret(call) else call
        combine = _OPERATIONS.get(type(operation))
        if combine is None:
            return call
        sides = [_signed(side, nest.dtype_of(call)) for side in (operation.a, operation.b)]
        return combine(*sides) if None not in sides and _fits(combine, sides, analyzer()) else call

    return function.with_body(tvm_ffi.structural_map(function.body, (Call, signed)))


def _is_reinterpret(value: Any) -> bool:
    return isinstance(value, Call) and value.op.same_as(_REINTERPRET)


def _signed(value: Any, dtype: str) -> Any:
    """The integer whose bits an operand has; None if that is not known."""
    if _is_reinterpret(value) and nest.dtype_of(value.args[0]) == dtype:
        return value.args[0]
    return None


def _fits(combine: Callable[[Any, Any], Any], sides: list[Any], analyzer: Analyzer) -> bool:
    limits = _limits(nest.dtype_of(sides[0]))
    one, other = (_range(side, analyzer, limits) for side in sides)
    if combine is operator.sub and one.least >= 0:
        return True
    ends = [combine(left, right) for left in one for right in other]
    return limits.least <= min(ends) and max(ends) <= limits.most


def _range(value: Any, analyzer: Analyzer, limits: _Range) -> _Range:
    bound = analyzer.const_int_bound(value)
    least = int(bound.min_value)
    return _Range(
        limits.least if least == _UNBOUNDED else max(least, limits.least),
        min(int(bound.max_value), limits.most),
    )


def _limits(dtype: str) -> _Range:
    half = 1 << (nest.bits_of(dtype) - 1)
    return _Range(-half, half - 1)
