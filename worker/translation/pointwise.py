"""Functions of one element, and conversions between dtypes.

torch computes them on integers as on floats; TVM's operators refuse integers.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax, te, tirx

from worker.translation.arithmetic import truth
from worker.translation.dtypes import is_floating, wide
from worker.translation.emitter import Emitter, dtype_of
from worker.translation.rule import Rules, Translate, rules_of

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
    """``log(1 + x)``, exact where ``1 + x`` loses the digits of ``x``: ``log(u) * x / (u - 1)``, u = 1 + x.

    Source: W. Kahan, by way of D. Goldberg, "What every computer scientist should know about floating-point
    arithmetic", theorem 4.
    """
    data, one = emit.cast(data, emit.dtype), relax.const(1.0, emit.dtype)
    u = emit(relax.op.add(data, one))
    difference = emit(relax.op.subtract(u, one))
    logarithm = emit(relax.op.log(u))
    is_lost = emit(relax.op.equal(difference, relax.const(0.0, emit.dtype)))
    ratio = emit(relax.op.divide(data, emit(relax.op.where(is_lost, one, difference))))
    exact = emit(relax.op.multiply(logarithm, ratio))
    is_infinite = emit(relax.op.equal(u, relax.const(float("inf"), emit.dtype)))
    return relax.op.where(is_lost, data, emit(relax.op.where(is_infinite, data, exact)))


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
    return emit.tensor_expression(_power_of_two, emit.cast(data, emit.dtype))


def _power_of_two(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *at: tirx.exp2(x(*at)), name="exp2")


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
        "aten.elu.default": _elu,
        "aten.exp2.default": _exp2,
        "aten.relu.default": _relu,
        "aten._to_copy.default": _to,
    }
)
