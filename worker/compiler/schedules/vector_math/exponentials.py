"""Exponentials, logarithms, ``tanh``, ``sigmoid`` and ``erf`` as vector arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from math import log as log_of_number

from tvm import tirx

from worker.compiler.schedules.vector_math.numbers import (
    FLOAT32,
    FLOAT64,
    Expression,
    Format,
    absolute,
    clamped,
    exponential,
    format_of,
    horner,
    let,
    rounded,
    times_power_of_two,
)

_ERF_FLOAT32 = (
    (
        -2.72614225801306e-10,
        2.77068142495902e-08,
        -2.10102402082508e-06,
        -5.69250639462346e-05,
        -7.34990630326855e-04,
        -2.95459980854025e-03,
        -1.60960333262415e-02,
    ),
    (
        -1.45660718464996e-05,
        -2.13374055278905e-04,
        -1.68282697438203e-03,
        -7.37332916720468e-03,
        -1.42647390514189e-02,
    ),
)
_ERF_FLOAT32_END = 3.832506856900711

_ERF_FLOAT64 = (
    (
        9.60497373987051638749e0,
        9.00260197203842689217e1,
        2.23200534594684319226e3,
        7.00332514112805075473e3,
        5.55923013010394962768e4,
    ),
    (
        1.0,
        3.35617141647503099647e1,
        5.21357949780152679795e2,
        4.59432382970980127987e3,
        2.26290000613890934246e4,
        4.92673942608635921086e4,
    ),
)
_ERFC_FLOAT64 = (
    (
        2.46196981473530512524e-10,
        5.64189564831068821977e-1,
        7.46321056442269912687e0,
        4.86371970985681366614e1,
        1.96520832956077098242e2,
        5.26445194995477358631e2,
        9.34528527171957607540e2,
        1.02755188689515710272e3,
        5.57535335369399327526e2,
    ),
    (
        1.0,
        1.32281951154744992508e1,
        8.67072140885989742329e1,
        3.54937778887819891062e2,
        9.75708501743205489753e2,
        1.82390916687909736289e3,
        2.24633760818710981792e3,
        1.65666309194161350182e3,
        5.57535340817727675546e2,
    ),
)
_ERF_FLOAT64_END = 6.0

_LOG2_E = 1.4426950408889634
_ROOT_HALF = {"float32": 0x3F3504F3, "float64": 0x3FE6A09E667F3BCD}
_BITS_BEYOND_ONE = 4
"""Adding two does not change a number that is this many bits larger than the mantissa."""


def exp(x: Expression, doublings: int = 0) -> Expression:
    """``e ** x * 2 ** doublings`` as a power of two times ``e ** r``, ``|r|`` at most half of ``log(2)``.

    It is zero where ``e ** x`` is denormal: processors take a hundred times as long for such numbers, which a
    softmax of masked scores (-100 for the windows of Swin) is full of.
    """
    form = format_of(x)

    def within(y: Expression) -> Expression:
        return _reduced(y, lambda r, exponent: times_power_of_two(small_exp(r), exponent), doublings)

    return let(x, lambda x: exponential(x, form.exp_lowest, form.highest_exp(doublings), within))


def small_exp(r: Expression) -> Expression:
    """``e ** r`` where ``|r|`` is at most half of ``log(2)``."""
    form = format_of(r)
    return form(1.0) + (r + r * r * horner(r, form.exp))


def log(x: Expression) -> Expression:
    """``n * log(2) + log(1 + f)`` with ``1 + f`` between the roots of one half and of two."""
    return let(x, _log)


def tanh(x: Expression) -> Expression:
    """``m / (m + 2)`` with ``m = exp(2 * x) - 1``, which is accurate for small numbers too.

    ``exp(y) - 1`` is ``2 ** n * (e ** r - 1) + (2 ** n - 1)``.
    """
    form = format_of(x)
    end = (form.mantissa_bits + _BITS_BEYOND_ONE) * log_of_number(2.0) / 2

    def less_one(r: Expression, power: Expression) -> Expression:
        return (r + r * r * horner(r, form.exp)) * power + (power - form(1.0))

    doubled = let(x, lambda x: clamped(x, -end, end) * form(2.0))
    return let(_with_power(doubled, less_one), lambda m: m / (m + form(2.0)))


def sigmoid(x: Expression) -> Expression:
    """``1 / (1 + exp(-x))``; zero where that is denormal."""
    form = format_of(x)

    def ratio(x: Expression) -> Expression:
        negated = form(0.0) - clamped(x, form.exp_lowest, -form.exp_lowest)
        return form(1.0) / (form(1.0) + _with_power(negated, lambda r, power: small_exp(r) * power))

    return let(x, lambda x: tirx.Select(x < form(form.exp_lowest), form(0.0), ratio(x)))


def _reduced(y: Expression, body: Callable[[Expression, Expression], Expression], offset: int) -> Expression:
    """``body(r, exponent)`` with ``y = n * log(2) + r``, ``|r|`` at most half of ``log(2)``."""
    form = format_of(y)

    def parts(y: Expression, n: Expression, exponent: Expression) -> Expression:
        return let(y - n * form(form.log2[0]) - n * form(form.log2[1]), lambda r: body(r, exponent))

    def of(y: Expression) -> Expression:
        return rounded(y * form(_LOG2_E), lambda n, exponent: parts(y, n, exponent), offset)

    return let(y, of)


def _with_power(y: Expression, body: Callable[[Expression, Expression], Expression]) -> Expression:
    """``body(r, 2 ** n)``, see ``_reduced``; the power is a normal number, or ``r`` is NaN."""
    form = format_of(y)

    def of(r: Expression, exponent: Expression) -> Expression:
        return let(tirx.reinterpret(form.dtype, exponent), lambda power: body(r, power))

    return _reduced(y, of, form.bias)


def erf(x: Expression) -> Expression:
    """A rational function; in float64, beyond one, one minus the complement."""
    return let(x, _erf_float32 if format_of(x) is FLOAT32 else _erf_float64)


def _log(x: Expression) -> Expression:
    form = format_of(x)
    is_tiny = x < form(form.smallest_normal)
    normal = tirx.Select(is_tiny, x * form(2.0**form.mantissa_bits), x)
    root = form.whole(_ROOT_HALF[form.dtype])

    def split(shifted: Expression) -> Expression:
        exponent = _to_float(tirx.op.shift_right(shifted, form.whole(form.mantissa_bits)), form)
        fraction = tirx.op.bitwise_and(shifted, form.whole((1 << form.mantissa_bits) - 1)) + root
        n = exponent - tirx.Select(is_tiny, form(float(form.mantissa_bits)), form(0.0))
        rest = tirx.reinterpret(form.dtype, fraction) - form(1.0)
        return let(n, lambda n: let(rest, lambda f: _log_of_sum(f, n, form)))

    def special(value: Expression) -> Expression:
        below = tirx.Select(x < form(0.0), form(nan), tirx.Select(x == form(0.0), form(-inf), x))
        finite = tirx.Select(x > form(form.largest), x, value)
        return tirx.Select(x > form(0.0), finite, below)

    # Relative to the root of one half, the fraction is around one.
    return let(let(tirx.reinterpret(form.integer, normal) - root, split), special)


def _log_of_sum(f: Expression, n: Expression, form: Format) -> Expression:
    """``n * log(2) + log(1 + f)`` for small ``f``."""

    def result(s: Expression) -> Expression:
        z = s * s
        half = f * f * form(0.5)
        rest = s * (half + let(z, lambda z: z * horner(z, form.log))) + n * form(form.log2[1])
        return n * form(form.log2[0]) - ((half - rest) - f)

    return let(f / (f + form(2.0)), result)


def _erf_float32(x: Expression) -> Expression:
    near = clamped(x, -_ERF_FLOAT32_END, _ERF_FLOAT32_END)
    above, below = _ERF_FLOAT32
    value = let(near, lambda x: let(x * x, lambda z: x * (horner(z, above) / horner(z, below))))
    upper = tirx.Select(x >= FLOAT32(_ERF_FLOAT32_END), FLOAT32(1.0), value)
    return tirx.Select(x <= FLOAT32(-_ERF_FLOAT32_END), FLOAT32(-1.0), upper)


def _erf_float64(x: Expression) -> Expression:
    form = FLOAT64

    def complement(y: Expression) -> Expression:
        above, below = _ERFC_FLOAT64
        return exp(form(0.0) - y * y) * horner(y, above) / horner(y, below)

    def near(x: Expression) -> Expression:
        above, below = _ERF_FLOAT64
        return let(x * x, lambda z: x * (horner(z, above) / horner(z, below)))

    def far(x: Expression) -> Expression:
        size = clamped(absolute(x), 0.0, _ERF_FLOAT64_END)
        return let(form(1.0) - let(size, complement), lambda value: tirx.Select(x < form(0.0), -value, value))

    return tirx.Select(absolute(x) < form(1.0), near(x), far(x))


def _to_float(whole: Expression, form: Format) -> Expression:
    """A small integer as a floating-point number, through 32 bits: AVX2 converts no wider integers."""
    return tirx.Cast(form.dtype, tirx.Cast("int32", whole))
