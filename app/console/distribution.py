"""Latency as a distribution: densities on one axis, from quantiles or from percentiles. Pure functions."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bessemer.contract.report import BenchmarkResult, Latency, RunTimes
from bessemer.figures import words
from bessemer.figures.charts import Tick, round_steps

BINS = 160
SHOWN_TAIL = 1.6
"""The axis ends at this multiple of the largest 90th percentile: one interrupted run must not flatten it."""
FROM_ZERO_BELOW = 0.35
"""The axis begins at zero unless the fastest run takes more than this share of its end."""
_SMOOTHING = (1, 3, 6, 7, 6, 3, 1)


@dataclass(frozen=True)
class Ridge:
    """The runs of one side. Positions are in percent of the axis, None for a percentile of too few runs.

    Attributes:
        area: an SVG path in a box of 100 by 100: the density, with its peak at the top.
        verdict: how the library compares with it, in words; empty for the library.
    """

    label: str
    value: str
    note: str
    verdict: str
    area: str
    p50: float
    p90: float | None
    p99: float | None
    ours: bool
    steady: bool


@dataclass(frozen=True)
class Ridges:
    """The sides on one axis."""

    rows: tuple[Ridge, ...]
    ticks: tuple[Tick, ...]
    is_exact: bool
    """Whether every density comes from quantiles, not from a few percentiles."""


@dataclass(frozen=True)
class _Side:
    label: str
    latency: Latency
    knots: tuple[tuple[float, float], ...]
    verdict: str = ""
    steady: bool = True


def latency_ridges(benchmark: BenchmarkResult) -> Ridges:
    """The ridges of the library and of each baseline, in this order."""
    known = {each.name: each for each in benchmark.distributions}
    sides = [
        _Side(
            "compiled library",
            benchmark.latency,
            knots(benchmark.latency, known.get("library")),
            steady=not benchmark.unsteady,
        )
    ]
    for peer in benchmark.baselines:
        verdict = (
            "not compared: unsteady" if peer.doubt else f"the library is {words.ratio_words(peer.ratio)} it"
        )
        found = knots(peer.latency, known.get(peer.name))
        sides.append(_Side(words.baseline_label(peer), peer.latency, found, verdict, peer.is_steady))
    low, high = _axis(sides)
    return Ridges(
        rows=tuple(_ridge(side, low, high, index == 0) for index, side in enumerate(sides)),
        ticks=tuple(
            Tick(_place(value, low, high), words.duration(value) if value else "0")
            for value in ((0.0,) if low == 0 else ()) + round_steps(low, high, 5)
        ),
        is_exact=all(len(side.knots) > 5 for side in sides),
    )


def knots(latency: Latency, times: RunTimes | None) -> tuple[tuple[float, float], ...]:
    """Points of the cumulative distribution, each a latency and the share of runs up to it, in order."""
    if times is not None and len(times.quantiles_ms) > 1:
        last = len(times.quantiles_ms) - 1
        found = [(value, index / last) for index, value in enumerate(times.quantiles_ms)]
    else:
        percentiles = (
            (latency.min_ms, 0.0),
            (latency.p50_ms, 0.5),
            (latency.p90_ms, 0.9),
            (latency.p99_ms, 0.99),
        )
        found = [(value, share) for value, share in percentiles if value is not None]
    if not all(math.isfinite(value) for value, _ in found):
        return ()
    return tuple(sorted(found))


def density(points: Sequence[tuple[float, float]], low: float, high: float) -> tuple[float, ...]:
    """The share of runs in each of ``BINS`` equal bins from ``low`` to ``high``, smoothed; its peak is 1.

    Args:
        points: of the cumulative distribution; see ``knots``.
        low: the start of the first bin.
        high: the end of the last one.
    """
    width = (high - low) / BINS
    if not points or not width > 0:
        return (0.0,) * BINS
    below = [_cumulative(points, low + index * width) for index in range(BINS + 1)]
    shares = [after - before for before, after in pairwise(below)]
    half = len(_SMOOTHING) // 2
    smooth = [
        sum(
            weight * shares[index + offset - half]
            for offset, weight in enumerate(_SMOOTHING)
            if 0 <= index + offset - half < BINS
        )
        for index in range(BINS)
    ]
    peak = max(smooth)
    return tuple(value / peak if peak > 0 else 0.0 for value in smooth)


def _cumulative(points: Sequence[tuple[float, float]], value: float) -> float:
    index = bisect_right(points, (value, math.inf))
    if index == 0:
        return 0.0
    before, share = points[index - 1]
    if index == len(points):
        return share
    after, next_share = points[index]
    return share + (next_share - share) * (value - before) / (after - before)


def _ridge(side: _Side, low: float, high: float, ours: bool) -> Ridge:
    heights = density(side.knots, low, high)
    steps = "".join(f"L{100 * (i + 0.5) / BINS:.2f},{100 - 96 * each:.1f}" for i, each in enumerate(heights))
    latency = side.latency
    return Ridge(
        label=side.label,
        value=words.duration(latency.p50_ms),
        note=_note(latency),
        verdict=side.verdict,
        area=f"M0,100{steps}L100,100Z",
        p50=_place(latency.p50_ms, low, high),
        p90=_place_of(latency.p90_ms, low, high),
        p99=_place_of(latency.p99_ms, low, high),
        ours=ours,
        steady=side.steady,
    )


def _note(latency: Latency) -> str:
    runs = "1 run" if latency.runs == 1 else f"{words.count(latency.runs)} runs"
    named = (("fastest", latency.min_ms), ("p90", latency.p90_ms), ("p99", latency.p99_ms))
    parts = [f"{name} {words.duration(value)}" for name, value in named if value is not None]
    return " · ".join((*parts, runs))


def _axis(sides: Iterable[_Side]) -> tuple[float, float]:
    latencies = [side.latency for side in sides]
    slow = (_finite(each.p50_ms if each.p90_ms is None else each.p90_ms) for each in latencies)
    tails = (_finite(each.p50_ms if each.p99_ms is None else each.p99_ms) for each in latencies)
    slowest = max(slow, default=0.0)
    high = min(max(tails, default=0.0) * 1.03, slowest * SHOWN_TAIL) or 1.0
    low = min((_finite(each.min_ms) for each in latencies), default=0.0)
    margin = (high - low) * 0.06
    return (max(low - margin, 0.0) if low > FROM_ZERO_BELOW * high else 0.0), high + margin * 0.5


def _finite(value: float) -> float:
    return value if math.isfinite(value) and value > 0 else 0.0


def _place(value: float, low: float, high: float) -> float:
    if not math.isfinite(value) or not high > low:
        return 0.0
    return round(min(max(100 * (value - low) / (high - low), 0.0), 100.0), 2)


def _place_of(value: float | None, low: float, high: float) -> float | None:
    return None if value is None or value > high else _place(value, low, high)
