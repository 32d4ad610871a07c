"""What the page of a compilation shows of its result. Pure functions of its documents."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.comparison import error_share
from app.console.distribution import Ridges, latency_ridges
from app.console.time_map import TimeMap, time_map
from bessemer.contract.dynamic import shown_sizes
from bessemer.contract.job import Compilation
from bessemer.contract.report import (
    BenchmarkResult,
    FunctionGap,
    OutputComparison,
    Report,
    RunMemory,
)
from bessemer.figures import charts, words
from bessemer.figures.headline import Headline, make_headline

MEMORY_POINTS = 400
SHOWN_OUTPUTS = 100
MAX_TEXT = 200


@dataclass(frozen=True)
class Against:
    """The library compared with one baseline, or why it is not. ``factor`` is in words, such as ``1.8x``."""

    name: str
    verdict: str
    latency: str
    wins: bool
    loses: bool
    doubt: str = ""


@dataclass(frozen=True)
class Output:
    """How one output compares with its reference.

    Attributes:
        share: the error of the element closest to its bound, as a share of the bound, at most 1.
    """

    name: str
    shape: str
    matching: str
    is_good: bool
    tolerance: str
    absolute: str
    relative: str
    worst: str
    share: float
    share_text: str
    notes: str


@dataclass(frozen=True)
class Memory:
    """The memory in use over the calls of a run.

    Attributes:
        area: an SVG path in a box of 100 by 100.
        peak_at: the position of the peak, in percent.
    """

    area: str
    peak: str
    peak_at: float
    peak_function: str
    arena: str
    calls: int


@dataclass(frozen=True)
class Gap:
    """How far a function is from the machine's ceiling."""

    name: str
    time: str
    share: float
    ceiling_share: float
    bound: str
    to_gain: str


@dataclass(frozen=True)
class Result:
    """The result of a compilation that has succeeded. Parts that were not measured or kept are None."""

    verified: bool | None
    verified_how: str
    headline: Headline
    latency: tuple[str, str] | None
    sizes: str
    against: tuple[Against, ...]
    unsteady: str
    drift: str
    max_error: str
    ridges: Ridges | None
    time: TimeMap | None
    times_agree: bool
    outputs: tuple[Output, ...]
    more_outputs: int
    memory: Memory | None
    ceiling: str
    gaps: tuple[Gap, ...]
    outlook: str
    curve: charts.ModelCurve | None
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    not_measured: str


def make_result(job: Compilation, report: Report | None) -> Result:
    """Gather what the page shows.

    Args:
        job: a compilation that has succeeded.
        report: its report, if it can be read; without it, only the service's own figures are shown.

    Raises:
        ArithmeticError, ValueError: a number is out of range.
    """
    figures = job.figures
    benchmark = None if report is None else report.benchmark
    baselines = figures.baselines if figures else ()
    comparison = None if benchmark is None else benchmark.comparison
    functions = () if benchmark is None else benchmark.functions
    comparisons = () if report is None else tuple(_comparisons(report))
    return Result(
        verified=job.verified,
        verified_how="" if report is None else words.verified_how(report),
        headline=make_headline(baselines),
        latency=None if figures is None else _number(figures.latency.p50_ms),
        sizes=_sizes(job, report),
        against=tuple(_against(job)),
        unsteady="" if figures is None else figures.unsteady[:MAX_TEXT],
        drift="" if benchmark is None else benchmark.drift[:MAX_TEXT],
        max_error="" if figures is None else words.three_digits(figures.max_absolute_error),
        ridges=None if benchmark is None else latency_ridges(benchmark),
        time=time_map(functions),
        times_agree=_agree(benchmark),
        outputs=tuple(_output(entry, found) for entry, found in comparisons[:SHOWN_OUTPUTS]),
        more_outputs=max(len(comparisons) - SHOWN_OUTPUTS, 0),
        memory=None if report is None or report.memory is None else memory_chart(report.memory),
        ceiling="" if comparison is None or comparison.ceiling is None else words.ceiling(comparison.ceiling),
        gaps=() if comparison is None else tuple(map(_gap, comparison.holding_back[:20])),
        outlook=""
        if comparison is None or benchmark is None or not comparison.holding_back
        else words.outlook(comparison, benchmark.latency.p50_ms),
        curve=None if report is None else _curve(report),
        facts=tuple(_facts(job, report)),
        warnings=tuple(_warnings(job, report)),
        not_measured=words.not_measured(report) if report is not None and job.verified is not None else "",
    )


def memory_chart(memory: RunMemory) -> Memory | None:
    """The memory over the calls of a run; None if it has none."""
    sizes = [max(call.live_bytes, 0) for call in memory.calls]
    peak = max(sizes, default=0)
    if peak == 0:
        return None
    step = -(-len(sizes) // MEMORY_POINTS)
    shown = [max(sizes[start : start + step]) for start in range(0, len(sizes), step)]
    width = 100 / len(shown)
    steps = "".join(
        f"V{100 - 92 * size / peak:.2f}H{width * (index + 1):.2f}" for index, size in enumerate(shown)
    )
    at = sizes.index(peak)
    return Memory(
        area=f"M0,100{steps}V100Z",
        peak=words.size(peak),
        peak_at=round(100 * (at + 0.5) / len(sizes), 2),
        peak_function=memory.calls[at].function[:MAX_TEXT],
        arena=words.size(max(memory.arena_bytes, 0)),
        calls=len(sizes),
    )


def _number(milliseconds: float) -> tuple[str, str]:
    number, _, unit = words.duration(milliseconds).partition(" ")
    return number, unit


def _against(job: Compilation) -> Iterator[Against]:
    figures = job.figures
    if figures is None:
        return
    for peer in figures.baselines:
        name, latency = words.baseline_label(peer)[:MAX_TEXT], words.duration(peer.latency.p50_ms)
        if peer.doubt:
            yield Against(name, "not compared", latency, False, False, peer.doubt[:MAX_TEXT])
            continue
        ratio = peer.ratio
        known = math.isfinite(ratio) and ratio > 0
        yield Against(
            name,
            words.ratio_words(ratio).removesuffix(" than").removesuffix(" as"),
            latency,
            wins=known and ratio < 1 - words.SAME_WITHIN,
            loses=known and ratio > 1 + words.SAME_WITHIN,
        )
    for absent in figures.comparison.absent if figures.comparison else ():
        name = words.baseline_name(absent.name)[:MAX_TEXT]
        yield Against(name, "not timed", "", False, False, absent.reason[:MAX_TEXT])


def _sizes(job: Compilation, report: Report | None) -> str:
    """The dynamic sizes of the latency, or of a check's work."""
    preflight = None if report is None else report.preflight
    about = job.figures or preflight
    return "" if about is None else shown_sizes(about.sizes)


def _comparisons(report: Report) -> Iterator[tuple[str, OutputComparison]]:
    first = next(iter(report.request.entries), "") if report.entries else ""
    yield from ((first, found) for found in report.comparisons)
    for entry in report.entries:
        yield from ((entry.name, found) for found in entry.comparisons)


def _output(entry: str, found: OutputComparison) -> Output:
    share = error_share(found)
    index = f"[{', '.join(map(str, found.worst_index[:16]))}] " if found.worst_index else ""
    matching = found.elements - found.mismatches
    return Output(
        name=f"{entry}: {found.name}"[:MAX_TEXT] if entry else found.name[:MAX_TEXT],
        shape=f"{'x'.join(map(str, found.shape[:16])) or 'scalar'}:{found.dtype.value}",
        matching=f"all {words.count(found.elements)}"
        if found.mismatches == 0
        else f"{words.count(matching)} of {words.count(found.elements)}",
        is_good=found.mismatches == 0,
        tolerance=f"{words.three_digits(found.tolerance.absolute)} + "
        f"{words.three_digits(found.tolerance.relative)} {words.TIMES} |r|",
        absolute=words.three_digits(found.max_absolute_error),
        relative=words.three_digits(found.max_relative_error),
        worst=f"{index}{words.element(found.worst_value)} for {words.element(found.worst_reference)}",
        share=min(share, 1.0) if math.isfinite(share) else 1.0,
        share_text=words.percent(share),
        notes="; ".join(_output_notes(found)),
    )


def _output_notes(found: OutputComparison) -> Iterator[str]:
    if found.rounding is not None:
        yield f"torch itself rounds by {words.three_digits(found.rounding)}"
    if found.reordered:
        yield f"{words.count(found.reordered)} rows that tie are in another order"
    if found.moved_inputs:
        yield "the result for inputs that differ by rounding"


def _gap(gap: FunctionGap) -> Gap:
    reached = gap.ceiling_share if math.isfinite(gap.ceiling_share) else 0.0
    return Gap(
        name=gap.name[:MAX_TEXT],
        time=words.duration(gap.milliseconds),
        share=gap.share,
        ceiling_share=min(max(reached, 0.0), 1.0),
        bound=gap.bound[:MAX_TEXT],
        to_gain=words.duration(gap.could_save_ms),
    )


def _curve(report: Report) -> charts.ModelCurve | None:
    """The curve of the search. Peers that the benchmark measured have its latencies."""
    tune = report.tune
    if tune is None or tune.estimate is None:
        return None
    peers = {words.baseline_name(name): value for name, value in tune.estimate.peers_ms.items()}
    measured = report.benchmark.baselines if report.benchmark else ()
    peers |= {words.baseline_name(peer.name): peer.latency.p50_ms for peer in measured if not peer.doubt}
    return charts.model_curve(tune.curve, tune.estimate.untuned_ms, peers)


def _agree(benchmark: BenchmarkResult | None) -> bool:
    """Whether the functions' times add up to about the time of a run."""
    if benchmark is None:
        return True
    total = math.fsum(each.milliseconds for each in benchmark.functions)
    return abs(total - benchmark.latency.p50_ms) <= 0.25 * benchmark.latency.p50_ms


def _facts(job: Compilation, report: Report | None) -> Iterator[tuple[str, str]]:
    if job.figures is not None:
        yield "Library", words.size(job.figures.library_bytes)
        yield "Peak memory", words.size(job.figures.peak_memory_bytes)
        if job.figures.tokens_per_second is not None:
            yield "Tokens per second", words.three_digits(job.figures.tokens_per_second)
    if report is None:
        return
    yield "Parameters", words.count(max(report.model_parameters, 0))
    if report.benchmark is not None:
        yield "Threads", str(report.benchmark.threads)
    if report.tune is not None and report.tune.trials:
        yield "Trials", words.count(report.tune.trials)
    if job.verified:
        yield "Processor", report.processor[:MAX_TEXT]


def _warnings(job: Compilation, report: Report | None) -> Iterator[str]:
    sandbox = job.sandbox or (report.sandbox if report else None)
    if sandbox is not None and sandbox.lost:
        layers = words.listed(layer.value[:MAX_TEXT] for layer in sandbox.lost)
        what = "this layer" if len(sandbox.lost) == 1 else "these layers"
        yield f"The job ran without {what} of the sandbox: {layers}."
    if job.verified is False:
        yield "Nothing has run this library: the request asked for no verification."
    if report is None:
        return
    if report.winograd_mismatch:
        yield (
            "With convolutions by Winograd's algorithm, the library did not match: "
            f"{report.winograd_mismatch[:MAX_TEXT]}. It was compiled again with direct convolutions."
        )
    if report.splits:
        names = words.listed(_some(split.name for split in report.splits))
        yield f"{names} took too long to compile as a whole. Compiled in parts, it may be slower."
    if report.tune is not None and (short := words.short_search(report.tune)):
        yield short
    if report.tune is not None and report.tune.unclaimed:
        yield _general_schedules(report.tune.unclaimed, _some(report.tune.unclaimed_functions))


def _general_schedules(count: int, names: list[str]) -> str:
    which = f": {words.listed(names)}" if names else ""
    if count == 1:
        return (
            f"The compiler has no schedule made for 1 function{which}. General rules schedule it, and it may "
            "be slower than it could be. That matters only if it takes much of a run's time."
        )
    return (
        f"The compiler has no schedules made for {words.count(count)} functions{which}. General rules "
        "schedule them, and they may be slower than they could be. That matters only if they take much of a "
        "run's time."
    )


def _some(names: Iterable[str], most: int = 5) -> list[str]:
    """The first names, and the number of the others as a text."""
    found = [name[:MAX_TEXT] for name in names]
    return found[:most] + ([f"{len(found) - most} more"] if len(found) > most else [])
