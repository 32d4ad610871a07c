"""Divisors and bits of whole numbers, and the parts of floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.matrix_loops import Cell, Part, Result, each_matrix
from worker.compiler.translation.rule import Rules, Translate, rules_of
from worker.compiler.translation.rules.arithmetic import broadcast
from worker.compiler.translation.untranslatable import UntranslatableError


def _joined(body: Callable[..., None]) -> Translate:
    """For two tensors that broadcast, element by element."""

    def translate(emit: Emitter, left: relax.Expr, right: relax.Expr) -> relax.Expr:
        shape = emit.shape
        operands = [emit(relax.op.broadcast_to(emit.cast(one, emit.dtype), shape)) for one in (left, right)]
        return each_matrix(emit, body, operands, [Result((), emit.dtype)], rank=0)[0]

    return translate


def _divisor(left: Part, right: Part, divisor: Part) -> None:
    divisor[()] = _greatest(left, right).value


def _multiple(left: Part, right: Part, multiple: Part) -> None:
    """By way of the divisor, so that the product does not overflow first."""
    divisor = _greatest(left, right)
    safe = tirx.max(divisor.value, tirx.const(1, left.dtype))
    multiple[()] = tirx.abs(tirx.truncdiv(left[()], safe) * right[()])


def _greatest(left: Part, right: Part) -> Cell:
    """By Euclid."""
    larger, smaller = Cell(tirx.abs(left[()]), left.dtype), Cell(tirx.abs(right[()]), left.dtype)
    with T.While(smaller.value > 0):
        rest = Cell(tirx.truncmod(larger.value, smaller.value), left.dtype)
        larger.set(smaller.value)
        smaller.set(rest.value)
    return larger


def _shift(operation: Callable[[Any, Any], Any]) -> Translate:
    def translate(emit: Emitter, left: relax.Expr, right: relax.Expr) -> relax.Expr:
        operands = (emit.cast(one, emit.dtype) for one in (left, right))
        return emit.tensor_expression(broadcast(operation), *operands)

    return translate


_BITS_OF_FRACTION = {"float32": 23, "float64": 52}


def _frexp(emit: Emitter, data: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """A fraction of at least a half and below one, and the power of two that it stands before."""
    dtype = dtype_of(data)
    if dtype not in _BITS_OF_FRACTION:
        raise UntranslatableError(f"frexp of {dtype}")
    bits = _BITS_OF_FRACTION[dtype]
    fraction = emit.tensor_expression(_each(lambda x: _split(x, bits)[0]), data)
    return fraction, emit.tensor_expression(_each(lambda x: _split(x, bits)[1]), data)


def _split(x: Any, bits: int) -> tuple[Any, Any]:
    """Numbers without a leading one are scaled first; zeros, infinities and NaN have no exponent."""
    dtype = str(x.ty.dtype)
    integer = dtype.replace("float", "int")
    width = 8 if bits == 23 else 11
    bias, ones = 2 ** (width - 1) - 2, 2**width - 1

    def const(value: int) -> Any:
        return tirx.const(value, integer)

    def exponent_of(value: Any) -> Any:
        return (tirx.reinterpret(integer, value) >> const(bits)) & const(ones)

    is_small = exponent_of(x) == const(0)
    scaled = tirx.Select(is_small, x * tirx.const(2.0**bits, dtype), x)
    is_plain = tirx.all(x != tirx.const(0, dtype), exponent_of(x) != const(ones))
    kept = tirx.reinterpret(integer, scaled) & const(~(ones << bits))
    fraction = tirx.reinterpret(dtype, kept | const(bias << bits))
    exponent = exponent_of(scaled) - const(bias) - tirx.Select(is_small, const(bits), const(0))
    return tirx.Select(is_plain, fraction, x), tirx.Select(is_plain, exponent, const(0)).astype("int32")


def _each(compute: Callable[[Any], Any]) -> Callable[[te.Tensor], te.Tensor]:
    return lambda data: te.compute(data.shape, lambda *at: compute(data(*at)), name="parts")


def _bits(emit: Emitter, data: relax.Expr, dtype: Any) -> relax.Expr:
    """The same memory as numbers of another kind, of the same width."""
    wanted, given = emit.dtype, emit.node.args[0].meta["val"].dtype
    if emit.results[0].dtype.itemsize != given.itemsize:
        raise UntranslatableError(f"{dtype_of(data)} in memory as {wanted}, which is of another width")
    return emit.tensor_expression(_each(lambda x: tirx.reinterpret(wanted, x)), data)


RULES: Rules = rules_of(
    {
        "aten.__lshift__.Tensor": _shift(lambda left, right: left << right),
        "aten.__rshift__.Tensor": _shift(lambda left, right: left >> right),
        "aten.bitwise_left_shift.Tensor": _shift(lambda left, right: left << right),
        "aten.bitwise_right_shift.Tensor": _shift(lambda left, right: left >> right),
        "aten.frexp.Tensor": _frexp,
        "aten.gcd.default": _joined(_divisor),
        "aten.lcm.default": _joined(_multiple),
        "aten.view.dtype": _bits,
    }
)
