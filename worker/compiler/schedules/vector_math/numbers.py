"""Floating-point formats with the coefficients of their polynomials, and arithmetic on expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest

Expression = Any


@dataclass(frozen=True)
class Format:
    """A floating-point format and its coefficients; polynomials begin with the highest power.

    ``exp_lowest`` is the lowest number whose exponential is a normal number. ``exp_highest`` are the highest
    number whose exponential is finite, and the highest for which half of the exponential is finite.
    """

    dtype: str
    integer: str
    mantissa_bits: int
    bias: int
    smallest_normal: float
    largest: float
    exp_lowest: float
    exp_highest: tuple[float, float]
    log2: tuple[float, float]
    """The logarithm of two in two parts; products of the first one are exact (Cody and Waite)."""
    exp: tuple[float, ...]
    log: tuple[float, ...]

    def __call__(self, value: float) -> Expression:
        """A number of this format."""
        return tirx.FloatImm(self.dtype, value)

    def highest_exp(self, doublings: int) -> float:
        """The highest number whose exponential is finite after the doublings: 0, or -1 for half of it."""
        return self.exp_highest[-doublings]

    def whole(self, value: int) -> Expression:
        """An integer as wide as the format."""
        return tirx.IntImm(self.integer, value)


FLOAT32 = Format(
    dtype="float32",
    integer="int32",
    mantissa_bits=23,
    bias=127,
    smallest_normal=1.1754943508222875e-38,
    largest=3.4028234663852886e38,
    exp_lowest=-87.33654022216797,
    exp_highest=(88.72283172607422, 89.41598510742188),
    log2=(0.693359375, -2.12194440e-4),
    exp=(0.0013926250831497611, 0.008363232883682618, 0.04166655421298415, 0.16666576666119928, 0.5),
    log=(0.24279078841, 0.28498786688, 0.40000972152, 0.66666662693),
)

FLOAT64 = Format(
    dtype="float64",
    integer="int64",
    mantissa_bits=52,
    bias=1023,
    smallest_normal=2.2250738585072014e-308,
    largest=1.7976931348623157e308,
    exp_lowest=-708.3964185322641,
    exp_highest=(709.782712893384, 710.4758600739439),
    log2=(6.93145751953125e-1, 1.42860682030941723212e-6),
    exp=(
        2.09147553258932e-09,
        2.5105312729622103e-08,
        2.755727347871858e-07,
        2.755725517000089e-06,
        2.480158732567746e-05,
        0.0001984126987500228,
        0.0013888888888883711,
        0.008333333333326084,
        0.04166666666666667,
        0.1666666666666667,
        0.5,
    ),
    log=(
        1.479819860511658591e-01,
        1.531383769920937332e-01,
        1.818357216161805012e-01,
        2.222219843214978396e-01,
        2.857142874366239149e-01,
        3.999999999940941908e-01,
        6.666666666666735130e-01,
    ),
)

FORMATS = {form.dtype: form for form in (FLOAT32, FLOAT64)}


def format_of(x: Expression) -> Format:
    """The format of an expression, float32 or float64."""
    return FORMATS[nest.dtype_of(x)]


def let(value: Expression, body: Callable[[Expression], Expression]) -> Expression:
    """Bind a value to a variable, for a body that uses it several times."""
    if isinstance(value, tirx.Var | tirx.FloatImm):
        return body(value)
    variable = tirx.Var("t", nest.dtype_of(value))
    return tirx.Let(variable, value, body(variable))


def horner(x: Expression, coefficients: tuple[float, ...]) -> Expression:
    """A polynomial by Horner's rule; the coefficients begin with the highest power."""
    form = format_of(x)
    value = form(coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + form(coefficient)
    return value


def clamped(x: Expression, lowest: float, highest: float) -> Expression:
    """The number, clamped to a range; NaN stays NaN."""
    form = format_of(x)
    above = tirx.Select(x < form(lowest), form(lowest), x)
    return let(above, lambda above: tirx.Select(above > form(highest), form(highest), above))


def exponential(
    x: Expression, lowest: float, highest: float, within: Callable[[Expression], Expression]
) -> Expression:
    """A power of ``x``: ``within`` a range, zero below it, infinity above it, and NaN for NaN."""
    form = format_of(x)
    finite = tirx.Select(x <= form(highest), let(clamped(x, lowest, highest), within), x + form(inf))
    return tirx.Select(x < form(lowest), form(0.0), finite)


def absolute(x: Expression) -> Expression:
    """The absolute value."""
    return tirx.Select(x < format_of(x)(0.0), -x, x)


def below_zero(x: Expression) -> Expression:
    """Whether the sign bit is set, also of zero."""
    form = format_of(x)
    return tirx.reinterpret(form.integer, x) < form.whole(0)


def rounded(
    value: Expression, body: Callable[[Expression, Expression], Expression], offset: int = 0
) -> Expression:
    """``body(n, exponent)``: the nearest whole number, and ``n + offset`` shifted to the exponent's bits.

    A large number whose last bit counts ones is added, so that the sum's last bits are ``n + offset``. Its
    size must be below ``2 ** (mantissa_bits - 1)``, and additions must round to the nearest.
    """
    form = format_of(value)
    ones = form(1.5 * 2.0**form.mantissa_bits + offset)

    def parts(total: Expression) -> Expression:
        whole = tirx.reinterpret(form.integer, total)
        exponent = tirx.op.shift_left(whole, form.whole(form.mantissa_bits))
        return let(total - ones, lambda n: body(n, exponent))

    return let(value + ones, parts)


def times_power_of_two(value: Expression, exponent: Expression) -> Expression:
    """``value * 2 ** n``, a normal number, for ``n`` shifted to the exponent's bits."""
    form = format_of(value)
    return tirx.reinterpret(form.dtype, tirx.reinterpret(form.integer, value) + exponent)
