"""Elementary functions, activations, and conversions between dtypes.

torch computes them on integers as on floats. TVM's operators refuse integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tvm import relax, tirx

from worker.compiler.translation.dtypes import is_floating, wide
from worker.compiler.translation.element_functions import each, elementwise, let, pairwise
from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.rule import Decomposition, Rules, Translate, rules_of
from worker.compiler.translation.rules.comparisons import truth

Unary = Callable[[relax.Expr], relax.Expr]


def _floating(operation: Unary) -> Translate:
    def translate(emit: Emitter, data: relax.Expr) -> relax.Expr:
        return operation(emit.cast(data, emit.dtype))

    return translate


def _only_on_floats(operation: Unary) -> Translate:
    """A rule for rounding, which leaves integers as they are."""

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


def _log2(x: torch.Tensor) -> torch.Tensor:
    """The exponent, and the logarithm of a fraction around 1: powers of two are exact."""
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    fraction, exponent = torch.frexp(x if dtype == torch.float64 else x.float())
    is_small = fraction < math.sqrt(0.5)
    near = torch.where(is_small, 2 * fraction, fraction)
    return (torch.where(is_small, exponent - 1, exponent) + torch.log(near) * math.log2(math.e)).to(dtype)


def _log1p(emit: Emitter, data: relax.Expr) -> relax.Expr:
    """Keeps the digits of ``x`` that ``1 + x`` would lose."""
    return emit.tensor_expression(each(tirx.log1p), emit.cast(data, emit.dtype))


def _expm1(x: Any) -> Any:
    """``exp(x) - 1``, accurate near zero: ``(u - 1) * x / log(u)`` with ``u = exp(x)``.

    Source: W. Kahan's method in N. Higham, "Accuracy and Stability of Numerical Algorithms", section 1.14.1.
    """
    one, infinity = (tirx.const(number, x.ty.dtype) for number in (1.0, math.inf))

    def from_power(u: Any) -> Any:
        difference = u - one
        is_lost = difference == 0
        is_far = tirx.any(difference == -one, u == infinity)
        exact = difference * (x / tirx.Select(is_lost, one, tirx.log(u)))
        return tirx.Select(is_lost, x, tirx.Select(is_far, difference, exact))

    return let(tirx.exp(x), from_power)


def _elu(emit: Emitter, data: relax.Expr, alpha: float, scale: float, input_scale: float) -> relax.Expr:
    """``elu``; its scales also give ``selu`` and ``celu``."""
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
    """Cast to the dtype of the result; a boolean is true where the element is not zero.

    Negative floats wrap to unsigned integers, which LLVM leaves undefined: they become integers first.
    """
    if emit.dtype == "bool":
        return truth(emit, data)
    if emit.dtype.startswith("uint") and is_floating(dtype_of(data)):
        data = emit.cast(data, "int64" if emit.dtype in ("uint32", "uint64") else "int32")
    return emit.cast(data, emit.dtype)


def _hypot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Scaled so that no square overflows. If one side is infinite, so is the result, even beside NaN."""
    larger, smaller = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    ratio = torch.where(larger == smaller, 1.0, smaller / torch.where(larger == 0, 1.0, larger))
    return torch.where(x.isinf() | y.isinf(), torch.inf, larger * torch.sqrt(1 + ratio * ratio))


def _angle(x: torch.Tensor) -> torch.Tensor:
    """For real numbers: 0, or π below zero."""
    return torch.where(x.isnan(), x, torch.where(x < 0, math.pi, 0.0))


def _log_of_sum(
    x: torch.Tensor,
    y: torch.Tensor,
    power: Callable[[torch.Tensor], torch.Tensor],
    log_of_more: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The log of the sum of two powers, from their exponents: the larger one plus what the other adds.

    torch's decomposition uses each operand many times, and TVM does not finish simplifying it.
    """
    gap = torch.where(x == y, 0.0, (x - y).abs())
    return torch.maximum(x, y) + log_of_more(power(-gap))


def _logaddexp(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _log_of_sum(x, y, torch.exp, torch.log1p)


def _logaddexp2(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _log_of_sum(x, y, torch.exp2, lambda share: torch.log1p(share) / math.log(2))


def _randomized_relu(
    x: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> Any:
    """At inference the slope is the mean of the bounds."""
    if training:
        return NotImplemented
    return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise


_FLOATING = {
    name: getattr(relax.op, name)
    for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log", "rsqrt",
        "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh",
    )
}  # fmt: skip

RULES: Rules = (
    *rules_of(
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
            "aten.log10.default": _logarithm(0.4342944819032518),
            "aten.log1p.default": _log1p,
            "aten.expm1.default": elementwise(_expm1),
            "aten.elu.default": _elu,
            "aten.exp2.default": _exp2,
            "aten.relu.default": _relu,
            "aten.atan2.default": pairwise(tirx.atan2),
            "aten._to_copy.default": _to,
        }
    ),
    Decomposition("aten.angle.default", _angle),
    Decomposition("aten.hypot.default", _hypot),
    Decomposition("aten.log2.default", _log2),
    Decomposition("aten.logaddexp.default", _logaddexp),
    Decomposition("aten.logaddexp2.default", _logaddexp2),
    Decomposition("aten.rrelu_with_noise_functional.default", _randomized_relu),
)
