"""Arithmetic and comparisons in forms that TVM's simplifier leaves alone.

    subtract(x, y)    x[i] + y[i] * -1 of floats
    add(x, y)         x[i] + y[i] of the bits as unsigned integers, also differences and products
    not_equal(x, y)   x[i] != y[i] or isnan(x[i]) or isnan(y[i])
    equal(x, y)       x[i] == y[i] and not isnan(x[i])
    logical_not(x)    bool(int8(x[i]) ^ 1)
    logical_or(x, y)  bool(int8(x[i]) | int8(y[i]))

TVM simplifies as if floats were real numbers: ``x - x`` to 0, ``(x + y) - y`` to ``x``, ``not a < b`` to
``b <= a``, ``a < b or a >= b`` to true. These are wrong for infinities, NaN and rounding. It does not cancel
a sum with a product, which LLVM compiles to one subtraction.

It simplifies integers of 32 and 64 bits as if they were unlimited: ``x + 1 > x`` to true, ``x * 2 // 2`` to
``x``. torch wraps them, as unsigned integers do. Their bits are reinterpreted: TVM takes an unsigned integer
that is cast to a signed one for positive.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx, topi

from worker.compiler.legalize.registry import Rule
from worker.compiler.schedules.nest import is_nan


def _wrapping(name: str, operation: Callable[[Any, Any], Any]) -> Rule:
    def rule(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        dtype = str(call.ty.dtype)
        if dtype not in _UNLIMITED:
            return None

        def compute(left: te.Tensor, right: te.Tensor) -> te.Tensor:
            left, right = _of_one_shape(left, right)

            def element(*at: Any) -> Any:
                bits = (tirx.reinterpret(f"u{dtype}", one(*at)) for one in (left, right))
                return tirx.reinterpret(dtype, operation(*bits))

            return te.compute(left.shape, element, name=f"T_{name}", tag=topi.tag.BROADCAST)

        return bb.call_te(compute, *call.args, primfunc_name_hint=name)

    return rule


_UNLIMITED = ("int32", "int64")
_subtract_integers = _wrapping("subtract", operator.sub)


def _subtract(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    if "float" not in str(call.ty.dtype):
        return _subtract_integers(bb, call)
    return bb.call_te(_difference, *call.args, primfunc_name_hint="subtract")


def _difference(left: te.Tensor, right: te.Tensor) -> te.Tensor:
    left, right = _of_one_shape(left, right)
    minus = tirx.const(-1.0, left.dtype)

    def element(*at: Any) -> Any:
        return left(*at) + right(*at) * minus

    return te.compute(left.shape, element, name="T_subtract", tag=topi.tag.BROADCAST)


def _equal(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Compare floats: NaN differs from everything, even where TVM finds that both sides are one element."""
    if "float" not in str(call.args[0].ty.dtype):
        return None
    return bb.call_te(_agreeing, *call.args, primfunc_name_hint="equal")


def _agreeing(left: te.Tensor, right: te.Tensor) -> te.Tensor:
    left, right = _of_one_shape(left, right)

    def element(*at: Any) -> Any:
        one, other = left(*at), right(*at)
        return tirx.all(one.equal(other), tirx.Not(is_nan(one)))

    return te.compute(left.shape, element, name="equal", tag=topi.tag.BROADCAST)


def _not_equal(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Compare floats: NaN differs from everything, which TVM's comparison denies."""
    if "float" not in str(call.args[0].ty.dtype):
        return None
    return bb.call_te(_differing, *call.args, primfunc_name_hint="not_equal")


def _differing(left: te.Tensor, right: te.Tensor) -> te.Tensor:
    left, right = _of_one_shape(left, right)

    def element(*at: Any) -> Any:
        one, other = left(*at), right(*at)
        return tirx.any(one != other, is_nan(one), is_nan(other))

    return te.compute(left.shape, element, name="not_equal", tag=topi.tag.BROADCAST)


def _logical_not(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Flip the bit, since TVM turns ``not a < b`` into ``b <= a``, which is false for NaN."""
    data = call.args[0]
    if str(data.ty.dtype) != "bool":
        return None

    def element(value: Any) -> Any:
        return (value.astype("int8") ^ tirx.const(1, "int8")).astype("bool")

    def inverted(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: element(x(*at)), name="logical_not")

    return bb.call_te(inverted, data, primfunc_name_hint="logical_not")


def _logical_or(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Join the bits, since TVM turns ``a < b or a >= b`` into true, which is false for NaN."""
    if any(str(each.ty.dtype) != "bool" for each in call.args):
        return None

    def joined(left: te.Tensor, right: te.Tensor) -> te.Tensor:
        left, right = _of_one_shape(left, right)

        def element(*at: Any) -> Any:
            return (left(*at).astype("int8") | right(*at).astype("int8")).astype("bool")

        return te.compute(left.shape, element, name="logical_or", tag=topi.tag.BROADCAST)

    return bb.call_te(joined, *call.args, primfunc_name_hint="logical_or")


def _of_one_shape(left: te.Tensor, right: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    shape = topi.add(left, right).shape
    return topi.broadcast_to(left, shape), topi.broadcast_to(right, shape)


DIFFERENCES: dict[str, Rule] = {
    "relax.add": _wrapping("add", operator.add),
    "relax.multiply": _wrapping("multiply", operator.mul),
    "relax.equal": _equal,
    "relax.logical_not": _logical_not,
    "relax.logical_or": _logical_or,
    "relax.not_equal": _not_equal,
    "relax.subtract": _subtract,
}
"""Rules by operator."""
