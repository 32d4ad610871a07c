"""Arithmetic on two tensors, or on a tensor and a number.

torch first promotes both operands to one dtype. TVM's converters promote only some pairs, and they divide
integers as integers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.batch_loops import Local, Result, View, map_batch, when
from worker.compiler.translation.dtypes import is_floating, is_number, wide
from worker.compiler.translation.element_functions import BinaryFunction, broadcast, let
from worker.compiler.translation.emitter import Emitter, shape_of
from worker.compiler.translation.rule import Rules, Translate, rules_of

Binary = Callable[[relax.Expr, relax.Expr], relax.Expr]


def promoted(operation: Binary) -> Translate:
    """A rule for an operation whose operands torch promotes to the dtype of the result."""

    def translate(emit: Emitter, left: Any, right: Any) -> Any:
        return operation(*(_unfolded(emit, one, other) for one, other in ((left, right), (right, left))))

    return translate


def _unfolded(emit: Emitter, operand: Any, other: Any) -> relax.Expr:
    """An operand in the result's dtype. A zero becomes a tensor, so that TVM does not simplify it.

    TVM simplifies ``0 * x`` to 0 and refuses ``x / 0``. Beside a tensor of rank 0 the zero stays a scalar,
    because a tensor would raise the result's rank.
    """
    if is_floating(emit.dtype) and is_number(operand) and operand == 0 and other.ty.ndim > 0:
        return relax.const([operand], emit.dtype)
    return emit.cast(operand, emit.dtype)


def _scaled(operation: Binary, on_booleans: Binary | None = None) -> Translate:
    """``left + alpha * right``, and the same with another operation."""

    def translate(emit: Emitter, left: Any, right: Any, alpha: Any = 1) -> Any:
        dtype = emit.dtype
        left, right = emit.cast(left, dtype), emit.cast(right, dtype)
        if dtype == "bool" and on_booleans is not None:
            return on_booleans(left, right)
        if not is_number(alpha) or alpha != 1:
            right = emit(relax.op.multiply(right, emit.cast(alpha, dtype)))
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
    return promoted(operation)(emit, left, right)


def _negate(emit: Emitter, data: relax.Expr) -> relax.Expr:
    if emit.dtype.startswith("uint"):
        return relax.op.subtract(relax.const(0, emit.dtype), data)
    return relax.op.negative(data)


def _divide_mode(emit: Emitter, left: Any, right: Any, *, rounding_mode: str | None) -> Any:
    if rounding_mode == "floor":
        return _floor_divide(emit, left, right)
    quotient = promoted(relax.op.divide)(emit, left, right)
    if rounding_mode is None or not is_floating(emit.dtype):
        return quotient
    return relax.op.trunc(emit(quotient))


def _floor_divide(emit: Emitter, left: Any, right: Any) -> Any:
    """Floats go by way of the exact remainder: a rounded quotient may reach the next integer."""
    return _by_remainder(emit, left, right, relax.op.floor_divide, _floored_quotient)


def _remainder(emit: Emitter, left: Any, right: Any) -> Any:
    """The remainder with the sign of the divisor."""
    return _by_remainder(emit, left, right, relax.op.floor_mod, _signed_remainder)


def _fmod(emit: Emitter, left: Any, right: Any) -> Any:
    """The remainder with the sign of the dividend."""
    return _by_remainder(emit, left, right, partial(_truncated_remainder, emit), tirx.fmod)


def _by_remainder(
    emit: Emitter, left: Any, right: Any, on_integers: Binary, on_floats: BinaryFunction
) -> Any:
    if not is_floating(emit.dtype):
        return promoted(on_integers)(emit, left, right)
    operands = (emit.cast(emit.cast(one, emit.dtype), wide(emit.dtype)) for one in (left, right))
    return emit.cast(emit.tensor_expression(broadcast(on_floats), *operands), emit.dtype)


def _truncated_remainder(emit: Emitter, left: relax.Expr, right: relax.Expr) -> relax.Expr:
    return relax.op.subtract(left, emit(relax.op.multiply(emit(relax.op.divide(left, right)), right)))


def _signed_remainder(left: Any, right: Any) -> Any:
    def signed(rest: Any) -> Any:
        return tirx.Select(_has_other_sign(rest, right), rest + right, rest)

    return let(tirx.fmod(left, right), signed)


def _floored_quotient(left: Any, right: Any) -> Any:
    """Floor division of floats.

    Source: torch's ``div_floor_floating``, which follows CPython's ``float_floor_div``.
    """
    zero, one, half = (tirx.const(number, left.ty.dtype) for number in (0, 1, 0.5))

    def quotient(rest: Any) -> Any:
        exact = (left - rest) / right
        below = tirx.Select(_has_other_sign(rest, right), exact - one, exact)
        floor = tirx.floor(below)
        whole = tirx.Select(below - floor > half, floor + one, floor)
        # A zero has the sign of the quotient.
        signed = tirx.Select(below == zero, left / right * zero, whole)
        return tirx.Select(right == zero, left / right, signed)

    return let(tirx.fmod(left, right), quotient)


def _has_other_sign(rest: Any, right: Any) -> Any:
    zero = tirx.const(0, right.ty.dtype)
    return tirx.Select(rest < zero, right > zero, tirx.all(rest > zero, right < zero))


def _power(emit: Emitter, base: Any, exponent: Any) -> Any:
    """Exponents 1 to 3 become products, 0.5 a square root. Integers are multiplied, and wrap as in torch."""
    dtype = emit.dtype
    if is_number(exponent) and exponent in (1, 2, 3):
        factor = emit.cast(base, dtype)
        product = factor
        for _ in range(int(exponent) - 1):
            product = emit(relax.op.multiply(product, factor))
        return product
    if is_number(exponent) and exponent == 0.5:
        return relax.op.sqrt(emit.cast(base, dtype))
    if not is_floating(dtype):
        return _integer_pairs(_integer_power)(emit, base, exponent)
    return relax.op.power(emit.cast(base, dtype), emit.cast(exponent, dtype))


def _integer_pairs(body: Callable[..., None]) -> Translate:
    """A rule for two tensors that broadcast, computed element by element."""

    def translate(emit: Emitter, left: Any, right: Any) -> relax.Expr:
        left, right = (emit.cast(one, emit.dtype) for one in (left, right))
        shape = shape_of(emit(relax.op.add(left, right)))
        operands = [emit(relax.op.broadcast_to(one, shape)) for one in (left, right)]
        return map_batch(emit, body, operands, [Result((), emit.dtype)], rank=0)[0]

    return translate


def _integer_power(base: View, exponent: View, power: View) -> None:
    """Squares the base for each bit of the exponent. Negative powers other than those of 1 and -1 are 0."""
    dtype = base.dtype
    zero, one, two = (tirx.const(number, dtype) for number in range(3))
    product, square, rest = Local(one, dtype), Local(base[()], dtype), Local(exponent[()], dtype)
    with T.While(rest.value > zero):
        with when(tirx.truncmod(rest.value, two) == one):
            product.set(product.value * square.value)
        square.set(square.value * square.value)
        rest.set(tirx.truncdiv(rest.value, two))
    if dtype.startswith("uint"):
        power[()] = product.value
        return
    is_unit = tirx.Or(base[()] == one, base[()] == -one)
    is_one = tirx.Or(base[()] == one, tirx.truncmod(exponent[()], two) == zero)
    inverse = tirx.Select(is_unit, tirx.Select(is_one, one, -one), zero)
    power[()] = tirx.Select(exponent[()] < zero, inverse, product.value)


def _divisor(left: View, right: View, divisor: View) -> None:
    divisor[()] = _greatest(left, right).value


def _multiple(left: View, right: View, multiple: View) -> None:
    """Divides by the greatest common divisor first, so that the product overflows later."""
    divisor = _greatest(left, right)
    safe = tirx.max(divisor.value, tirx.const(1, left.dtype))
    multiple[()] = tirx.abs(tirx.truncdiv(left[()], safe) * right[()])


def _greatest(left: View, right: View) -> Local:
    """The greatest common divisor, by Euclid's algorithm."""
    larger, smaller = (
        Local(tirx.abs(left[()]), left.dtype),
        Local(tirx.abs(right[()]), left.dtype),
    )
    with T.While(smaller.value > 0):
        rest = Local(tirx.truncmod(larger.value, smaller.value), left.dtype)
        larger.set(smaller.value)
        smaller.set(rest.value)
    return larger


RULES: Rules = rules_of(
    {
        "aten.add.Tensor": _scaled(relax.op.add, relax.op.logical_or),
        "aten.add.Scalar": _scaled_by_number(relax.op.add),
        "aten.sub.Tensor": _scaled(relax.op.subtract),
        "aten.sub.Scalar": _scaled_by_number(relax.op.subtract),
        "aten.rsub.Tensor": _scaled(_reversed(relax.op.subtract)),
        "aten.rsub.Scalar": _scaled_by_number(_reversed(relax.op.subtract)),
        "aten.mul.Tensor": _multiply,
        "aten.mul.Scalar": _multiply,
        "aten.neg.default": _negate,
        "aten.div.Tensor": promoted(relax.op.divide),
        "aten.div.Scalar": promoted(relax.op.divide),
        "aten.div.Tensor_mode": _divide_mode,
        "aten.div.Scalar_mode": _divide_mode,
        "aten.floor_divide.default": _floor_divide,
        "aten.floor_divide.Scalar": _floor_divide,
        "aten.remainder.Tensor": _remainder,
        "aten.remainder.Scalar": _remainder,
        "aten.remainder.Scalar_Tensor": _remainder,
        "aten.fmod.Tensor": _fmod,
        "aten.fmod.Scalar": _fmod,
        "aten.pow.Tensor_Tensor": _power,
        "aten.pow.Tensor_Scalar": _power,
        "aten.pow.Scalar": _power,
        "aten.gcd.default": _integer_pairs(_divisor),
        "aten.lcm.default": _integer_pairs(_multiple),
    }
)
