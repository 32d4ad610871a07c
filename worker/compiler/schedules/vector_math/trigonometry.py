"""Sines, tangents and their inverses as vector arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from math import pi

from tvm import tirx

from worker.compiler.schedules.vector_math.numbers import (
    FLOAT32,
    FLOAT64,
    Expression,
    absolute,
    below_zero,
    clamped,
    format_of,
    horner,
    let,
)

_TURN_LIMIT = 2.0**30
"""Quarter turns are counted in 32 bits; larger angles give an arbitrary number from -1 to 1."""
_QUARTER = pi / 4

_HALF_PI = (
    1.57079632673412561417e00,
    6.07710050630396597660e-11,
    2.02226624871116645580e-21,
    8.47842766036889956997e-32,
)
"""Half of pi in parts of 33 bits, the last one of 53: products with counts below 2 ** 20 are exact."""

_SIN = {
    "float32": (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    "float64": (
        1.58962301576546568060e-10,
        -2.50507477628578072866e-8,
        2.75573136213857245213e-6,
        -1.98412698295895385996e-4,
        8.33333333332211858878e-3,
        -1.66666666666666307295e-1,
    ),
}
_COS = {
    "float32": (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
    "float64": (
        -1.13585365213876817300e-11,
        2.08757008419747316778e-9,
        -2.75573141792967388112e-7,
        2.48015872888517045348e-5,
        -1.38888888888730564116e-3,
        4.16666666666665929218e-2,
    ),
}
_ATAN = {
    "float32": ((8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1), (1.0,)),
    "float64": (
        (
            -8.750608600031904122785e-1,
            -1.615753718733365076637e1,
            -7.500855792314704667340e1,
            -1.228866684490136173410e2,
            -6.485021904942025371773e1,
        ),
        (
            1.0,
            2.485846490142306297962e1,
            1.650270098316988542046e2,
            4.328810604912902668951e2,
            4.853903996359136964868e2,
            1.945506571482613964425e2,
        ),
    ),
}
_ATAN_SMALL = 0.4142135623730950
_ATAN_LARGE = 2.414213562373095
_ATAN_REST = 6.123233995736765886130e-17
"""The rounding error of half of pi in float64."""


def sin(x: Expression) -> Expression:
    """The sine or the cosine of the angle reduced by quarter turns, with a sign."""
    return let(x, lambda x: _reduced(x, lambda r, turns: _turned(r, turns)))


def cos(x: Expression) -> Expression:
    """The sine of the angle plus a quarter turn."""
    one = tirx.IntImm("int32", 1)
    return let(x, lambda x: _reduced(x, lambda r, turns: _turned(r, turns + one)))


def tan(x: Expression) -> Expression:
    """Sine over cosine of the same reduced angle."""
    one = tirx.IntImm("int32", 1)

    def quotient(r: Expression, turns: Expression) -> Expression:
        return let(turns, lambda turns: _turned(r, turns) / _turned(r, turns + one))

    return let(x, lambda x: _reduced(x, quotient))


def atan(x: Expression) -> Expression:
    """A rational function, after a reduction to an argument around zero, around one, or the inverse."""
    form = format_of(x)

    def positive(size: Expression) -> Expression:
        small = size <= form(_ATAN_SMALL)
        large = size > form(_ATAN_LARGE)
        above = tirx.Select(large, form(-1.0), tirx.Select(small, size, size - form(1.0)))
        below = tirx.Select(large, size, tirx.Select(small, form(1.0), size + form(1.0)))
        start = tirx.Select(large, form(2 * _QUARTER), tirx.Select(small, form(0.0), form(_QUARTER)))
        rest = tirx.Select(large, form(_ATAN_REST), tirx.Select(small, form(0.0), form(_ATAN_REST / 2)))
        up, down = _ATAN[form.dtype]

        def value(y: Expression) -> Expression:
            return let(y * y, lambda z: y + y * (z * horner(z, up) / horner(z, down)))

        return start + (let(above / below, value) + rest)

    return let(x, lambda x: _with_sign(let(absolute(x), positive), x))


def asin(x: Expression) -> Expression:
    """``atan(x / sqrt((1 - x) * (1 + x)))``, which is accurate near one."""
    form = format_of(x)
    return let(x, lambda x: atan(x / tirx.sqrt((form(1.0) - x) * (form(1.0) + x))))


def acos(x: Expression) -> Expression:
    """``2 * atan(sqrt((1 - x) / (1 + x)))``."""
    form = format_of(x)
    return let(x, lambda x: form(2.0) * atan(tirx.sqrt((form(1.0) - x) / (form(1.0) + x))))


def atan2(y: Expression, x: Expression) -> Expression:
    """The arc tangent of the smaller over the larger argument, moved to its octant."""
    form = format_of(x)

    def octant(y: Expression, x: Expression, height: Expression, width: Expression) -> Expression:
        steep = height > width
        larger = tirx.Select(steep, height, width)
        smaller = tirx.Select(steep, width, height)
        equal = height == width
        quotient = tirx.Select(
            equal, tirx.Select(height == form(0.0), form(0.0), form(1.0)), smaller / larger
        )

        def turned(angle: Expression) -> Expression:
            upright = tirx.Select(steep, form(2 * _QUARTER) - angle, angle)
            return _with_sign(tirx.Select(below_zero(x), form(4 * _QUARTER) - upright, upright), y)

        return let(atan(quotient), turned)

    return let(
        y,
        lambda y: let(
            x,
            lambda x: let(
                absolute(y), lambda height: let(absolute(x), lambda width: octant(y, x, height, width))
            ),
        ),
    )


def _with_sign(size: Expression, number: Expression) -> Expression:
    """A nonnegative number with the sign of another."""
    return let(size, lambda size: tirx.Select(below_zero(number), -size, size))


def _reduced(x: Expression, body: Callable[[Expression, Expression], Expression]) -> Expression:
    """Split an angle into at most an eighth of a turn and a number of quarter turns."""
    form = format_of(x)
    wide = x if form is FLOAT64 else tirx.Cast(FLOAT64.dtype, x)

    def remaining(wide: Expression, count: Expression) -> Expression:
        angle = wide
        for part in _HALF_PI if form is FLOAT64 else _HALF_PI[:2]:
            angle = angle - count * FLOAT64(part)
        near = clamped(angle, -_QUARTER * 1.01, _QUARTER * 1.01)
        narrow = near if form is FLOAT64 else tirx.Cast(FLOAT32.dtype, near)
        turns = tirx.Cast("int32", clamped(count, -_TURN_LIMIT, _TURN_LIMIT))
        return let(narrow, lambda r: let(turns, lambda turns: body(r, turns)))

    def counted(wide: Expression) -> Expression:
        turns = tirx.floor(wide * FLOAT64(2 / pi) + FLOAT64(0.5))
        return let(turns, lambda count: remaining(wide, count))

    return let(wide, counted)


def _turned(r: Expression, turns: Expression) -> Expression:
    """The sine of a small angle plus a number of quarter turns."""
    form = format_of(r)
    zero = tirx.IntImm("int32", 0)
    odd = tirx.op.bitwise_and(turns, tirx.IntImm("int32", 1)) != zero
    below = tirx.op.bitwise_and(turns, tirx.IntImm("int32", 2)) != zero

    def value(z: Expression) -> Expression:
        sine = r + r * (z * horner(z, _SIN[form.dtype]))
        cosine = form(1.0) - (z * form(0.5) - z * z * horner(z, _COS[form.dtype]))
        return let(tirx.Select(odd, cosine, sine), lambda number: tirx.Select(below, -number, number))

    return let(r * r, value)
