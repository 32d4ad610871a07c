"""Exponentials, logarithms and what follows from them as arithmetic over whole vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from typing import Any

from tvm import tirx

from worker.schedules import nest

Expression = Any


@dataclass(frozen=True)
class Format:
    """A floating-point format, and the coefficients for it; polynomials begin with the highest power."""

    dtype: str
    integer: str
    mantissa_bits: int
    bias: int
    smallest_normal: float
    largest: float
    exp_lowest: float
    exp_highest: float
    log2: tuple[float, float]
    """The logarithm of two, in two parts: the first has so few bits that its products are exact."""
    exp: tuple[float, ...]
    log: tuple[float, ...]
    tanh: tuple[tuple[float, ...], tuple[float, ...]]

    def __call__(self, value: float) -> Expression:
        """A number of this format."""
        return tirx.FloatImm(self.dtype, value)

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
    exp_lowest=-104.0,
    exp_highest=89.0,
    log2=(0.693359375, -2.12194440e-4),
    exp=(0.0013926250831497611, 0.008363232883682618, 0.04166655421298415, 0.16666576666119928, 0.5),
    log=(0.24279078841, 0.28498786688, 0.40000972152, 0.66666662693),
    tanh=(
        (
            0.002292744816178142,
            -0.008343945515839153,
            0.02176891865102821,
            -0.053959259577204544,
            0.1333330355691574,
            -0.3333333317214036,
        ),
        (1.0,),
    ),
)

FLOAT64 = Format(
    dtype="float64",
    integer="int64",
    mantissa_bits=52,
    bias=1023,
    smallest_normal=2.2250738585072014e-308,
    largest=1.7976931348623157e308,
    exp_lowest=-746.0,
    exp_highest=710.0,
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
    tanh=(
        (-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3),
        (1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3),
    ),
)

FORMATS = {form.dtype: form for form in (FLOAT32, FLOAT64)}

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
_SMALL_TANH = 0.625


def exp(x: Expression, doublings: int = 0) -> Expression:
    """``e ** x * 2 ** doublings`` as a power of two times ``e ** r``, ``|r|`` at most half of ``log(2)``."""
    form = format_of(x)
    shift = form(float(doublings))

    def scaled(x: Expression, n: Expression) -> Expression:
        r = x - n * form(form.log2[0]) - n * form(form.log2[1])
        return let(r, lambda r: times_power_of_two(small_exp(r), n + shift))

    def reduced(x: Expression) -> Expression:
        return let(tirx.floor(x * form(_LOG2_E) + form(0.5)), lambda n: scaled(x, n))

    return let(x, lambda x: let(clamped(x, form.exp_lowest, form.exp_highest - doublings), reduced))


def small_exp(r: Expression) -> Expression:
    """``e ** r`` where ``|r|`` is at most half of ``log(2)``."""
    form = format_of(r)
    return form(1.0) + (r + r * r * horner(r, form.exp))


def log(x: Expression) -> Expression:
    """``n * log(2) + log(1 + f)``, ``1 + f`` between the roots of one half and of two."""
    return let(x, _log)


def tanh(x: Expression) -> Expression:
    """A rational function near zero, ``1 - 2 / (exp(2 * |x|) + 1)`` elsewhere."""
    form = format_of(x)

    def near(x: Expression) -> Expression:
        return let(x * x, lambda z: x + x * z * (horner(z, form.tanh[0]) / horner(z, form.tanh[1])))

    def far(x: Expression) -> Expression:
        return let(
            form(1.0) - form(2.0) / (exp(absolute(x) * form(2.0)) + form(1.0)),
            lambda value: tirx.Select(x < form(0.0), -value, value),
        )

    return let(x, lambda x: tirx.Select(absolute(x) < form(_SMALL_TANH), near(x), far(x)))


def sigmoid(x: Expression) -> Expression:
    """``1 / (1 + exp(-x))``."""
    form = format_of(x)
    return form(1.0) / (form(1.0) + exp(form(0.0) - x))


def erf(x: Expression) -> Expression:
    """A rational function; in float64 beyond one, one minus the complement."""
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

    # Seen from the root of one half, the fraction lies around one.
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


def format_of(x: Expression) -> Format:
    """The format of an expression, float32 or float64."""
    return FORMATS[nest.dtype_of(x)]


def let(value: Expression, body: Callable[[Expression], Expression]) -> Expression:
    """A name for a value that the body reads several times."""
    if isinstance(value, tirx.Var | tirx.FloatImm):
        return body(value)
    variable = tirx.Var("t", nest.dtype_of(value))
    return tirx.Let(variable, value, body(variable))


def horner(x: Expression, coefficients: tuple[float, ...]) -> Expression:
    """A polynomial; its coefficients begin with the highest power."""
    form = format_of(x)
    value = form(coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + form(coefficient)
    return value


def clamped(x: Expression, lowest: float, highest: float) -> Expression:
    """The number, moved into a range; NaN, which compares with nothing, stays."""
    form = format_of(x)
    above = tirx.Select(x < form(lowest), form(lowest), x)
    return let(above, lambda above: tirx.Select(above > form(highest), form(highest), above))


def absolute(x: Expression) -> Expression:
    """The number without its sign."""
    return tirx.Select(x < format_of(x)(0.0), -x, x)


def _to_float(whole: Expression, form: Format) -> Expression:
    """A small integer as a number; AVX2 converts 32 bits only."""
    return tirx.Cast(form.dtype, tirx.Cast("int32", whole))


def below_zero(x: Expression) -> Expression:
    """Whether a number has a sign, zero included."""
    form = format_of(x)
    return tirx.reinterpret(form.integer, x) < form.whole(0)


def times_power_of_two(value: Expression, n: Expression) -> Expression:
    """``value * 2 ** n`` in two steps, each of which is a normal number."""
    form = format_of(value)

    def power(exponent: Expression) -> Expression:
        biased = tirx.Cast(form.integer, exponent + tirx.IntImm("int32", form.bias))
        return tirx.reinterpret(form.dtype, tirx.op.shift_left(biased, form.whole(form.mantissa_bits)))

    def scaled(whole: Expression) -> Expression:
        half = tirx.op.shift_right(whole, tirx.IntImm("int32", 1))
        return let(half, lambda half: value * power(half) * power(whole - half))

    return let(tirx.Cast("int32", n), scaled)
