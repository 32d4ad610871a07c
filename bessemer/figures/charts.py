"""The geometry of the report's charts: pure functions from figures to positions in percent of the width.

Percentages keep the size of the text at every width of the page. Only the tuning curves have a view box.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bessemer.contract.report import BuiltFunctions, FunctionTime, Latency, SearchPoint, StageTime, TuneTask
from bessemer.figures.words import TIMES, cached_note, count, duration, percent, search_note, three_digits

SHOWN_FUNCTIONS = 15
TAIL_LIMIT = 2.5
"""The longest whisker, in multiples of the largest p90: one outlier must not flatten the bars."""

CURVE_WIDTH, CURVE_HEIGHT = 300, 96
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Tick:
    """A mark on a horizontal axis."""

    position: float
    label: str


@dataclass(frozen=True)
class LatencyRow:
    """One bar with whiskers. Positions are in percent, None for a percentile of too few runs.

    ``cut`` means that p99 lies beyond the axis.
    """

    label: str
    value: str
    note: str
    p50: float
    p90: float | None
    p99: float | None
    cut: bool
    ours: bool
    steady: bool


@dataclass(frozen=True)
class LatencyRun:
    """The latency of one side, with its labels."""

    label: str
    latency: Latency
    steady: bool = True
    threads: str = ""


@dataclass(frozen=True)
class LatencyChart:
    """Bars on one axis from zero."""

    rows: tuple[LatencyRow, ...]
    ticks: tuple[Tick, ...]


@dataclass(frozen=True)
class SpreadRow:
    """How runs spread around their median. Positions are in percent, None if unknown or off the axis."""

    label: str
    value: str
    minimum: float
    p50: float
    p90: float | None
    p99: float | None
    mean: float | None
    ours: bool


@dataclass(frozen=True)
class SpreadChart:
    """Spreads on one axis, in multiples of each row's own median."""

    rows: tuple[SpreadRow, ...]
    ticks: tuple[Tick, ...]


@dataclass(frozen=True)
class Bar:
    """A bar at ``start`` of ``width``, both in percent. Narrow pages omit ``detail``."""

    label: str
    value: str
    start: float
    width: float
    strong: bool
    detail: str = ""


@dataclass(frozen=True)
class Curve:
    """A falling step line in a box of ``CURVE_WIDTH`` by ``CURVE_HEIGHT``."""

    task: TuneTask
    line: str
    area: str
    first: str
    best: str


@dataclass(frozen=True)
class CurveLine:
    """A latency to beat: a line at ``y`` with a label at ``label_y``, in pixels from the top."""

    label: str
    y: float
    label_y: float
    is_untuned: bool


@dataclass(frozen=True)
class ModelCurve:
    """The model's estimated latency over the time of a search: a step line in a box of 100 by 100.

    ``above`` names the lines that lie above the chart.
    """

    line: str
    first: str
    last: str
    lines: tuple[CurveLine, ...]
    above: tuple[str, ...]
    ticks: tuple[Tick, ...]

    @property
    def change(self) -> str:
        """The latency at the start and at the end of the search, in words if it is the same."""
        if self.first == self.last:
            return f"{self.first} throughout"
        return f"{self.first} → {self.last}"


MODEL_CURVE_HEIGHT = 220
_LABEL_HEIGHT = 17
_ABOVE = 2.5
"""Lines above this multiple of the untuned latency would flatten the curve."""
_HEADROOM = 1.12


def latency_chart(runs: Sequence[LatencyRun]) -> LatencyChart:
    """Bars of p50 with whiskers to p90 and p99; the first row is the library's."""
    longest_p90 = max(_first(run.latency.p90_ms, run.latency.p50_ms) for run in runs)
    longest = min(max(_tail_ms(run.latency) for run in runs), longest_p90 * TAIL_LIMIT)
    ticks, end = _axis(longest)
    return LatencyChart(
        rows=tuple(
            LatencyRow(
                label=f"{run.label}{run.threads}",
                value=duration(run.latency.p50_ms),
                note=_tail_note(run.latency),
                p50=_place(run.latency.p50_ms, end),
                p90=_place_of(run.latency.p90_ms, end),
                p99=_place_of(run.latency.p99_ms, end),
                cut=_tail_ms(run.latency) > end,
                ours=index == 0,
                steady=run.steady,
            )
            for index, run in enumerate(runs)
        ),
        ticks=tuple(Tick(_place(value, end), duration(value) if value else "0") for value in ticks),
    )


def spread_chart(runs: Sequence[LatencyRun]) -> SpreadChart:
    """Minimum, median, p90, p99 and mean of each row, in multiples of its own median."""
    scaled = [(run, run.latency, max(run.latency.p50_ms, 1e-9)) for run in runs]
    low = min(min(latency.min_ms / median for _, latency, median in scaled), 0.95)
    high = max(_first(latency.p90_ms, latency.p50_ms) / median for _, latency, median in scaled) * 1.15
    high = max(
        high, min(max(_tail_ms(latency) / median for _, latency, median in scaled) * 1.02, TAIL_LIMIT), 1.1
    )

    def place(value_ms: float | None, median_ms: float) -> float | None:
        return None if value_ms is None else _place(value_ms / median_ms - low, high - low)

    return SpreadChart(
        rows=tuple(
            SpreadRow(
                label=run.label,
                value=f"{duration(latency.min_ms)} to {_tail_label(latency)}",
                minimum=_place(latency.min_ms / median - low, high - low),
                p50=_place(1 - low, high - low),
                p90=place(latency.p90_ms, median),
                p99=place(latency.p99_ms, median),
                mean=place(latency.mean_ms, median) if latency.mean_ms / median <= high else None,
                ours=index == 0,
            )
            for index, (run, latency, median) in enumerate(scaled)
        ),
        ticks=tuple(
            Tick(_place(value - low, high - low), f"{value:.2f}{TIMES}") for value in round_steps(low, high)
        ),
    )


def function_bars(functions: Iterable[FunctionTime], shown: int = SHOWN_FUNCTIONS) -> tuple[Bar, ...]:
    """One bar for each of the longest functions, then one for all others."""
    ordered = sorted((one for one in functions if one.milliseconds > 0), key=lambda one: -one.milliseconds)
    bars = [(_function_label(one), one.milliseconds, one.share, _speed(one)) for one in ordered[:shown]]
    rest = ordered[shown:]
    if rest:
        label = f"{len(rest)} more functions"
        bars.append((label, sum(part.milliseconds for part in rest), sum(part.share for part in rest), ""))
    longest = max((milliseconds for _, milliseconds, _, _ in bars), default=0)
    return tuple(
        Bar(label, f"{duration(time)} · {percent(share)}", 0, _place(time, longest), index == 0, speed)
        for index, (label, time, share, speed) in enumerate(bars)
    )


def stage_bars(
    stages: Sequence[StageTime], searches: bool = True, built: BuiltFunctions | None = None
) -> tuple[Bar, ...]:
    """One bar for each stage, starting where the previous one ended."""
    total = sum(stage.seconds for stage in stages)
    starts = [0.0, *accumulate(stage.seconds for stage in stages)]
    longest = max((stage.seconds for stage in stages), default=0)
    return tuple(
        Bar(
            label=stage.stage.value,
            value=duration(stage.seconds * 1000)
            + search_note(stage.stage, searches)
            + cached_note(stage.stage, built),
            start=_place(start, total),
            width=max(_place(stage.seconds, total), 0.4),
            strong=stage.seconds == longest,
        )
        for start, stage in zip(starts, stages, strict=False)
    )


def tuning_curve(task: TuneTask) -> Curve | None:
    """The best latency so far over the trials; None if no trial succeeded."""
    points = [(trial, value) for trial, value in enumerate(task.history_ms) if math.isfinite(value)]
    if not points:
        return None
    trials = max(len(task.history_ms) - 1, 1)
    top = max(value for _, value in points)
    steps = [f"M{_curve_x(points[0][0], trials)},{_curve_y(points[0][1], top)}"]
    for trial, value in points[1:]:
        steps.append(f"H{_curve_x(trial, trials)}V{_curve_y(value, top)}")
    line = "".join(steps) + ("" if points[1:] else f"H{CURVE_WIDTH}")
    base = f"V{CURVE_HEIGHT}H{_curve_x(points[0][0], trials)}Z"
    first_ms = points[0][1] if task.default_ms is None else task.default_ms
    return Curve(task, line, line + base, duration(first_ms), duration(points[-1][1]))


def model_curve(
    points: Sequence[SearchPoint], untuned_ms: float | None, peers_ms: Mapping[str, float]
) -> ModelCurve | None:
    """The whole model's estimated latency over the search, with the latencies to beat.

    Args:
        points: the curve of the report; without time passing, there is none to draw.
        untuned_ms: the latency with the default schedules, if it was measured.
        peers_ms: the latencies of other runtimes, by their names for readers.
    """
    if len(points) < 2 or points[-1].seconds <= 0:
        return None
    base = max(points[0].latency_ms, untuned_ms or 0.0)
    named = [("untuned", untuned_ms), *peers_ms.items()]
    known = [(name, value) for name, value in named if value is not None and math.isfinite(value)]
    inside = [(name, value) for name, value in known if value <= _ABOVE * base]
    top = max([base, *(value for _, value in inside)]) * _HEADROOM
    ticks, end = _axis(points[-1].seconds)
    steps = [f"M0,{_height(points[0].latency_ms, top, 100)}"]
    for point in points[1:]:
        steps.append(f"H{_place(point.seconds, end)}V{_height(point.latency_ms, top, 100)}")
    return ModelCurve(
        line="".join(steps),
        first=duration(points[0].latency_ms),
        last=duration(points[-1].latency_ms),
        lines=tuple(_curve_lines(inside, top)),
        above=tuple(f"{name} {duration(value)}" for name, value in known if value > _ABOVE * base),
        ticks=tuple(Tick(_place(value, end), duration(value * 1e3) if value else "0") for value in ticks),
    )


def _curve_lines(lines: Iterable[tuple[str, float]], top: float) -> Iterator[CurveLine]:
    """The lines from the top, with labels that do not overlap."""
    lowest = 0.0
    for name, value in sorted(lines, key=lambda line: -line[1]):
        y = _height(value, top, MODEL_CURVE_HEIGHT)
        label_y = max(y - 4, lowest + _LABEL_HEIGHT)
        lowest = label_y
        yield CurveLine(f"{name} {duration(value)}", y, label_y, name == "untuned")


def _height(value: float, top: float, height: float) -> float:
    return round(height * (1 - value / top), 2)


def _tail_note(latency: Latency) -> str:
    """The number of runs, and the percentiles that it allows."""
    runs = "1 run" if latency.runs == 1 else f"{count(latency.runs)} runs"
    tail = [
        f"{name} {duration(value)}"
        for name, value in (("p90", latency.p90_ms), ("p99", latency.p99_ms))
        if value is not None
    ]
    return f"{' · '.join(tail)} of {runs}" if tail else runs


def _tail_label(latency: Latency) -> str:
    """The highest percentile that the number of runs allows, else the median."""
    if latency.p99_ms is not None:
        return f"{duration(latency.p99_ms)} (p99)"
    if latency.p90_ms is not None:
        return f"{duration(latency.p90_ms)} (p90)"
    return f"{duration(latency.p50_ms)} (median)"


def _tail_ms(latency: Latency) -> float:
    return _first(latency.p99_ms, latency.p90_ms, latency.p50_ms)


def _first(*values: float | None) -> float:
    """The first known value."""
    return next(value for value in values if value is not None)


def _place_of(value: float | None, whole: float) -> float | None:
    return None if value is None else _place(value, whole)


def _speed(function: FunctionTime) -> str:
    """A function's rate of multiplications, if it has any."""
    if not function.flops or function.milliseconds <= 0:
        return ""
    return f"{three_digits(function.flops / function.milliseconds / 1e6)} GFLOP/s · "


def _function_label(function: FunctionTime) -> str:
    name = function.name if len(function.name) <= 44 else f"{function.name[:43]}…"
    return name if function.calls == 1 else f"{name} {TIMES} {function.calls}"


def _curve_x(trial: int, trials: int) -> str:
    return f"{CURVE_WIDTH * trial / trials:.1f}"


def _curve_y(value: float, top: float) -> str:
    return f"{CURVE_HEIGHT - 2 - (CURVE_HEIGHT - 8) * value / top if top > 0 else CURVE_HEIGHT:.1f}"


def _place(value: float, whole: float) -> float:
    """A position in percent, clamped to the chart; 0 if it is not a number."""
    if not math.isfinite(value) or not whole > 0:
        return 0.0
    return round(min(max(100 * value / whole, 0.0), 100.0), 2)


def _axis(longest: float) -> tuple[tuple[float, ...], float]:
    """Round tick values from 0, and the end of the axis, a little beyond ``longest``."""
    end = longest * 1.04 if math.isfinite(longest) and longest > 0 else 1.0
    return (0.0, *round_steps(0, end)), end


def round_steps(low: float, high: float, wanted: int = 4) -> tuple[float, ...]:
    """Round values above ``low`` up to ``high``, about ``wanted`` of them."""
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return ()
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in _STEPS if factor * power >= rough * 0.999)
    first = math.floor(low / step) + 1
    return tuple(step * index for index in range(first, math.floor(high / step) + 1))
