"""Which share of the gamma function's integral lies below a bound, and which above; Hurwitz's zeta.

Loops of their own, in float64, which take as many terms as an element needs.

Sources: NIST's Digital Library of Mathematical Functions, 8.11.4 (the series of a share), 8.9.2 (its
fraction) and 25.11 (zeta); W. Press et al., "Numerical Recipes", 6.2.1, which integrates
where the order is large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.emitter import Emitter
from worker.compiler.translation.matrix_loops import Cell, Part, Result, each_matrix, when
from worker.compiler.translation.rule import Rules, Translate, rules_of

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
SHIFT = 10
"""Beyond it the series of Bernoulli's numbers are exact to float64's last digits."""

_FLOAT = "float64"
_LARGE = 100.0
"""Orders from here on are integrated; below, the series and the fraction end in time."""
_MOST_TERMS = 500
_ROUNDING = 1e-17
_SMALL = 1e-3
"""Below it, ``log1p(u)`` is too near to ``u`` for their difference."""
_MOST_STEPS = 2.0**24
"""Up to the shift; beyond, float32 has integers only."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(18)


def _share(place: int) -> Translate:
    def translate(emit: Emitter, order: relax.Expr, bound: relax.Expr) -> relax.Expr:
        shares = _each(emit, _shares, (order, bound), 2)
        return emit.cast(shares[place], emit.dtype)

    return translate


def hurwitz_zeta(emit: Emitter, order: Any, x: Any) -> relax.Expr:
    """In float64, of the node's shape; by Euler and Maclaurin, below zero for whole orders only."""
    return _each(emit, _zeta, (order, x), 1)[0]


def _each(
    emit: Emitter, body: Callable[..., None], operands: tuple[Any, Any], results: int
) -> list[relax.Expr]:
    """What a body makes of each element of two tensors or numbers that broadcast."""
    whole = [emit(relax.op.broadcast_to(emit.cast(one, _FLOAT), emit.shape)) for one in operands]
    return each_matrix(emit, body, whole, [Result((), _FLOAT)] * results, rank=0)


def _shares(order: Part, bound: Part, below: Part, above: Part) -> None:
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
        rest = Cell(_integral(a, x, is_above), _FLOAT)
        below[()] = tirx.Select(is_above, 1 - rest.value, rest.value)
        above[()] = tirx.Select(is_above, rest.value, 1 - rest.value)


def _limit(a: Any, x: Any) -> Any:
    """The share below where order or bound is zero or infinite; NaN below zero, as torch has it."""
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
    """``1/a + x / (a (a + 1)) + x² / (a (a + 1) (a + 2)) + …``."""
    term, total = Cell(1 / a, _FLOAT), Cell(1 / a, _FLOAT)
    with T.serial(1, _MOST_TERMS) as n, when(term.value > total.value * _ROUNDING):
        term.set(term.value * x / (a + n.astype(_FLOAT)))
        total.set(total.value + term.value)
    return total.value


def _fraction(a: Any, x: Any) -> Any:
    """``1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - …))``, from the front, as W. Lentz does."""
    level = Cell(x + 1 - a, _FLOAT)
    ratio, inverse = Cell(1e300, _FLOAT), Cell(1 / level.value, _FLOAT)
    total, step = Cell(inverse.value, _FLOAT), Cell(0.0, _FLOAT)
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
    """From the bound to where nothing is left: the share above it, or the one below it.

    Places are told by how many deviations they lie from the peak, near which the integral is a normal one.
    """
    peak, deviation = Cell(a - 1, _FLOAT), Cell(tirx.sqrt(a - 1), _FLOAT)
    start = Cell((x - a + 1) / deviation.value, _FLOAT)
    upper = tirx.max(start.value + 6, 11.5)
    lower = tirx.max(tirx.min(start.value - 5, -7.5), -deviation.value)
    span = Cell(tirx.Select(is_above, upper - start.value, lower - start.value), _FLOAT)
    total = Cell(0.0, _FLOAT)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        place = Cell((start.value + span.value * ((1 + node) / 2)) / deviation.value, _FLOAT)
        excess = _excess(tirx.max(place.value, -1.0))
        total.set(total.value + tirx.exp(-peak.value * excess) * (weight / 2))
    scale = 1 + (1 / 12 + (1 / 288 - 139 / 51840 / peak.value) / peak.value) / peak.value
    return total.value * tirx.abs(span.value) / (scale * math.sqrt(2 * math.pi))


def _excess(u: Any) -> Any:
    """``u - log(1 + u)``."""
    near = u * u * (0.5 - u * (1 / 3 - u * (0.25 - u * 0.2)))
    return tirx.Select(tirx.abs(u) < _SMALL, near, u - tirx.log1p(u))


def _zeta(order: Part, bound: Part, result: Part) -> None:
    """``Σ (x + k)^-n``, from the shift on as an integral and its corrections."""
    n, x = order[()], bound[()]
    far, total = Cell(x, _FLOAT), Cell(0.0, _FLOAT)
    steps = tirx.max(tirx.min(tirx.ceil(SHIFT - x), _MOST_STEPS), 0.0)
    with T.serial(0, steps.astype("int32")):
        total.set(total.value + tirx.power(far.value, -n))
        far.set(far.value + 1)
    power, square = Cell(tirx.power(far.value, -n), _FLOAT), Cell(far.value * far.value, _FLOAT)
    total.set(total.value + power.value * far.value / (n - 1) + power.value * 0.5)
    factor = Cell(power.value * n / far.value, _FLOAT)
    for place, number in enumerate(BERNOULLI, 1):
        total.set(total.value + factor.value * (number / math.factorial(2 * place)))
        factor.set(factor.value * (n + (2 * place - 1)) * (n + 2 * place) / square.value)
    endless, unknown = (tirx.const(value, _FLOAT) for value in (math.inf, math.nan))
    is_pole = tirx.any(n == 1, tirx.all(x <= 0, x == tirx.floor(x)))
    is_known = tirx.all(n > 1, tirx.any(x > 0, n == tirx.floor(n)))
    of_order = tirx.Select(is_known, total.value, unknown)
    result[()] = tirx.Select(n < 1, unknown, tirx.Select(is_pole, endless, of_order))


RULES: Rules = rules_of({"aten.igamma.default": _share(0), "aten.igammac.default": _share(1)})
