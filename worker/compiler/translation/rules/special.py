"""Special functions of one element, each as one tensor expression.

Sources: M. Giles, "Approximating the erfinv function", and two of Newton's steps, for ``erfinv``;
NIST's Digital Library of Mathematical Functions, 5.11 (digamma), 10.25 and 10.40
(modified Bessel functions) and 7.9 (the scaled complement of erf).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, tirx

from worker.compiler.translation.dtypes import wide
from worker.compiler.translation.elements import Element, each, named
from worker.compiler.translation.emitter import Emitter
from worker.compiler.translation.rule import Rules, Translate, rules_of
from worker.compiler.translation.rules.arithmetic import broadcast
from worker.compiler.translation.rules.gammas import BERNOULLI, SHIFT, hurwitz_zeta

_NEAR = 15.0
"""Below it the Bessel functions are computed by their power series, above by the asymptotic one."""
_FRACTIONS = 40
"""Levels of the continued fraction, which is read from 3 on."""


def _elementwise(compute: Element, dtype: str | None = None) -> Translate:
    """A function of elements, in the result's dtype or in another one."""

    def translate(emit: Emitter, data: relax.Expr) -> relax.Expr:
        given = emit.cast(data, dtype or wide(emit.dtype))
        return emit.cast(emit.tensor_expression(each(compute), given), emit.dtype)

    return translate


def _of_library(name: str) -> Callable[..., Any]:
    """A function of the C library."""

    def call(*values: Any) -> Any:
        dtype = str(values[0].ty.dtype)
        return tirx.call_pure_extern(dtype, name if dtype == "float64" else f"{name}f", *values)

    return call


def _next_after(emit: Emitter, left: relax.Expr, right: relax.Expr) -> relax.Expr:
    operands = (emit.cast(one, emit.dtype) for one in (left, right))
    return emit.tensor_expression(broadcast(_of_library("nextafter")), *operands)


def _number(value: float, like: Any) -> Any:
    return tirx.const(value, like.ty.dtype)


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """By Horner's scheme, the highest power first."""
    total = _number(coefficients[0], x)
    for coefficient in coefficients[1:]:
        total = total * x + _number(coefficient, x)
    return total


_NEAR_ZERO = (
    (-0.140543331, 0.914624893, -1.645349621, 0.886226899),
    (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0),
)
_NEAR_ONE = ((1.641345311, 3.429567803, -1.624906493, -1.970840454), (1.637067800, 3.543889200, 1.0))


def _erfinv(y: Any) -> Any:
    """What is computed by calls is bound outside of ``Select``, within which they are not shared."""
    magnitude = tirx.abs(y)
    square = y * y
    inner = y * _polynomial(square, _NEAR_ZERO[0]) / _polynomial(square, _NEAR_ZERO[1])

    def first(depth: Any) -> Any:
        size = _polynomial(depth, _NEAR_ONE[0]) / _polynomial(depth, _NEAR_ONE[1])
        outer = tirx.Select(y < 0, -size, size)
        return tirx.Select(magnitude <= 0.7, inner, outer)

    def bounded(refined: Any) -> Any:
        infinite = tirx.Select(y < 0, _number(-math.inf, y), _number(math.inf, y))
        beyond = tirx.Select(magnitude == 1, infinite, _number(math.nan, y))
        return tirx.Select(magnitude < 1, refined, beyond)

    def refined(x: Any) -> Any:
        return named(_newton(x, y), lambda x: named(_newton(x, y), bounded))

    depth = tirx.sqrt(-tirx.log((_number(1, y) - magnitude) * 0.5))
    return named(depth, lambda depth: named(first(depth), refined))


def _newton(x: Any, y: Any) -> Any:
    return x - (tirx.erf(x) - y) / (_number(2 / math.sqrt(math.pi), x) * tirx.exp(-x * x))


def _digamma(x: Any) -> Any:
    """By reflection below zero, ``ψ(1 - x) - π / tan(π x)``."""
    one, pi = _number(1, x), _number(math.pi, x)
    rest = x - tirx.trunc(x)
    reflected = named(one - x, _digamma_of_positive) - pi / tirx.tan(pi * rest)
    below = tirx.Select(rest == 0, _number(math.nan, x), reflected)
    at_zero = -one / x
    return tirx.Select(x == 0, at_zero, tirx.Select(x < 0, below, _digamma_of_positive(x)))


def _digamma_of_positive(x: Any) -> Any:
    """``ψ(x + 10)`` less what lies between."""
    total = _number(0, x)
    for step in range(SHIFT):
        total = total + _number(1, x) / (x + _number(step, x))

    def series(far: Any) -> Any:
        square = _number(1, x) / (far * far)
        terms = tuple(number / (2 * place) for place, number in enumerate(BERNOULLI, 1))
        return tirx.log(far) - _number(0.5, x) / far - square * _polynomial(square, terms[::-1])

    is_far = x > SHIFT
    shifted = named(x + _number(SHIFT, x), series) - total
    return tirx.Select(is_far, series(x), shifted)


def _zeta(emit: Emitter, order: Any, x: Any) -> relax.Expr:
    return emit.cast(hurwitz_zeta(emit, order, x), emit.dtype)


def _polygamma(emit: Emitter, order: int, data: relax.Expr) -> relax.Expr:
    """``(-1)^(n + 1) n! ζ(n + 1, x)``."""
    if order == 0:
        return _elementwise(_digamma)(emit, data)
    sign = (-1) ** (order + 1) * float(math.factorial(order))
    zeta = hurwitz_zeta(emit, relax.const(order + 1, "float64"), data)
    return emit.cast(emit(relax.op.multiply(zeta, relax.const(sign, "float64"))), emit.dtype)


def _bessel(order: int, is_scaled: bool) -> Element:
    """The modified function of the first kind of order 0 or 1; scaled, times ``exp(-|x|)``."""

    def compute(x: Any) -> Any:
        magnitude = tirx.abs(x)
        near, far = _near_series(x, order), _far_series(magnitude, order)
        if order:
            far = tirx.Select(x < 0, -far, far)
        if is_scaled:
            near = near * tirx.exp(-magnitude)
        else:
            half = tirx.exp(magnitude * 0.5)
            far = named(half, lambda half: half * far * half)
        return tirx.Select(magnitude <= _NEAR, near, far)

    return compute


def _near_series(x: Any, order: int) -> Any:
    """``(x / 2)^n Σ (x² / 4)^k / (k! (k + n)!)``."""
    quarter = x * x * 0.25
    total = _number(1, x)
    for k in range(40, 0, -1):
        total = _number(1, x) + quarter * total * _number(1 / (k * (k + order)), x)
    return total * x * 0.5 if order else total


def _far_series(x: Any, order: int) -> Any:
    """Scaled: ``(1 - (m - 1) / (8 x) (1 - (m - 9) / (16 x) (…))) / √(2 π x)`` with ``m = 4 n²``."""
    near = tirx.Select(x <= _NEAR, _number(_NEAR, x), x)
    total = _number(1, x)
    for k in range(24, 0, -1):
        share = (4 * order * order - (2 * k - 1) ** 2) / (8 * k)
        total = _number(1, x) - total * _number(share, x) / near
    return total / (tirx.sqrt(near) * _number(math.sqrt(2 * math.pi), x))


def _erfcx(x: Any) -> Any:
    """``exp(x²) erfc(x)``; beyond 3, where the one overflows in time, by a continued fraction."""
    direct = tirx.exp(x * x) * _of_library("erfc")(x)
    far = tirx.max(x, _number(3, x))
    total = far
    for level in range(_FRACTIONS, 0, -1):
        total = far + _number(level / 2, x) / total
    fraction = _number(1 / math.sqrt(math.pi), x) / total
    return tirx.Select(x > 3, fraction, direct)


_FUNCTIONS: dict[str, Translate] = {
    "digamma": _elementwise(_digamma),
    "erfc": _elementwise(_of_library("erfc")),
    "erfinv": _elementwise(_erfinv),
    "i0": _elementwise(_bessel(0, is_scaled=False)),
    "lgamma": _elementwise(_of_library("lgamma")),
    "nextafter": _next_after,
    "polygamma": _polygamma,
    "special_erfcx": _elementwise(_erfcx, "float64"),
    "special_i0e": _elementwise(_bessel(0, is_scaled=True)),
    "special_i1": _elementwise(_bessel(1, is_scaled=False)),
    "special_i1e": _elementwise(_bessel(1, is_scaled=True)),
    "special_modified_bessel_i0": _elementwise(_bessel(0, is_scaled=False)),
    "special_modified_bessel_i1": _elementwise(_bessel(1, is_scaled=False)),
    "special_zeta": _zeta,
}

RULES: Rules = rules_of(
    {
        **{f"aten.{name}.default": translate for name, translate in _FUNCTIONS.items()},
        "aten.special_zeta.other_scalar": _zeta,
        "aten.special_zeta.self_scalar": _zeta,
    }
)
