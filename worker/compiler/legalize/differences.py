"""Differences and comparisons of floats in forms that TVM's algebra leaves alone.

To TVM ``x - x`` is 0 and ``(x + y) - y`` is ``x``: of floats neither is so, where they round or are not
finite, and a quotient by such a 0 is an error. What it sees as a sum with a product it does not cancel; LLVM
makes one subtraction of it. And of two numbers one is less or equal, to TVM, or the other is greater: of NaN
neither is so.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx, topi

from worker.compiler.legalize.registry import Rule


def _subtract(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    if "float" not in str(call.ty.dtype):
        return None
    return bb.call_te(_difference, *call.args, primfunc_name_hint="subtract")


def _difference(left: te.Tensor, right: te.Tensor) -> te.Tensor:
    left, right = _of_one_shape(left, right)
    minus = tirx.const(-1.0, left.dtype)

    def element(*at: Any) -> Any:
        return left(*at) + right(*at) * minus

    return te.compute(left.shape, element, name="T_subtract", tag=topi.tag.BROADCAST)


def _equal(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Of a float with itself: all but NaN are."""
    left, right = call.args
    if not left.same_as(right) or "float" not in str(left.ty.dtype):
        return None

    def compare(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *at: tirx.Not(tirx.isnan(data(*at))), name="equal")

    return bb.call_te(compare, left, primfunc_name_hint="equal")


def _not_equal(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Of floats: NaN is, to which TVM's comparison says no."""
    if "float" not in str(call.args[0].ty.dtype):
        return None
    return bb.call_te(_differing, *call.args, primfunc_name_hint="not_equal")


def _differing(left: te.Tensor, right: te.Tensor) -> te.Tensor:
    left, right = _of_one_shape(left, right)

    def element(*at: Any) -> Any:
        one, other = left(*at), right(*at)
        return tirx.any(one != other, tirx.isnan(one), tirx.isnan(other))

    return te.compute(left.shape, element, name="not_equal", tag=topi.tag.BROADCAST)


def _logical_not(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """By bits: to TVM ``not a < b`` is ``b <= a``, which NaN makes neither of."""
    data = call.args[0]
    if str(data.ty.dtype) != "bool":
        return None

    def element(value: Any) -> Any:
        return (value.astype("int8") ^ tirx.const(1, "int8")).astype("bool")

    def inverted(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: element(x(*at)), name="logical_not")

    return bb.call_te(inverted, data, primfunc_name_hint="logical_not")


def _of_one_shape(left: te.Tensor, right: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    shape = topi.add(left, right).shape
    return topi.broadcast_to(left, shape), topi.broadcast_to(right, shape)


DIFFERENCES: dict[str, Rule] = {
    "relax.equal": _equal,
    "relax.logical_not": _logical_not,
    "relax.not_equal": _not_equal,
    "relax.subtract": _subtract,
}
"""By the operators' names."""
