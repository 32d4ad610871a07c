"""Error functions and modified Bessel functions, each as one tensor expression.

Sources: M. Giles, "Approximating the erfinv function" (2010), followed by two Newton steps; NIST Digital
Library of Mathematical Functions (DLMF), 7.9 (the scaled complementary error function), 10.25 and 10.40
(modified Bessel functions).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from tvm import tirx

from worker.compiler.translation.element_functions import (
    Element,
    constant_like,
    elementwise,
    let,
    library_function,
    polynomial,
)
from worker.compiler.translation.rule import Decomposition, Rules, rules_of

_NEAR = 15.0
"""Up to here the Bessel functions use the power series, beyond it the asymptotic expansion."""
_FRACTIONS = 40
"""Levels of the continued fraction, which is used beyond 3."""
_NEAR_ZERO = (
    (-0.140543331, 0.914624893, -1.645349621, 0.886226899),
    (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0),
)
_NEAR_ONE = ((1.641345311, 3.429567803, -1.624906493, -1.970840454), (1.637067800, 3.543889200, 1.0))


def _erfinv(y: Any) -> Any:
    """Calls are bound outside of ``Select``, because TVM does not share them within it."""
    magnitude = tirx.abs(y)
    square = y * y
    inner = y * polynomial(square, _NEAR_ZERO[0]) / polynomial(square, _NEAR_ZERO[1])

    def first(depth: Any) -> Any:
        size = polynomial(depth, _NEAR_ONE[0]) / polynomial(depth, _NEAR_ONE[1])
        outer = tirx.Select(y < 0, -size, size)
        return tirx.Select(magnitude <= 0.7, inner, outer)

    def bounded(refined: Any) -> Any:
        infinite = tirx.Select(y < 0, constant_like(-math.inf, y), constant_like(math.inf, y))
        beyond = tirx.Select(magnitude == 1, infinite, constant_like(math.nan, y))
        return tirx.Select(magnitude < 1, refined, beyond)

    def refined(x: Any) -> Any:
        return let(_newton(x, y), lambda x: let(_newton(x, y), bounded))

    depth = tirx.sqrt(-tirx.log((constant_like(1, y) - magnitude) * 0.5))
    return let(depth, lambda depth: let(first(depth), refined))


def _newton(x: Any, y: Any) -> Any:
    return x - (tirx.erf(x) - y) / (constant_like(2 / math.sqrt(math.pi), x) * tirx.exp(-x * x))


def _bessel(order: int, is_scaled: bool) -> Element:
    """The modified Bessel function of the first kind of order 0 or 1; if scaled, times ``exp(-|x|)``."""

    def compute(x: Any) -> Any:
        magnitude = tirx.abs(x)
        near, far = _near_series(x, order), _far_series(magnitude, order)
        if order:
            far = tirx.Select(x < 0, -far, far)
        if is_scaled:
            near = near * tirx.exp(-magnitude)
        else:
            half = tirx.exp(magnitude * 0.5)
            far = let(half, lambda half: half * far * half)
        return tirx.Select(magnitude <= _NEAR, near, far)

    return compute


def _near_series(x: Any, order: int) -> Any:
    """``(x / 2)^n Σ (x² / 4)^k / (k! (k + n)!)`` (DLMF 10.25.2), by Horner's scheme."""
    quarter = x * x * 0.25
    total = constant_like(1, x)
    for k in range(40, 0, -1):
        total = constant_like(1, x) + quarter * total * constant_like(1 / (k * (k + order)), x)
    return total * x * 0.5 if order else total


def _far_series(x: Any, order: int) -> Any:
    """Scaled: ``(1 - (m - 1) / (8 x) (1 - (m - 9) / (16 x) (…))) / √(2 π x)``, ``m = 4 n²``.

    Source: DLMF 10.40.1.
    """
    near = tirx.Select(x <= _NEAR, constant_like(_NEAR, x), x)
    total = constant_like(1, x)
    for k in range(24, 0, -1):
        share = (4 * order * order - (2 * k - 1) ** 2) / (8 * k)
        total = constant_like(1, x) - total * constant_like(share, x) / near
    return total / (tirx.sqrt(near) * constant_like(math.sqrt(2 * math.pi), x))


def _erfcx(x: Any) -> Any:
    """``exp(x²) erfc(x)``; beyond 3, before ``exp(x²)`` overflows, by a continued fraction (DLMF 7.9.1)."""
    direct = tirx.exp(x * x) * library_function("erfc")(x)
    far = tirx.max(x, constant_like(3, x))
    total = far
    for level in range(_FRACTIONS, 0, -1):
        total = far + constant_like(level / 2, x) / total
    fraction = constant_like(1 / math.sqrt(math.pi), x) / total
    return tirx.Select(x > 3, fraction, direct)


def _normal_quantile(share: torch.Tensor) -> torch.Tensor:
    """``√2 erfinv(2 p - 1)`` in float64, which keeps small ``p`` beside 1."""
    return (torch.erfinv(share.double() * 2 - 1) * math.sqrt(2)).to(
        share.dtype if share.is_floating_point() else torch.get_default_dtype()
    )


RULES: Rules = (
    *rules_of(
        {
            "aten.erfc.default": elementwise(library_function("erfc")),
            "aten.erfinv.default": elementwise(_erfinv),
            "aten.i0.default": elementwise(_bessel(0, is_scaled=False)),
            "aten.special_erfcx.default": elementwise(_erfcx, "float64"),
            "aten.special_i0e.default": elementwise(_bessel(0, is_scaled=True)),
            "aten.special_i1.default": elementwise(_bessel(1, is_scaled=False)),
            "aten.special_i1e.default": elementwise(_bessel(1, is_scaled=True)),
            "aten.special_modified_bessel_i0.default": elementwise(_bessel(0, is_scaled=False)),
            "aten.special_modified_bessel_i1.default": elementwise(_bessel(1, is_scaled=False)),
        }
    ),
    Decomposition("aten.special_ndtri.default", _normal_quantile),
)
