"""Powers, logarithms to other bases, hyperbolic functions and ``fmod`` as vector arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from math import log as log_of_number

from tvm import tirx

from worker.compiler.schedules.vector_math.exponentials import exp, log, small_exp
from worker.compiler.schedules.vector_math.numbers import (
    FLOAT32,
    FLOAT64,
    Expression,
    absolute,
    below_zero,
    exponential,
    format_of,
    horner,
    let,
    rounded,
    times_power_of_two,
)

_PRODUCTS: dict[float, Callable[[Expression], Expression]] = {
    -2.0: lambda x: format_of(x)(1.0) / (x * x),
    -1.0: lambda x: format_of(x)(1.0) / x,
    -0.5: lambda x: format_of(x)(1.0) / tirx.sqrt(x),
    0.5: tirx.sqrt,
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: (x * x) * (x * x),
}
"""Exponents whose power takes one or two instructions."""

_SINH = {
    "float32": ((2.03721912945e-4, 8.33028376239e-3, 1.66667160211e-1), (1.0,)),
    "float64": (
        (
            -7.89474443963537015605e-1,
            -1.63725857525983828727e2,
            -1.15614435765005216044e4,
            -3.51754964808151394800e5,
        ),
        (1.0, -2.77711081420602794433e2, 3.61578279834431989373e4, -2.11052978884890840399e6),
    ),
}
_LARGE = {"float32": 1e4, "float64": 1e8}
"""Beyond this, adding one under a root changes nothing."""
_LOG_2 = log_of_number(2.0)
_DIGITS = 28
_STEPS = 10
"""Quotients of float32 are below ``2 ** 277``."""


def power(base: Expression, exponent: Expression) -> Expression | None:
    """A product or a root for some constant exponents, else through float64 for float32; None for float64."""
    if isinstance(exponent, tirx.FloatImm) and float(exponent.value) in _PRODUCTS:
        return let(base, _PRODUCTS[float(exponent.value)])
    if format_of(base) is not FLOAT32:
        return None
    return let(base, lambda base: let(exponent, lambda exponent: _power(base, exponent)))


def exp2(x: Expression) -> Expression:
    """A power of two times ``e ** (r * log(2))``, ``|r|`` at most one half; zero where it is denormal."""
    form = format_of(x)
    lowest = float(1 - form.bias)
    highest = (form.bias + 1) * (1 - 0.5 ** (form.mantissa_bits + 1))

    def reduced(x: Expression) -> Expression:
        def scaled(n: Expression, exponent: Expression) -> Expression:
            return let((x - n) * form(_LOG_2), lambda r: times_power_of_two(small_exp(r), exponent))

        return rounded(x, scaled)

    return let(x, lambda x: exponential(x, lowest, highest, reduced))


def fmod(left: Expression, right: Expression) -> Expression | None:
    """The exact remainder, for float32 through float64, where products are exact; None for float64.

    A long division: each step computes ``_DIGITS`` binary digits of the quotient, the highest first. A step's
    digits may be off by one; the next step, or a final correction, makes up for it.
    """
    if format_of(left) is not FLOAT32:
        return None
    return let(left, lambda left: let(right, lambda right: _fmod(left, right)))


def log2(x: Expression) -> Expression:
    """``log(x) / log(2)``, in float64 for float32, so that powers of two give integers."""
    return _scaled_log(x, 1 / _LOG_2)


def log10(x: Expression) -> Expression:
    """``log(x) / log(10)``, as ``log2``."""
    return _scaled_log(x, 1 / log_of_number(10.0))


def log1p(x: Expression) -> Expression:
    """``log(u) * x / (u - 1)`` with ``u = 1 + x`` as rounded, so that its error cancels (W. Kahan)."""
    form = format_of(x)

    def corrected(x: Expression, u: Expression) -> Expression:
        value = log(u) * (x / (u - form(1.0)))
        return tirx.Select(u == form(1.0), x, tirx.Select(u > form(form.largest), u, value))

    return let(x, lambda x: let(x + form(1.0), lambda u: corrected(x, u)))


def sinh(x: Expression) -> Expression:
    """A rational function near zero, ``h - 1 / (4 * h)`` with ``h = e / 2`` elsewhere."""
    form = format_of(x)
    above, below = _SINH[form.dtype]

    def value(x: Expression, half: Expression) -> Expression:
        near = let(x * x, lambda z: x + x * (z * horner(z, above) / horner(z, below)))
        size = half - form(0.25) / half
        far = tirx.Select(x < form(0.0), -size, size)
        return tirx.Select(absolute(x) < form(1.0), near, far)

    return let(x, lambda x: let(exp(absolute(x), doublings=-1), lambda half: value(x, half)))


def cosh(x: Expression) -> Expression:
    """``h + 1 / (4 * h)`` with ``h = e / 2``."""
    form = format_of(x)
    return let(
        exp(absolute(x), doublings=-1),
        lambda half: half + form(0.25) / half,
    )


def asinh(x: Expression) -> Expression:
    """``log(1 + |x| + x * x / (1 + sqrt(x * x + 1)))``, with the sign."""
    form = format_of(x)

    def size(a: Expression) -> Expression:
        square = tirx.Select(a > form(_LARGE[form.dtype]), form(0.0), a * a)
        near = log1p(a + square / (form(1.0) + tirx.sqrt(square + form(1.0))))
        return _or_far(a, near)

    def signed(x: Expression) -> Expression:
        return let(let(absolute(x), size), lambda value: tirx.Select(x < form(0.0), -value, value))

    return let(x, signed)


def acosh(x: Expression) -> Expression:
    """``log(1 + t + sqrt(t * (x + 1)))`` with ``t = x - 1``."""
    form = format_of(x)

    def value(x: Expression) -> Expression:
        below = tirx.Select(x > form(_LARGE[form.dtype]), form(1.0), x)
        t = below - form(1.0)
        near = log1p(t + tirx.sqrt(t * (below + form(1.0))))
        return tirx.Select(x < form(1.0), form(nan), _or_far(x, near))

    return let(x, value)


def atanh(x: Expression) -> Expression:
    """``log(1 + 2 * |x| / (1 - |x|)) / 2``, with the sign."""
    form = format_of(x)

    def size(a: Expression) -> Expression:
        return form(0.5) * log1p(form(2.0) * a / (form(1.0) - a))

    def signed(x: Expression) -> Expression:
        return let(let(absolute(x), size), lambda value: tirx.Select(x < form(0.0), -value, value))

    return let(x, signed)


def _fmod(left: Expression, right: Expression) -> Expression:
    size, zero = absolute(tirx.Cast(FLOAT64.dtype, left)), FLOAT64(0.0)

    def divided(rest: Expression, divisor: Expression, inverse: Expression, step: int) -> Expression:
        if step < 0:
            above = tirx.Select(rest < zero, rest + divisor, rest)
            return let(above, lambda above: tirx.Select(above >= divisor, above - divisor, above))
        unit = 2.0 ** (_DIGITS * step)
        digits = tirx.floor(rest * (inverse * FLOAT64(1 / unit)))
        left_over = rest - digits * (divisor * FLOAT64(unit))
        return let(left_over, lambda rest: divided(rest, divisor, inverse, step - 1))

    def whole(divisor: Expression) -> Expression:
        inverse = FLOAT64(1.0) / divisor
        rest = let(
            inverse, lambda inverse: let(size, lambda size: divided(size, divisor, inverse, _STEPS - 1))
        )
        return let(tirx.Cast(FLOAT32.dtype, rest), lambda rest: tirx.Select(below_zero(left), -rest, rest))

    value = let(absolute(tirx.Cast(FLOAT64.dtype, right)), whole)
    stays = tirx.And(absolute(right) == FLOAT32(inf), absolute(left) < FLOAT32(inf))
    return tirx.Select(stays, left, value)


def _or_far(a: Expression, near: Expression) -> Expression:
    """For large numbers ``log(2 * a)``."""
    form = format_of(a)
    return tirx.Select(a > form(_LARGE[form.dtype]), log(a) + form(_LOG_2), near)


def _scaled_log(x: Expression, factor: float) -> Expression:
    form = format_of(x)
    if form is FLOAT64:
        return log(x) * FLOAT64(factor)
    return tirx.Cast(FLOAT32.dtype, log(tirx.Cast(FLOAT64.dtype, x)) * FLOAT64(factor))


def _power(base: Expression, exponent: Expression) -> Expression:
    """``exp(exponent * log(|base|))``, and the signs and special cases of C's ``pow``."""
    wide = FLOAT64.dtype
    size = exp(tirx.Cast(wide, exponent) * log(tirx.Cast(wide, absolute(base))))
    zero, one, half, two = FLOAT32(0.0), FLOAT32(1.0), FLOAT32(0.5), FLOAT32(2.0)

    def special(value: Expression) -> Expression:
        is_whole = tirx.floor(exponent) == exponent
        is_odd = tirx.floor(exponent * half) * two != exponent
        is_finite = tirx.And(base < zero, base > FLOAT32(-inf))
        of_fraction = tirx.Select(is_finite, FLOAT32(nan), value)
        negative = tirx.Select(is_whole, tirx.Select(is_odd, -value, value), of_fraction)
        infinite = absolute(exponent) == FLOAT32(inf)
        signed = tirx.Select(tirx.And(below_zero(base), tirx.Not(infinite)), negative, value)
        stays = tirx.And(infinite, absolute(base) == one)
        return tirx.Select(tirx.Or(tirx.Or(exponent == zero, base == one), stays), one, signed)

    return let(tirx.Cast(FLOAT32.dtype, size), special)
