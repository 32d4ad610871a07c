"""How compilations differ: figures, functions, passes and requests, each beside the first. Pure functions."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.comparison import target_result
from app.console import words
from bessemer.contract.group import TargetResult
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.names import shown_labels
from bessemer.contract.report import BenchmarkResult, FunctionTime, Report
from bessemer.figures.words import baseline_name, duration, three_digits
from bessemer.gate.policy import WARN_PERCENT, Bounds, Outcome, judge
from bessemer.gate.summary import complaints

MOST_ROWS = 60
"""The most rows of one table; the rest are counted."""
MOST_LETTERS = 160
ALIKE = 0.03
"""Figures that differ by less than this share count as equal: measurements are not more repeatable."""
SMALL_SHARE = 0.002
"""A function whose time changes by less than this share of the model's is not listed."""
MINUS, TIMES, MISSING = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"
SHOWN_SECONDS = 0.1
LARGEST_COUNT = 1 << 62
GOOD, BAD, QUIET = "good", "bad", "quiet"
BOUNDS = Bounds(regress_percent=WARN_PERCENT)


@dataclass(frozen=True)
class Compared:
    """A compilation in a comparison; the report is None if it is missing or unreadable."""

    job: Compilation
    report: Report | None

    @property
    def result(self) -> TargetResult:
        """Its result, as in the comparison of a group."""
        return target_result(self.job, self.report)

    @property
    def labels(self) -> tuple[str, ...]:
        """Its labels, as the command line shows them."""
        return shown_labels(self.job.request.labels)


def headings(columns: Sequence[Compared]) -> tuple[str, ...]:
    """A heading for each compilation: its name, target and labels where these differ, or else its id."""
    told = (
        [column.job.name or "" for column in columns],
        [column.result.target for column in columns],
        [", ".join(column.labels) for column in columns],
    )
    differing = [texts for texts in told if len(set(texts)) > 1]
    if not differing:
        return tuple(words.short(column.job.id) for column in columns)
    return tuple(cut(", ".join(filter(None, texts))) for texts in zip(*differing, strict=True))


@dataclass(frozen=True)
class Cell:
    """A figure or a text; ``note`` says how it differs from the first one, in the color of ``kind``."""

    text: str = ""
    note: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Row:
    """A row: a cell for each compilation."""

    name: str
    cells: tuple[Cell, ...]
    detail: str = ""


@dataclass(frozen=True)
class Table:
    """The rows that differ.

    Attributes:
        rows: at most ``MOST_ROWS``.
        more: how many others differ.
        alike: how many do not differ.
    """

    rows: tuple[Row, ...]
    more: int
    alike: int


def ratio(now: float | None, base: float | None) -> float | None:
    """A figure divided by the first one; None if the ratio is meaningless: jobs may write any number."""
    if now is None or not base:
        return None
    try:
        found = now / base
    except OverflowError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def change(factor: float) -> str:
    """A ratio as text: ``+12.0 %``, or the factor where a percentage would mislead."""
    if not 0.5 <= factor < 2:
        return f"{TIMES}{factor:.3g}"
    percent = abs(factor - 1) * 100
    return f"{'+' if factor >= 1 else MINUS}{percent:.1f} %" if percent >= 0.05 else "the same"


@dataclass(frozen=True)
class Figure:
    """A figure of a compilation.

    Attributes:
        better: -1 if less is better, 1 if more is, 0 if neither is.
        absent: why a compilation does not have the figure, in words; empty if there is nothing to say.
    """

    name: str
    of: Callable[[Compared], float | None]
    shown: Callable[[float], str]
    better: int = 0
    absent: Callable[[Compared], str] = lambda column: ""

    def row(self, columns: Sequence[Compared]) -> Row:
        """The row of the figure."""
        values = [self.of(column) for column in columns]
        cells = (self._cell(column, values[index], values[0], index) for index, column in enumerate(columns))
        return Row(self.name, tuple(cells))

    def _cell(self, column: Compared, value: float | None, base: float | None, index: int) -> Cell:
        if value is None:
            return Cell(self.absent(column))
        factor = ratio(value, base) if index else None
        if factor is None:
            return Cell(self.shown(value))
        return Cell(self.shown(value), *judged(factor, self.better))


def judged(factor: float, better: int = -1) -> tuple[str, str]:
    """The words for a ratio, and its kind."""
    if abs(factor - 1) < ALIKE or not better:
        return change(factor), QUIET
    return change(factor), GOOD if (factor > 1) is (better > 0) else BAD


def _latency(part: str) -> Callable[[Compared], float | None]:
    def of(column: Compared) -> float | None:
        latency = column.result.latency
        value: float | None = None if latency is None else getattr(latency, part)
        return value

    return of


def _peer(column: Compared) -> float | None:
    peer = column.result.peer
    return None if peer is None else peer.latency.p50_ms


def _against_peer(column: Compared) -> float | None:
    peer = column.result.peer
    return None if peer is None or peer.doubt or column.result.unsteady else peer.ratio


def _tokens(column: Compared) -> float | None:
    return None if column.job.figures is None else column.job.figures.tokens_per_second


def _cycles(column: Compared) -> float | None:
    """The estimate for a library that was not measured."""
    result = column.result
    if result.estimate is None or result.latency is not None or result.state is not JobState.SUCCEEDED:
        return None
    return min(result.estimate.cycles, LARGEST_COUNT)


def _memory(column: Compared) -> float | None:
    return None if column.job.figures is None else column.job.figures.peak_memory_bytes


def _size(value: float) -> str:
    return words.size(int(value))


def _share(value: float) -> str:
    return f"{100 * value:.2g} %"


FIGURES = (
    Figure("Median latency", _latency("p50_ms"), duration, -1),
    Figure("Fastest run", _latency("min_ms"), duration, -1),
    Figure("90th percentile", _latency("p90_ms"), duration, -1),
    Figure("Tokens a second", _tokens, lambda value: f"{value:.4g}", 1),
    Figure("Fastest baseline", _peer, duration),
    Figure("Library / fastest baseline", _against_peer, three_digits, -1),
    Figure("Estimate of a run, in cycles", _cycles, lambda value: f"{value:,.0f}", -1),
    Figure("Library size", lambda column: column.result.library_bytes, _size, -1),
    Figure("Bundle size", lambda column: column.result.bundle_bytes, _size),
    Figure("Peak memory", _memory, _size, -1),
    Figure("Largest error", lambda column: column.result.max_absolute_error, three_digits),
    Figure("Error relative to its bound", lambda column: column.result.error_share, _share),
    Figure(
        "Compile time",
        lambda column: column.result.seconds,
        words.seconds,
        absent=lambda column: "from the cache" if column.job.cached else "",
    ),
)


def _text(name: str, of: Callable[[Compared], str]) -> Callable[[Sequence[Compared]], Row]:
    return lambda columns: Row(name, tuple(Cell(cut(of(column))) for column in columns))


TEXTS = (
    _text("Target", lambda column: column.result.target),
    _text("Processor", lambda column: column.result.processor or ""),
    _text("Threads", lambda column: str(column.result.threads or "")),
    _text(
        "Name of the fastest baseline",
        lambda column: baseline_name(column.result.peer.name) if column.result.peer else "",
    ),
    _text("Doubt", lambda column: column.result.unsteady),
)


def cut(text: str) -> str:
    """The start of a long text."""
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}…"


def figure_rows(columns: Sequence[Compared]) -> tuple[Row, ...]:
    """The figures, and what they were measured on; without rows that are empty."""
    rows = (*(figure.row(columns) for figure in FIGURES), *(text(columns) for text in TEXTS))
    return tuple(row for row in rows if any(cell.text for cell in row.cells))


def function_table(columns: Sequence[Compared]) -> Table:
    """The functions whose time in one run of the model differs, most first."""
    found = [dict(_functions(column.report)) for column in columns]
    timed = [functions for functions in found if functions]
    if len(timed) < 2:
        return Table((), 0, 0)
    names = dict.fromkeys(name for functions in timed for name in functions)
    total = max(sum(map(_milliseconds, functions.values())) for functions in timed)
    weights = {name: _weight([functions.get(name) for functions in timed], total) for name in names}
    changed = sorted((name for name in names if weights[name] > 0), key=lambda name: -weights[name])
    rows = tuple(_function_row(name, found) for name in changed[:MOST_ROWS])
    return Table(rows, max(0, len(changed) - MOST_ROWS), len(names) - len(changed))


def _functions(report: Report | None) -> Iterator[tuple[str, FunctionTime]]:
    if report is None:
        return
    yield from _named("", report.benchmark)
    for entry in report.entries:
        yield from _named(f"{entry.name}: ", entry.benchmark)


def _named(prefix: str, benchmark: BenchmarkResult | None) -> Iterator[tuple[str, FunctionTime]]:
    for function in () if benchmark is None else benchmark.functions:
        yield prefix + function.name, function


def _milliseconds(function: FunctionTime) -> float:
    value = function.milliseconds
    return value if math.isfinite(value) else 0.0


def _weight(functions: Sequence[FunctionTime | None], total: float) -> float:
    """The largest difference from the first time in milliseconds; 0 if all are small.

    It is never 0 if some, but not all, compilations lack the function.
    """
    times = [0.0 if function is None else _milliseconds(function) for function in functions]
    differences = [abs(time - times[0]) for time in times]
    if None in functions and any(functions):
        return max(*differences, 1e-12)
    counts = any(
        difference > SMALL_SHARE * total and difference > ALIKE * times[0] for difference in differences
    )
    return max(differences) if counts else 0.0


def _function_row(name: str, found: Sequence[Mapping[str, FunctionTime]]) -> Row:
    functions = [each.get(name) for each in found]
    base = functions[0]
    known = next(function for function in functions if function is not None)

    def cell(index: int, function: FunctionTime | None) -> Cell:
        if not found[index]:
            return Cell(MISSING, "not measured", QUIET)
        if function is None:
            return Cell(MISSING, "not there" if index else "", QUIET)
        text = duration(function.milliseconds)
        if not index:
            return Cell(text)
        factor = None if base is None else ratio(function.milliseconds, base.milliseconds)
        return Cell(text, "new", QUIET) if factor is None else Cell(text, *judged(factor))

    return Row(cut(name), tuple(cell(*each) for each in enumerate(functions)), cut(known.products))


@dataclass(frozen=True)
class PassRun:
    """The runs of one pass, or the uses of one rewrite, together."""

    runs: int
    seconds: float
    functions: int | None

    @property
    def text(self) -> str:
        """What it did, in words."""
        if self.functions is None:
            return f"{self.runs} time{'' if self.runs == 1 else 's'}"
        took = f", {words.seconds(self.seconds)}" if self.seconds >= SHOWN_SECONDS else ""
        return f"{self.functions} functions{took}"


def pass_table(columns: Sequence[Compared]) -> Table:
    """The passes and rewrites whose number of runs, or of functions after them, differs."""
    found = [dict(_passes(column.report)) for column in columns if column.report is not None]
    if len(found) < 2:
        return Table((), 0, 0)
    every = [dict(_passes(column.report)) for column in columns]
    names = dict.fromkeys(name for passes in found for name in passes)
    changed = [name for name in names if len({_effect(passes.get(name)) for passes in found}) > 1]
    rows = tuple(
        Row(cut(name), tuple(_pass_cell(passes.get(name), every[0].get(name)) for passes in every))
        for name in changed[:MOST_ROWS]
    )
    return Table(rows, max(0, len(changed) - MOST_ROWS), len(names) - len(changed))


def _passes(report: Report | None) -> Iterator[tuple[str, PassRun]]:
    if report is None:
        return
    found: dict[str, PassRun] = {}
    for one in report.passes:
        name = f"{one.phase}: {one.name}"
        before = found.get(name, PassRun(0, 0.0, None))
        found[name] = PassRun(before.runs + 1, before.seconds + one.seconds, one.functions)
    yield from found.items()
    for rewrite in report.rewrites:
        yield f"rewrite: {rewrite.name}", PassRun(rewrite.count, 0.0, None)


def _effect(found: PassRun | None) -> tuple[int, int | None] | None:
    return None if found is None else (found.runs, found.functions)


def _pass_cell(found: PassRun | None, base: PassRun | None) -> Cell:
    if found is None:
        return Cell(MISSING)
    return Cell(found.text, "differs" if _effect(found) != _effect(base) and base is not None else "", QUIET)


def request_table(columns: Sequence[Compared]) -> Table:
    """The fields of the requests that differ."""
    found = [dict(flat(column.job.request.model_dump(mode="json"))) for column in columns]
    names = dict.fromkeys(name for fields in found for name in fields)
    changed = [name for name in names if len({fields.get(name, "") for fields in found}) > 1]
    rows = tuple(
        Row(cut(name), tuple(Cell(cut(fields.get(name, ""))) for fields in found))
        for name in changed[:MOST_ROWS]
    )
    return Table(rows, max(0, len(changed) - MOST_ROWS), len(names) - len(changed))


def flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The fields of a document with dotted names, as JSON; a list is one field."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from flat(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Bar:
    """A bar of a chart; ``share`` is its length, 0 to 100. A bar too long for the chart has an arrow."""

    name: str
    text: str
    share: float
    is_peer: bool
    goes_beyond: bool = False


LONGEST_BASELINE = 3.0
"""The chart ends at this many times the slowest library: a slow baseline must not hide what differs."""


def latency_bars(columns: Sequence[Compared]) -> tuple[tuple[Compared, tuple[Bar, ...]], ...]:
    """For each measured compilation, its median latency above those of its baselines."""
    found = [(column, tuple(_medians(column))) for column in columns]
    times = [(time, is_peer) for _, medians in found for _, time, is_peer in medians]
    ours = max((time for time, is_peer in times if not is_peer), default=0.0)
    longest = min(max(times, default=(0.0, False))[0], LONGEST_BASELINE * ours)
    return tuple(
        (column, tuple(_bar(name, time, longest, is_peer) for name, time, is_peer in medians))
        for column, medians in found
        if medians
    )


def _medians(column: Compared) -> Iterator[tuple[str, float, bool]]:
    figures = column.job.figures
    if figures is None:
        return
    ours = (("library", figures.latency.p50_ms, False),)
    peers = ((baseline_name(peer.name), peer.latency.p50_ms, True) for peer in figures.baselines)
    yield from (each for each in (*ours, *peers) if math.isfinite(each[1]) and each[1] >= 0)


def _bar(name: str, time: float, longest: float, is_peer: bool) -> Bar:
    share = 100 * (ratio(time, longest) or 0.0)
    return Bar(name, duration(time), min(share, 100.0), is_peer, share > 100)


def same_reference(columns: Iterable[Compared], name: str) -> bool | None:
    """Whether all libraries were verified with the same inputs and outputs; None with fewer than two."""
    digests = [file.digest for column in columns for file in column.job.artifacts if file.name == name]
    return len(set(digests)) == 1 if len(digests) > 1 else None


def gate_outcome(column: Compared, base: Compared) -> Outcome | None:
    """The outcome of a gate that has the first compilation's report as its base; None if it cannot judge."""
    if column.report is None or base.report is None:
        return None
    try:
        return judge(column.job.name or column.job.id, column.job, column.report, base.report, BOUNDS)
    except OverflowError:  # a job wrote an absurdly large number
        return None


def is_judged(outcome: Outcome) -> bool:
    """Whether the compilation failed, or the gate had both figures for every bound."""
    if outcome.document.problem is not None:
        return True
    was_compared = any(measure.change_percent is not None for measure in outcome.measures)
    return was_compared and not outcome.unjudged


def reasons(outcome: Outcome) -> tuple[str, ...]:
    """Why a gate would stop a compilation; empty if it would not."""
    return tuple(text for _, text in outcome.breaches) or (
        complaints(outcome) if outcome.document.problem is not None else ()
    )
