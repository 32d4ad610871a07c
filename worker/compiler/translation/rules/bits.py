"""Bitwise operators, shifts, and the sign, exponent and fraction of floats."""

from __future__ import annotations

import operator
from typing import Any

import torch
from tvm import relax, tirx

from worker.compiler.translation.element_functions import each, library_function, pairwise
from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.rule import Decomposition, Rules, Translate, rules_of
from worker.compiler.translation.rules.arithmetic import Binary, promoted
from worker.compiler.translation.rules.comparisons import truth


def _bitwise(on_integers: Binary, on_booleans: Binary) -> Translate:
    def translate(emit: Emitter, left: Any, right: Any) -> Any:
        operation = on_booleans if emit.dtype == "bool" else on_integers
        return promoted(operation)(emit, left, right)

    return translate


def _bitwise_not(emit: Emitter, data: relax.Expr) -> relax.Expr:
    return relax.op.logical_not(data) if emit.dtype == "bool" else relax.op.bitwise_not(data)


def _bits(emit: Emitter, data: relax.Expr, dtype: Any) -> relax.Expr:
    """Reinterpret the bits as another dtype of the same width."""
    wanted, given = emit.dtype, emit.node.args[0].meta["val"].dtype
    if emit.results[0].dtype.itemsize != given.itemsize:
        raise UntranslatableError(f"a view of {dtype_of(data)} as {wanted}, which has another width")
    return emit.tensor_expression(each(lambda x: tirx.reinterpret(wanted, x)), data)


_BITS_OF_FRACTION = {"float32": 23, "float64": 52}


def _frexp(emit: Emitter, data: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """A fraction in [0.5, 1), and the exponent of the power of two that multiplies it."""
    dtype = dtype_of(data)
    if dtype not in _BITS_OF_FRACTION:
        raise UntranslatableError(f"frexp of {dtype}")
    bits = _BITS_OF_FRACTION[dtype]
    fraction = emit.tensor_expression(each(lambda x: _split(x, bits)[0]), data)
    return fraction, emit.tensor_expression(each(lambda x: _split(x, bits)[1]), data)


def _split(x: Any, bits: int) -> tuple[Any, Any]:
    """Read the bit fields. Subnormal numbers are scaled first; zeros, infinities and NaN get exponent 0."""
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


def _sign(emit: Emitter, data: relax.Expr) -> relax.Expr:
    if emit.dtype.startswith(("uint", "bool")):
        return emit.cast(truth(emit, data), emit.dtype)
    return relax.op.sign(data)


def _signbit(x: torch.Tensor) -> torch.Tensor:
    """The sign of a zero shows only in its reciprocal."""
    return (x < 0) | ((x == 0) & (x.reciprocal() < 0)) if x.is_floating_point() else x < 0


def _copysign(x: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
    dtype = torch.result_type(x, sign)
    size = x.abs().to(dtype if dtype.is_floating_point else torch.get_default_dtype())
    return torch.where(_signbit(sign), -size, size)


def _copysign_of_number(x: torch.Tensor, sign: float) -> torch.Tensor:
    return _copysign(x, torch.full((), sign))


def _ldexp(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    return x * torch.pow(2.0, exponent)


RULES: Rules = (
    *rules_of(
        {
            **{
                f"aten.bitwise_{name}.{overload}": _bitwise(on_integers, on_booleans)
                for name, on_integers, on_booleans in (
                    ("and", relax.op.bitwise_and, relax.op.logical_and),
                    ("or", relax.op.bitwise_or, relax.op.logical_or),
                    ("xor", relax.op.bitwise_xor, relax.op.logical_xor),
                )
                for overload in ("Tensor", "Scalar", "Scalar_Tensor")
            },
            "aten.bitwise_not.default": _bitwise_not,
            **{
                f"aten.{name}": pairwise(shift)
                for side, shift in (("left", operator.lshift), ("right", operator.rshift))
                for name in (
                    f"__{side[0]}shift__.Tensor",
                    f"__{side[0]}shift__.Scalar",
                    f"bitwise_{side}_shift.Tensor",
                    f"bitwise_{side}_shift.Tensor_Scalar",
                    f"bitwise_{side}_shift.Scalar_Tensor",
                )
            },
            "aten.frexp.Tensor": _frexp,
            "aten.sign.default": _sign,
            "aten.nextafter.default": pairwise(library_function("nextafter")),
            "aten.view.dtype": _bits,
        }
    ),
    Decomposition("aten.copysign.Scalar", _copysign_of_number),
    Decomposition("aten.copysign.Tensor", _copysign),
    Decomposition("aten.ldexp.Tensor", _ldexp),
    Decomposition("aten.signbit.default", _signbit),
)
