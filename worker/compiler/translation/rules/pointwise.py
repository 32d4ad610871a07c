"""Functions of one element, and conversions between dtypes.

torch computes them on integers as on floats; TVM's operators refuse integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, tirx

from worker.compiler.translation.dtypes import is_floating, wide
from worker.compiler.translation.elements import each, named
from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.rule import Rules, Translate, rules_of
from worker.compiler.translation.rules.arithmetic import truth

Unary = Callable[[relax.Expr], relax.Expr]


def _floating(operation: Unary) -> Translate:
    def translate(emit: Emitter, data: relax.Expr) -> relax.Expr:
        return operation(emit.cast(data, emit.dtype))

    return translate


def _only_on_floats(operation: Unary) -> Translate:
    """What leaves integers as they are."""

    def translate(emit: Emitter, data: relax.Expr) -> relax.Expr:
        return operation(data) if is_floating(dtype_of(data)) else data

    return translate


def _classified(operation: Unary, of_integers: bool) -> Translate:
    def translate(emit: Emitter, data: relax.Expr) -> relax.Expr:
        if is_floating(dtype_of(data)):
            return operation(emit.cast(data, wide(dtype_of(data))))
        return relax.op.full_like(data, relax.const(of_integers, "bool"), "bool")

    return translate


def _reciprocal(emit: Emitter, data: relax.Expr) -> relax.Expr:
    return relax.op.divide(relax.const(1.0, emit.dtype), emit.cast(data, emit.dtype))


def _logarithm(base: float) -> Translate:
    def translate(emit: Emitter, data: relax.Expr) -> relax.Expr:
        natural = emit(relax.op.log(emit.cast(data, emit.dtype)))
        return relax.op.multiply(natural, relax.const(base, emit.dtype))

    return translate


def _log1p(emit: Emitter, data: relax.Expr) -> relax.Expr:
    """Exact where ``1 + x`` loses the digits of ``x``."""
    return emit.tensor_expression(each(tirx.log1p), emit.cast(data, emit.dtype))


def _expm1(emit: Emitter, data: relax.Expr) -> relax.Expr:
    widened = emit.cast(data, wide(emit.dtype))
    return emit.cast(emit.tensor_expression(each(_less_one), widened), emit.dtype)


def _less_one(x: Any) -> Any:
    """``exp(x) - 1``, exact near zero: ``(u - 1) * x / log(u)``, u = exp(x).

    Source: W. Kahan, by way of N. Higham, "Accuracy and stability of numerical algorithms", 1.14.1.
    """
    one, infinity = (tirx.const(number, x.ty.dtype) for number in (1.0, math.inf))

    def from_power(u: Any) -> Any:
        difference = u - one
        is_lost = difference == 0
        is_far = tirx.any(difference == -one, u == infinity)
        exact = difference * (x / tirx.Select(is_lost, one, tirx.log(u)))
        return tirx.Select(is_lost, x, tirx.Select(is_far, difference, exact))

    return named(tirx.exp(x), from_power)


def _elu(emit: Emitter, data: relax.Expr, alpha: float, scale: float, input_scale: float) -> relax.Expr:
    """``elu`` with its scales, which make it ``selu`` and ``celu``."""
    alpha_, scale_, input_scale_ = (
        relax.const(float(one), emit.dtype) for one in (alpha, scale, input_scale)
    )
    zero, one = relax.const(0.0, emit.dtype), relax.const(1.0, emit.dtype)
    raised = emit(relax.op.exp(emit(relax.op.multiply(data, input_scale_))))
    curve = emit(relax.op.multiply(alpha_, emit(relax.op.subtract(raised, one))))
    unscaled = emit(relax.op.where(emit(relax.op.greater(data, zero)), data, curve))
    return relax.op.multiply(scale_, unscaled)


def _exp2(emit: Emitter, data: relax.Expr) -> relax.Expr:
    return emit.tensor_expression(each(tirx.exp2), emit.cast(data, emit.dtype))


def _relu(emit: Emitter, data: relax.Expr) -> relax.Expr:
    return relax.op.nn.relu(data)


def _to(emit: Emitter, data: relax.Expr) -> relax.Expr:
    """To the dtype of the result; to booleans, whether an element is not zero."""
    return truth(emit, data) if emit.dtype == "bool" else emit.cast(data, emit.dtype)


_FLOATING = {
    name: getattr(relax.op, name)
    for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log", "rsqrt",
        "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh",
    )
}  # fmt: skip

RULES: Rules = rules_of(
    {
        **{f"aten.{name}.default": _floating(operation) for name, operation in _FLOATING.items()},
        **{
            f"aten.{name}.default": _only_on_floats(getattr(relax.op, name))
            for name in ("ceil", "floor", "round", "trunc")
        },
        "aten.isnan.default": _classified(relax.op.isnan, of_integers=False),
        "aten.isinf.default": _classified(relax.op.isinf, of_integers=False),
        "aten.isfinite.default": _classified(relax.op.isfinite, of_integers=True),
        "aten.reciprocal.default": _reciprocal,
        "aten.log2.default": _logarithm(1.4426950408889634),
        "aten.log10.default": _logarithm(0.4342944819032518),
        "aten.log1p.default": _log1p,
        "aten.expm1.default": _expm1,
        "aten.elu.default": _elu,
        "aten.exp2.default": _exp2,
        "aten.relu.default": _relu,
        "aten._to_copy.default": _to,
    }
)
