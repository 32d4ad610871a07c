"""The gamma function and its relatives: incomplete gamma, digamma, polygamma, Hurwitz zeta.

The incomplete gamma functions and zeta are loops in float64 that take as many terms as an element needs.

Sources: NIST Digital Library of Mathematical Functions (DLMF), section 5.11 (digamma), 8.11.4 (series of the
incomplete gamma function), 8.9.2 (its continued fraction), 25.11 (Hurwitz zeta); W. Press et al., "Numerical
Recipes", 3rd ed., section 6.2.1 (quadrature for large orders).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.batch_loops import Local, Result, View, map_batch, when
from worker.compiler.translation.element_functions import (
    constant_like,
    elementwise,
    let,
    library_function,
    polynomial,
)
from worker.compiler.translation.emitter import Emitter
from worker.compiler.translation.rule import Rules, Translate, rules_of

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
SHIFT = 10
"""From here on, the asymptotic series in Bernoulli numbers are exact to the last digits of float64."""
_FLOAT = "float64"
_LARGE = 100.0
"""From this order on, quadrature; below it, the series and the continued fraction converge in time."""
_MOST_TERMS = 500
_ROUNDING = 1e-17
_SMALL = 1e-3
"""Below this, ``u - log1p(u)`` cancels and a Taylor series replaces it."""
_MOST_STEPS = 2.0**24
"""Most recurrence steps; float32 cannot tell larger integers from their neighbors."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(18)


def _share(place: int) -> Translate:
    def translate(emit: Emitter, order: relax.Expr, bound: relax.Expr) -> relax.Expr:
        shares = _each_pair(emit, _shares, (order, bound), 2)
        return emit.cast(shares[place], emit.dtype)

    return translate


def _each_pair(
    emit: Emitter, body: Callable[..., None], operands: tuple[Any, Any], results: int
) -> list[relax.Expr]:
    """Apply a loop body to each pair of elements of two tensors or numbers that broadcast."""
    whole = [emit(relax.op.broadcast_to(emit.cast(one, _FLOAT), emit.shape)) for one in operands]
    return map_batch(emit, body, whole, [Result((), _FLOAT)] * results, rank=0)


def _shares(order: View, bound: View, below: View, above: View) -> None:
    """The regularized lower and upper incomplete gamma functions, ``P(a, x)`` and ``Q(a, x)``.

    For ``x < a + 1`` the series gives ``P``, else the continued fraction gives ``Q``; for large ``a``,
    quadrature gives the smaller one. The other is its complement.
    """
    a, x = order[()], bound[()]
    is_finite = tirx.all(a > 0, x > 0, a < math.inf, x < math.inf)
    is_series = x < a + 1
    below[()] = _limit(a, x)
    above[()] = 1 - below[()]
    with when(tirx.all(is_finite, a < _LARGE, is_series)):
        below[()] = _series(a, x) * _density(a, x)
        above[()] = 1 - below[()]
    with when(tirx.all(is_finite, a < _LARGE, tirx.Not(is_series))):
        above[()] = _fraction(a, x) * _density(a, x)
        below[()] = 1 - above[()]
    with when(tirx.all(is_finite, a >= _LARGE)):
        is_above = x > a - 1
        rest = Local(_integral(a, x, is_above), _FLOAT)
        below[()] = tirx.Select(is_above, 1 - rest.value, rest.value)
        above[()] = tirx.Select(is_above, rest.value, 1 - rest.value)


def _limit(a: Any, x: Any) -> Any:
    """``P(a, x)`` where a or x is zero or infinite. Below zero it is NaN, as in torch."""
    none, whole, unknown = (tirx.const(value, _FLOAT) for value in (0.0, 1.0, math.nan))
    is_endless = x == math.inf
    of_endless_order = tirx.Select(is_endless, unknown, none)
    of_order = tirx.Select(a == math.inf, of_endless_order, tirx.Select(is_endless, whole, unknown))
    positive = tirx.Select(x == 0, none, of_order)
    found = tirx.Select(a == 0, tirx.Select(x > 0, whole, unknown), positive)
    return tirx.Select(tirx.any(a < 0, x < 0), unknown, found)


def _density(a: Any, x: Any) -> Any:
    """``x^a exp(-x) / Γ(a)``."""
    return tirx.exp(a * tirx.log(x) - x - tirx.call_pure_extern(_FLOAT, "lgamma", a))


def _series(a: Any, x: Any) -> Any:
    """``1/a + x / (a (a + 1)) + x² / (a (a + 1) (a + 2)) + …``

    Stops at the first negligible term. Source: DLMF 8.11.4.
    """
    term, total = Local(1 / a, _FLOAT), Local(1 / a, _FLOAT)
    with T.serial(1, _MOST_TERMS) as n, when(term.value > total.value * _ROUNDING):
        term.set(term.value * x / (a + n.astype(_FLOAT)))
        total.set(total.value + term.value)
    return total.value


def _fraction(a: Any, x: Any) -> Any:
    """``1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - …))`` (DLMF 8.9.2), by Lentz's modified method.

    Each step multiplies the value so far by the ratio of two convergents, until that ratio is 1.
    """
    level = Local(x + 1 - a, _FLOAT)
    ratio, inverse = Local(1e300, _FLOAT), Local(1 / level.value, _FLOAT)
    total, step = Local(inverse.value, _FLOAT), Local(0.0, _FLOAT)
    with T.serial(1, _MOST_TERMS) as n, when(tirx.abs(step.value - 1) > _ROUNDING):
        place = n.astype(_FLOAT)
        numerator = place * (a - place)
        level.set(level.value + 2)
        inverse.set(1 / (numerator * inverse.value + level.value))
        ratio.set(level.value + numerator / ratio.value)
        step.set(ratio.value * inverse.value)
        total.set(total.value * step.value)
    return total.value


def _integral(a: Any, x: Any, is_above: Any) -> Any:
    """``Q(a, x)`` if ``is_above``, else ``P(a, x)``, by Gauss-Legendre quadrature from x into the tail.

    Positions count standard deviations from the peak of the integrand, which is nearly normal there.
    """
    peak, deviation = Local(a - 1, _FLOAT), Local(tirx.sqrt(a - 1), _FLOAT)
    start = Local((x - a + 1) / deviation.value, _FLOAT)
    upper = tirx.max(start.value + 6, 11.5)
    lower = tirx.max(tirx.min(start.value - 5, -7.5), -deviation.value)
    span = Local(tirx.Select(is_above, upper - start.value, lower - start.value), _FLOAT)
    total = Local(0.0, _FLOAT)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        place = Local((start.value + span.value * ((1 + node) / 2)) / deviation.value, _FLOAT)
        excess = _excess(tirx.max(place.value, -1.0))
        total.set(total.value + tirx.exp(-peak.value * excess) * (weight / 2))
    scale = 1 + (1 / 12 + (1 / 288 - 139 / 51840 / peak.value) / peak.value) / peak.value
    return total.value * tirx.abs(span.value) / (scale * math.sqrt(2 * math.pi))


def _excess(u: Any) -> Any:
    """``u - log(1 + u)``."""
    near = u * u * (0.5 - u * (1 / 3 - u * (0.25 - u * 0.2)))
    return tirx.Select(tirx.abs(u) < _SMALL, near, u - tirx.log1p(u))


def hurwitz_zeta(emit: Emitter, order: Any, x: Any) -> relax.Expr:
    """``ζ(order, x)`` in float64, in the node's shape, by Euler-Maclaurin summation.

    Below zero, only integer orders are defined.

    Source: DLMF 25.11.7.
    """
    return _each_pair(emit, _hurwitz, (order, x), 1)[0]


def _hurwitz(order: View, bound: View, result: View) -> None:
    """``Σ (x + k)^-n``: terms up to the shift, then an integral and its Bernoulli corrections."""
    n, x = order[()], bound[()]
    far, total = Local(x, _FLOAT), Local(0.0, _FLOAT)
    steps = tirx.max(tirx.min(tirx.ceil(SHIFT - x), _MOST_STEPS), 0.0)
    with T.serial(0, steps.astype("int32")):
        total.set(total.value + tirx.power(far.value, -n))
        far.set(far.value + 1)
    power, square = (
        Local(tirx.power(far.value, -n), _FLOAT),
        Local(far.value * far.value, _FLOAT),
    )
    total.set(total.value + power.value * far.value / (n - 1) + power.value * 0.5)
    factor = Local(power.value * n / far.value, _FLOAT)
    for place, number in enumerate(BERNOULLI, 1):
        total.set(total.value + factor.value * (number / math.factorial(2 * place)))
        factor.set(factor.value * (n + (2 * place - 1)) * (n + 2 * place) / square.value)
    endless, unknown = (tirx.const(value, _FLOAT) for value in (math.inf, math.nan))
    is_pole = tirx.any(n == 1, tirx.all(x <= 0, x == tirx.floor(x)))
    is_known = tirx.all(n > 1, tirx.any(x > 0, n == tirx.floor(n)))
    of_order = tirx.Select(is_known, total.value, unknown)
    result[()] = tirx.Select(n < 1, unknown, tirx.Select(is_pole, endless, of_order))


def _zeta(emit: Emitter, order: Any, x: Any) -> relax.Expr:
    return emit.cast(hurwitz_zeta(emit, order, x), emit.dtype)


def _polygamma(emit: Emitter, order: int, data: relax.Expr) -> relax.Expr:
    """``(-1)^(n + 1) n! ζ(n + 1, x)`` (DLMF 5.15.1 and 25.11.12)."""
    if order == 0:
        return elementwise(_digamma)(emit, data)
    sign = (-1) ** (order + 1) * float(math.factorial(order))
    zeta = hurwitz_zeta(emit, relax.const(order + 1, "float64"), data)
    return emit.cast(emit(relax.op.multiply(zeta, relax.const(sign, "float64"))), emit.dtype)


def _digamma(x: Any) -> Any:
    """Below zero by reflection: ``ψ(1 - x) - π / tan(π x)`` (DLMF 5.5.4)."""
    one, pi = constant_like(1, x), constant_like(math.pi, x)
    rest = x - tirx.trunc(x)
    reflected = let(one - x, _digamma_of_positive) - pi / tirx.tan(pi * rest)
    below = tirx.Select(rest == 0, constant_like(math.nan, x), reflected)
    at_zero = -one / x
    return tirx.Select(x == 0, at_zero, tirx.Select(x < 0, below, _digamma_of_positive(x)))


def _digamma_of_positive(x: Any) -> Any:
    """``ψ(x + 10)`` by its asymptotic series (DLMF 5.11.2), less the terms of the recurrence in between."""
    total = constant_like(0, x)
    for step in range(SHIFT):
        total = total + constant_like(1, x) / (x + constant_like(step, x))

    def series(far: Any) -> Any:
        square = constant_like(1, x) / (far * far)
        terms = tuple(number / (2 * place) for place, number in enumerate(BERNOULLI, 1))
        return tirx.log(far) - constant_like(0.5, x) / far - square * polynomial(square, terms[::-1])

    is_far = x > SHIFT
    shifted = let(x + constant_like(SHIFT, x), series) - total
    return tirx.Select(is_far, series(x), shifted)


RULES: Rules = rules_of(
    {
        "aten.digamma.default": elementwise(_digamma),
        "aten.igamma.default": _share(0),
        "aten.igammac.default": _share(1),
        "aten.lgamma.default": elementwise(library_function("lgamma")),
        "aten.polygamma.default": _polygamma,
        "aten.special_zeta.default": _zeta,
        "aten.special_zeta.other_scalar": _zeta,
        "aten.special_zeta.self_scalar": _zeta,
    }
)
