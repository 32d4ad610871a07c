"""Arithmetic, comparisons and bounds of two tensors or a tensor and a number.

torch first brings both to one dtype by its rules of type promotion; TVM's converters promote some pairs
only, and
compute quotients of integers as integers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import relax, tirx

from worker.compiler.translation.dtypes import common_dtype, is_floating, is_number, wide
from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.rule import Rules, Translate, rules_of

Binary = Callable[[relax.Expr, relax.Expr], relax.Expr]
Element = Callable[[Any, Any], Any]
"""From an element of each operand to one of the result."""


def _is_open(*operands: Any) -> bool:
    """Whether an operand is the size of an open axis, which TVM's converters compute with."""
    return any(
        not is_number(one) and not isinstance(getattr(one, "ty", None), relax.TensorType) for one in operands
    )


def _arithmetic(operation: Binary) -> Translate:
    def translate(emit: Emitter, left: Any, right: Any) -> Any:
        if _is_open(left, right):
            return emit.stock()
        return operation(*(_unfolded(emit, one, other) for one, other in ((left, right), (right, left))))

    return translate


def _unfolded(emit: Emitter, operand: Any, other: Any) -> relax.Expr:
    """An operand as torch has it. A zero is kept in memory: to TVM, ``0 * x`` is 0, and ``x / 0`` an error.

    It stays a number beside a tensor without axes, to which it would give one.
    """
    if is_floating(emit.dtype) and is_number(operand) and operand == 0 and other.ty.ndim > 0:
        return relax.const([operand], emit.dtype)
    return emit.cast(operand, emit.dtype)


def _scaled(operation: Binary, on_booleans: Binary | None = None) -> Translate:
    """``left + alpha * right`` and its kind."""

    def translate(emit: Emitter, left: Any, right: Any, alpha: Any = 1) -> Any:
        if _is_open(left, right, alpha):
            return emit.stock()
        dtype = emit.dtype
        left, right = emit.cast(left, dtype), emit.cast(right, dtype)
        if dtype == "bool" and on_booleans is not None:
            return on_booleans(left, right)
        if alpha != 1:
            right = emit(relax.op.multiply(right, relax.const(alpha, dtype)))
        return operation(left, right)

    def by_keyword(emit: Emitter, left: Any, right: Any, *, alpha: Any) -> Any:
        return translate(emit, left, right, alpha)

    return by_keyword


def _scaled_by_number(operation: Binary) -> Translate:
    def translate(emit: Emitter, left: Any, right: Any, alpha: Any) -> Any:
        return _scaled(operation)(emit, left, right, alpha=alpha)

    return translate


def _reversed(operation: Binary) -> Binary:
    return lambda left, right: operation(right, left)


def _multiply(emit: Emitter, left: Any, right: Any) -> Any:
    operation = relax.op.logical_and if emit.dtype == "bool" else relax.op.multiply
    return _arithmetic(operation)(emit, left, right)


def _divide_mode(emit: Emitter, left: Any, right: Any, *, rounding_mode: str | None) -> Any:
    if _is_open(left, right):
        return emit.stock()
    if rounding_mode == "floor":
        return _floor_divide(emit, left, right)
    quotient = _arithmetic(relax.op.divide)(emit, left, right)
    if rounding_mode is None or not is_floating(emit.dtype):
        return quotient
    return relax.op.trunc(emit(quotient))


def _floor_divide(emit: Emitter, left: Any, right: Any) -> Any:
    """Of floats by way of the exact remainder: a quotient that is rounded up to a whole number is not one."""
    return _by_remainder(emit, left, right, relax.op.floor_divide, _floored_quotient)


def _remainder(emit: Emitter, left: Any, right: Any) -> Any:
    """With the sign of the divisor."""
    return _by_remainder(emit, left, right, relax.op.floor_mod, _signed_remainder)


def _fmod(emit: Emitter, left: Any, right: Any) -> Any:
    """With the sign of the dividend."""
    return _by_remainder(emit, left, right, partial(_truncated_remainder, emit), tirx.fmod)


def _by_remainder(emit: Emitter, left: Any, right: Any, on_integers: Binary, on_floats: Element) -> Any:
    if _is_open(left, right):
        return emit.stock()
    if not is_floating(emit.dtype):
        return _arithmetic(on_integers)(emit, left, right)
    compute = wide(emit.dtype)
    operands = (emit.cast(operand, compute) for operand in (left, right))
    return emit.cast(emit.tensor_expression(broadcast(on_floats), *operands), emit.dtype)


def _truncated_remainder(emit: Emitter, left: relax.Expr, right: relax.Expr) -> relax.Expr:
    return relax.op.subtract(left, emit(relax.op.multiply(emit(relax.op.divide(left, right)), right)))


def _signed_remainder(left: Any, right: Any) -> Any:
    def signed(rest: Any) -> Any:
        return tirx.Select(_has_other_sign(rest, right), rest + right, rest)

    return _with_rest(left, right, signed)


def _floored_quotient(left: Any, right: Any) -> Any:
    """As torch's ``div_floor_floating``, which is Python's."""
    zero, one, half = (tirx.const(number, left.ty.dtype) for number in (0, 1, 0.5))

    def quotient(rest: Any) -> Any:
        exact = (left - rest) / right
        below = tirx.Select(_has_other_sign(rest, right), exact - one, exact)
        floor = tirx.floor(below)
        whole = tirx.Select(below - floor > half, floor + one, floor)
        # A zero has the sign of the quotient.
        signed = tirx.Select(below == zero, left / right * zero, whole)
        return tirx.Select(right == zero, left / right, signed)

    return _with_rest(left, right, quotient)


def _has_other_sign(rest: Any, right: Any) -> Any:
    zero = tirx.const(0, right.ty.dtype)
    return tirx.Select(rest < zero, right > zero, tirx.all(rest > zero, right < zero))


def _with_rest(left: Any, right: Any, body: Callable[[Any], Any]) -> Any:
    """An expression that reads the remainder several times."""
    rest = tirx.Var("rest", left.ty.dtype)
    return tirx.Let(rest, tirx.fmod(left, right), body(rest))


def _comparison(operation: Binary) -> Translate:
    def translate(emit: Emitter, left: Any, right: Any) -> Any:
        if (is_number(left) and is_number(right)) or _is_open(left, right):
            return emit.stock()
        dtype = common_dtype(emit.operands())
        dtype = "int8" if dtype == "bool" else dtype
        return operation(emit.cast(left, dtype), emit.cast(right, dtype))

    return translate


def _logical(operation: Binary) -> Translate:
    def translate(emit: Emitter, left: relax.Expr, right: relax.Expr) -> relax.Expr:
        return operation(truth(emit, left), truth(emit, right))

    return translate


def _logical_not(emit: Emitter, data: relax.Expr) -> relax.Expr:
    return relax.op.logical_not(truth(emit, data))


def truth(emit: Emitter, data: relax.Expr) -> relax.Expr:
    """Which elements are not zero."""
    if dtype_of(data) == "bool":
        return data
    return emit(relax.op.not_equal(data, relax.const(0, dtype_of(data))))


def _bitwise(on_integers: Binary, on_booleans: Binary) -> Translate:
    def translate(emit: Emitter, left: Any, right: Any) -> Any:
        operation = on_booleans if emit.dtype == "bool" else on_integers
        return _arithmetic(operation)(emit, left, right)

    return translate


def _bitwise_not(emit: Emitter, data: relax.Expr) -> relax.Expr:
    return relax.op.logical_not(data) if emit.dtype == "bool" else relax.op.bitwise_not(data)


def _power(emit: Emitter, base: Any, exponent: Any) -> Any:
    """Small whole powers as products; those of integers by way of float64, for which there is code."""
    if _is_open(base, exponent):
        return emit.stock()
    dtype = emit.dtype
    if is_number(exponent) and exponent in (1, 2, 3):
        factor = emit.cast(base, dtype)
        product = factor
        for _ in range(int(exponent) - 1):
            product = emit(relax.op.multiply(product, factor))
        return product
    if is_number(exponent) and exponent == 0.5:
        return relax.op.sqrt(emit.cast(base, dtype))
    compute = dtype if is_floating(dtype) else "float64"
    return emit.cast(emit(relax.op.power(emit.cast(base, compute), emit.cast(exponent, compute))), dtype)


def _where(emit: Emitter, condition: relax.Expr, left: Any, right: Any) -> relax.Expr:
    return relax.op.where(truth(emit, condition), emit.cast(left, emit.dtype), emit.cast(right, emit.dtype))


def _clamp(emit: Emitter, data: relax.Expr, low: Any, high: Any) -> relax.Expr:
    """Bounds may be numbers, tensors that broadcast, or absent."""
    result = emit.cast(data, emit.dtype)
    if low is not None:
        result = emit(relax.op.maximum(result, emit.cast(low, emit.dtype)))
    if high is not None:
        result = emit(relax.op.minimum(result, emit.cast(high, emit.dtype)))
    return result


def _atan2(emit: Emitter, left: relax.Expr, right: relax.Expr) -> relax.Expr:
    return emit.tensor_expression(
        broadcast(tirx.atan2), emit.cast(left, emit.dtype), emit.cast(right, emit.dtype)
    )


def broadcast(operation: Element) -> Callable[[Any, Any], Any]:
    """A tensor expression of an operation on elements, over shapes that broadcast."""
    from tvm import te, topi

    def compute(left: Any, right: Any) -> Any:
        shape = topi.add(left, right).shape
        left, right = topi.broadcast_to(left, shape), topi.broadcast_to(right, shape)
        return te.compute(shape, lambda *at: operation(left(*at), right(*at)), name="binary")

    return compute


_ARITHMETIC = {
    "aten.mul.Tensor": _multiply,
    "aten.mul.Scalar": _multiply,
    "aten.div.Tensor": _arithmetic(relax.op.divide),
    "aten.div.Scalar": _arithmetic(relax.op.divide),
    "aten.maximum.default": _arithmetic(relax.op.maximum),
    "aten.minimum.default": _arithmetic(relax.op.minimum),
    "aten.max.other": _arithmetic(relax.op.maximum),
    "aten.min.other": _arithmetic(relax.op.minimum),
}
_COMPARISONS = {
    "eq": relax.op.equal,
    "ne": relax.op.not_equal,
    "lt": relax.op.less,
    "le": relax.op.less_equal,
    "gt": relax.op.greater,
    "ge": relax.op.greater_equal,
}


RULES: Rules = rules_of(
    {
        **_ARITHMETIC,
        **{
            f"aten.{name}.{overload}": _comparison(operation)
            for name, operation in _COMPARISONS.items()
            for overload in ("Tensor", "Scalar")
        },
        **{
            f"aten.bitwise_{name}.{overload}": _bitwise(on_integers, on_booleans)
            for name, on_integers, on_booleans in (
                ("and", relax.op.bitwise_and, relax.op.logical_and),
                ("or", relax.op.bitwise_or, relax.op.logical_or),
                ("xor", relax.op.bitwise_xor, relax.op.logical_xor),
            )
            for overload in ("Tensor", "Scalar")
        },
        "aten.bitwise_not.default": _bitwise_not,
        "aten.logical_and.default": _logical(relax.op.logical_and),
        "aten.logical_or.default": _logical(relax.op.logical_or),
        "aten.logical_xor.default": _logical(relax.op.logical_xor),
        "aten.logical_not.default": _logical_not,
        "aten.add.Tensor": _scaled(relax.op.add, relax.op.logical_or),
        "aten.add.Scalar": _scaled_by_number(relax.op.add),
        "aten.sub.Tensor": _scaled(relax.op.subtract),
        "aten.sub.Scalar": _scaled_by_number(relax.op.subtract),
        "aten.rsub.Tensor": _scaled(_reversed(relax.op.subtract)),
        "aten.rsub.Scalar": _scaled_by_number(_reversed(relax.op.subtract)),
        "aten.div.Tensor_mode": _divide_mode,
        "aten.div.Scalar_mode": _divide_mode,
        "aten.floor_divide.default": _floor_divide,
        "aten.floor_divide.Scalar": _floor_divide,
        "aten.remainder.Tensor": _remainder,
        "aten.remainder.Scalar": _remainder,
        "aten.fmod.Tensor": _fmod,
        "aten.fmod.Scalar": _fmod,
        "aten.pow.Tensor_Tensor": _power,
        "aten.pow.Tensor_Scalar": _power,
        "aten.pow.Scalar": _power,
        "aten.where.self": _where,
        "aten.clamp.default": _clamp,
        "aten.clamp.Tensor": _clamp,
        "aten.clamp_min.default": lambda emit, data, low: _clamp(emit, data, low, None),
        "aten.clamp_min.Tensor": lambda emit, data, low: _clamp(emit, data, low, None),
        "aten.clamp_max.default": lambda emit, data, high: _clamp(emit, data, None, high),
        "aten.clamp_max.Tensor": lambda emit, data, high: _clamp(emit, data, None, high),
        "aten.atan2.default": _atan2,
    }
)
