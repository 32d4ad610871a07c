"""The gate's policy: pure functions from reports and bounds to verdicts.

Workers differ in speed, and one worker's speed varies over time. The most reliable figure is the ratio to
torch eager, which was measured in alternation with the library. But a model that does more work keeps its
ratio, so the gate also judges milliseconds if both reports come from the same kind of machine.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isinf
from types import MappingProxyType

from bessemer.contract.dynamic import shown_sizes
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.options import Baseline
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import BaselineResult, BenchmarkResult, Latency, Report
from bessemer.contract.request import MAIN_ENTRY
from bessemer.contract.tensor import SCALAR
from bessemer.gate.outputs import OutputChange


class Verdict(StrEnum):
    """The verdict of a gate, worst first."""

    FAILED = "failed"
    WRONG = "wrong"
    SLOWER = "slower"
    LARGER = "larger"
    UNSTEADY = "unsteady"
    PASSED = "passed"


WRONG_CODES = frozenset({ErrorCode.VERIFY_MISMATCH, ErrorCode.VERIFY_CRASHED})
LATENCY_RATIO = "--max-latency-ratio"
LATENCY_MS = "--max-latency-ms"
SIZE = "--max-size"
MEMORY = "--max-memory"
REGRESS = "--max-regress-percent"
OUTPUT_CHANGE = "--max-output-change"
WARN_PERCENT = 10.0
"""The gate warns of larger growth if no bound covers it."""

WARN_OUTPUT_PERCENT = 1.0
"""The same for outputs. Rounding stays far below this, and new weights exceed it."""


@dataclass(frozen=True)
class Bounds:
    """The bounds of a pipeline; None allows anything.

    Attributes:
        latency_ratio: maximum latency relative to torch eager.
        latency_ms: maximum median latency.
        library_bytes: maximum size of ``model.so``.
        memory_bytes: maximum memory for loading and running the library.
        regress_percent: maximum growth of each of these over the base.
        output_percent: maximum change of an output on the base's inputs.
    """

    latency_ratio: float | None = None
    latency_ms: float | None = None
    library_bytes: int | None = None
    memory_bytes: int | None = None
    regress_percent: float | None = None
    output_percent: float | None = None

    @property
    def of_figures(self) -> tuple[str, ...]:
        """The options of those bounds that need a measured library."""
        options = {
            LATENCY_RATIO: self.latency_ratio,
            LATENCY_MS: self.latency_ms,
            SIZE: self.library_bytes,
            MEMORY: self.memory_bytes,
            REGRESS: self.regress_percent,
        }
        return tuple(option for option, most in options.items() if most is not None)


@dataclass(frozen=True)
class Bound:
    """The maximum of a figure, or of its change in percent.

    Attributes:
        option: the option that sets it.
        most: the maximum; None allows anything.
        doubt: why exceeding the bound is inconclusive; empty if it is conclusive.
    """

    option: str
    most: float | None
    doubt: str = ""


@dataclass(frozen=True)
class Measure:
    """One figure, now and in the base, and its bounds.

    Attributes:
        name: a name for people.
        shown: formats the figure.
        now: the new figure; None if only the change is known.
        before: the base's figure, if any.
        change_percent: the change; None without a base.
        bound: the bound on ``now``; None if the compilation itself has judged it.
        change_bound: the bound on ``change_percent``; None if no option sets one.
        warn_percent: the gate warns of a larger change if no bound covers it.
        verdict: the verdict if a bound is conclusively exceeded.
        detail: the change in words, if the figures do not show it.
        unsteady: why the figure is unreliable; then no bound on it can be judged.
    """

    name: str
    shown: Callable[[float], str]
    now: float | None
    before: float | None
    change_percent: float | None
    bound: Bound | None
    change_bound: Bound | None
    verdict: Verdict
    warn_percent: float = WARN_PERCENT
    detail: str = ""
    unsteady: str = ""

    @property
    def is_beyond(self) -> bool:
        """Whether the figure exceeds its bound."""
        most = self.bound.most if self.bound else None
        return self.now is not None and most is not None and self.now > most

    @property
    def has_changed(self) -> bool:
        """Whether the change exceeds its bound, or the threshold for warnings if it has none."""
        if self.change_percent is None or self.change_bound is None:
            return False
        most = self.change_bound.most
        return self.change_percent > (self.warn_percent if most is None else most)

    @property
    def does_not_match(self) -> bool:
        """Whether the outputs cannot be compared, which no bound allows."""
        return isinf(self.change_percent or 0)

    @property
    def breaches(self) -> tuple[tuple[Verdict, str], ...]:
        """The bounds that are exceeded, or that an unsteady figure leaves undecided."""
        if self.unsteady:
            inconclusive = (Verdict.UNSTEADY, f"{self.name} is inconclusive: {self.unsteady}")
            return (inconclusive,) if self._has_bound else ()
        found = []
        if self.is_beyond and self.bound is not None:
            text = f"{self.name} is {self.shown(self.now or 0)}, {self.bound.option} allows "
            found.append((self.bound, f"{text}{self.shown(self.bound.most or 0)}"))
        if self.has_changed and self.change_bound is not None and self.change_bound.most is not None:
            allowed = f"; {self.change_bound.option} allows {shown_percent(self.change_bound.most)}"
            found.append((self.change_bound, self.change + ("" if self.does_not_match else allowed)))
        return tuple(
            (Verdict.UNSTEADY if bound.doubt else self.verdict, text + bound.doubt) for bound, text in found
        )

    @property
    def warning(self) -> str | None:
        """A large change that no bound covers."""
        if not self.has_changed or self.change_bound is None or self.change_bound.most is not None:
            return None
        doubt = f"; but {self.unsteady}" if self.unsteady else self.change_bound.doubt
        return f"{self.change}{doubt}; no bound covers this ({self.change_bound.option})"

    @property
    def change(self) -> str:
        """The change in words."""
        if self.does_not_match:
            return f"{self.name} do not match: {self.detail}"
        percent = shown_percent(self.change_percent or 0)
        if self.detail:
            return f"{self.name} changed by {percent}: {self.detail}"
        was = f"the base's {self.shown(self.before or 0)}"
        return f"{self.name} is {self.shown(self.now or 0)}, {percent} more than {was}"

    @property
    def _has_bound(self) -> bool:
        """Whether there is a bound, and a figure to compare with it."""
        is_bounded = self.bound is not None and self.bound.most is not None
        may_change = self.change_bound is not None and self.change_bound.most is not None
        return is_bounded or (may_change and self.change_percent is not None)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a gate.

    Attributes:
        model: the pipeline's name for the model.
        report: the report; None if the compilation failed.
        notes: what was not compared, and why.
        unjudged: the bounds that cannot be judged, and why.
    """

    model: str
    document: Compilation
    report: Report | None
    measures: tuple[Measure, ...]
    notes: tuple[str, ...]
    unjudged: tuple[str, ...] = ()

    @property
    def breaches(self) -> tuple[tuple[Verdict, str], ...]:
        """All exceeded bounds, worst verdict first."""
        order = list(Verdict)
        found = [breach for measure in self.measures for breach in measure.breaches]
        found += [(Verdict.FAILED, reason) for reason in self.unjudged]
        return tuple(sorted(found, key=lambda breach: order.index(breach[0])))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was not compared, and all large changes that no bound covers."""
        return (*self.notes, *(measure.warning for measure in self.measures if measure.warning))

    @property
    def given_bounds(self) -> dict[str, bool]:
        """The options of the bounds, and whether at least one figure was compared with each."""
        found: dict[str, bool] = {}
        for measure in self.measures:
            pairs = ((measure.bound, measure.now), (measure.change_bound, measure.change_percent))
            for bound, figure in pairs:
                if bound is not None and bound.most is not None:
                    found[bound.option] = found.get(bound.option, False) or figure is not None
        return found

    @property
    def doubt(self) -> str:
        """Why the measured times are unreliable; empty if they are reliable."""
        return doubt(self.report)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict."""
        if self.document.state is not JobState.SUCCEEDED:
            problem = self.document.problem
            return Verdict.WRONG if problem and problem.code in WRONG_CODES else Verdict.FAILED
        found = {verdict for verdict, _ in self.breaches}
        return next(verdict for verdict in Verdict if verdict in found or verdict is Verdict.PASSED)


def should_repeat(outcome: Outcome, previous: Report | None, makes_base: bool) -> bool:
    """Whether a second measurement can settle the verdict, or give later gates a steady base."""
    if outcome.verdict is Verdict.UNSTEADY:
        return bool(outcome.doubt) or not doubt(previous)
    return outcome.verdict is Verdict.PASSED and makes_base and bool(outcome.doubt)


def unfit_as_base(outcome: Outcome, previous: Report | None) -> str:
    """Why a report must not replace its own base; empty if it may."""
    is_undecided = outcome.verdict is Verdict.UNSTEADY and doubt(previous)
    if outcome.verdict is not Verdict.PASSED and not is_undecided:
        return "only a gate that passes replaces its own base"
    return f"a base must be steady, but {outcome.doubt}" if outcome.doubt else ""


def doubt(report: Report | None) -> str:
    """Why a report's times are unreliable; empty if they are reliable, or were not measured."""
    pairs = _pairs(report, None)[0] if report else ()
    found = (f"{pair.label}{reason}" for pair in pairs if (reason := _doubt_of(pair.now)))
    return next(found, "")


def _doubt_of(result: BenchmarkResult) -> str:
    eager = _eager(result)
    return result.unsteady or (eager.doubt if eager else "")


def judge(
    model: str,
    document: Compilation,
    report: Report | None,
    previous: Report | None,
    bounds: Bounds,
    notes: tuple[str, ...] = (),
    outputs: Mapping[str, OutputChange] = MappingProxyType({}),
) -> Outcome:
    """Compare each entry point of a compilation with bounds, and with the base's report ``previous``.

    ``notes`` say what is already known not to be comparable. ``outputs`` has the changes of the outputs by
    entry point, as far as they were compared.
    """
    if report is None:
        return Outcome(model, document, None, (), notes)
    if report.benchmark is None:
        reason = _not_measured(report)
        unjudged = tuple(f"{option} cannot be judged: {reason}" for option in bounds.of_figures)
        return Outcome(model, document, report, (), (*notes, reason), unjudged)
    difference = None if previous is None else _difference(report, previous)
    other = () if previous is None else _other_model(document.name, report, previous)
    pairs, unpaired = _pairs(report, None if difference else previous)
    figures = tuple(measure for pair in pairs for measure in _measures(pair, bounds))
    changes = tuple(_output_measure(pair.label, outputs.get(pair.name), bounds) for pair in pairs)
    gaps = (difference,) if difference else (*unpaired, *(gap for pair in pairs for gap in _gaps(pair)))
    measures, found = (*figures, *changes), (*notes, *gaps)
    error = _error(pair.report for pair in pairs)
    return Outcome(model, document, report, (*measures, error), (*other, *found, *_unjudged(measures, found)))


def _not_measured(report: Report) -> str:
    if not report.verified:
        return "the library was neither verified nor measured"
    where = "on a device" if report.device else f"for {report.target.triple}"
    return f"the library was verified {where}, and the worker that compiled it did not measure it"


@dataclass(frozen=True)
class EntryPair:
    """An entry point, now and in the base.

    Attributes:
        name: its name.
        label: begins the names of its measures: empty if it is the only entry point.
        is_first: whether it is the first entry point.
        report: the report as if it were the only entry point.
        now: its measurements.
        previous: the same report of the base; None if it has no such entry point.
    """

    name: str
    label: str
    is_first: bool
    report: Report
    now: BenchmarkResult
    previous: Report | None


def first_entry(report: Report) -> str:
    """The name of the first entry point."""
    return next(iter(report.request.entries), MAIN_ENTRY)


def uncompared(entries: Collection[str], previous: Report, bounds: Bounds) -> str:
    """Why a bound on a change cannot hold for any of the ``entries``; empty if it applies to one of them.

    A base with a single entry point is compared with the first.
    """
    if bounds.regress_percent is None and bounds.output_percent is None:
        return ""
    now, before = tuple(entries) or (MAIN_ENTRY,), tuple(_alone(previous))
    if len(before) == 1 or set(now) & set(before):
        return ""
    return (
        f"nothing can be compared: the base has the entry points {', '.join(before)}, but the model has "
        f"{', '.join(now)}; make a new base with --report and without --compare, or rename the entry points"
    )


def without_base(bounds: Bounds, has_report: bool, has_outputs: bool) -> tuple[str, ...]:
    """The options of the bounds on changes that have nothing to compare with.

    Args:
        bounds: the bounds.
        has_report: whether there is a base's report.
        has_outputs: whether there are outputs to compare with, of a base or of a golden file.
    """
    unmet = {
        REGRESS: bounds.regress_percent is not None and not has_report,
        OUTPUT_CHANGE: bounds.output_percent is not None and not has_outputs,
    }
    return tuple(option for option, is_unmet in unmet.items() if is_unmet)


def _alone(report: Report) -> dict[str, Report]:
    """The report of each entry point as if it were the only one, by name, in order."""
    others = {
        entry.name: report.model_copy(
            update={
                "inputs": entry.inputs,
                "outputs": entry.outputs,
                "dynamic": entry.dynamic,
                "comparisons": entry.comparisons,
                "benchmark": entry.benchmark,
                "entries": (),
            }
        )
        for entry in report.entries
    }
    return {first_entry(report): report.model_copy(update={"entries": ()}), **others}


def _pairs(report: Report, previous: Report | None) -> tuple[tuple[EntryPair, ...], tuple[str, ...]]:
    """The entry points with those of the base, and notes on those without a counterpart.

    Entry points pair by name. The first also pairs with the only one of a base from before it had a name.
    """
    now, before = _alone(report), _alone(previous) if previous else {}
    if len(before) == 1:
        before = {first_entry(report): one for one in before.values()}
    pairs = tuple(
        EntryPair(
            name=name,
            label=f"{name}: " if len(now) > 1 else "",
            is_first=name == first_entry(report),
            report=alone,
            now=alone.benchmark,
            previous=before.get(name),
        )
        for name, alone in now.items()
        if alone.benchmark is not None
    )
    if previous is None:
        return pairs, ()
    new = (f"the base has no entry point '{name}': it was not compared" for name in now if name not in before)
    gone = (f"the base's entry point '{name}' was not compared" for name in before if name not in now)
    return pairs, (*new, *gone)


def shown_percent(value: float) -> str:
    """Format a change."""
    return f"{value:.1f} %" if abs(value) >= 1 or not value else f"{value:.2g} %"


def _other_model(name: str | None, report: Report, previous: Report) -> tuple[str, ...]:
    """A note that the base is of another model, by its name or by its signature.

    Digests don't tell: new weights change them.
    """
    named = previous.request.name
    if name and named and name != named:
        return (f"the base is of the model '{named}', not of '{name}'",)
    if report.entries or previous.entries or _kinds(report) == _kinds(previous):
        return ()
    of = f"the model '{named}'" if named else "a model"
    return (f"the base is of {of} with other inputs or outputs: they differ in number, rank or dtype",)


def _kinds(report: Report) -> tuple[object, ...]:
    """The ranks and dtypes of the inputs and outputs."""
    sides = (report.inputs, report.outputs)
    return tuple(tuple((len(spec.shape), spec.dtype) for spec in side) for side in sides)


def _difference(report: Report, previous: Report) -> str | None:
    """Why two reports cannot be compared."""
    if previous.benchmark is None:
        return "the base's report has no benchmark: its figures were not compared"
    now, before = _target(report), _target(previous)
    if now != before:
        return f"the base is for {before}, this library for {now}: their figures were not compared"
    return None


def _gaps(pair: EntryPair) -> tuple[str, ...]:
    """Why the ratios or the milliseconds cannot be compared."""
    report, now, previous = pair.report, pair.now, pair.previous
    if previous is None or previous.benchmark is None:
        return ()
    found = []
    if (_eager(now) is None) != (_eager(previous.benchmark) is None):
        which = "the base's report" if _eager(now) else "this report"
        found.append(f"{which} has no latency beside torch eager: the ratio was not compared")
    machines = _machine(report, now), _machine(previous, previous.benchmark)
    if machines[0] != machines[1]:
        found.append(
            f"the base was measured on {machines[1]}, this library on {machines[0]}: "
            "the latency in milliseconds was not compared"
        )
    shapes = _shapes(report), _shapes(previous)
    if shapes[0] != shapes[1]:
        found.append(
            f"the base was measured on inputs of {shapes[1]}, this library on {shapes[0]}: "
            "the latency in milliseconds was not compared"
        )
    return tuple(f"{pair.label}{text}" for text in found)


def _unjudged(measures: tuple[Measure, ...], notes: tuple[str, ...]) -> tuple[str, ...]:
    """The bounds on changes that could not be applied, unless a note already says so."""
    bounds = [measure.change_bound for measure in measures if measure.change_percent is None]
    options = dict.fromkeys(bound.option for bound in bounds if bound and bound.most is not None)
    return () if notes else tuple(f"{option} was not applied: the base is missing" for option in options)


def _target(report: Report) -> str:
    target = report.target
    if target.gpus:
        return target.hardware
    return f"{' '.join((target.mcpu, *target.features))} with {target.cores} cores"


def _shapes(report: Report) -> str:
    """The shapes and dtypes of the inputs, without names, which do not affect speed."""
    shapes = ("x".join(map(str, spec.shape)) or SCALAR for spec in report.inputs)
    return ", ".join(f"{shape}:{spec.dtype}" for shape, spec in zip(shapes, report.inputs, strict=True))


def _is_same_run(report: Report, previous: Report) -> bool:
    """Whether milliseconds can be compared: same processor, threads and input shapes."""
    return (
        previous.benchmark is not None
        and report.benchmark is not None
        and _machine(report, report.benchmark) == _machine(previous, previous.benchmark)
        and _shapes(report) == _shapes(previous)
    )


def _machine(report: Report, result: BenchmarkResult) -> str:
    return f"{report.processor} with {result.threads} threads"


def _measures(pair: EntryPair, bounds: Bounds) -> tuple[Measure, ...]:
    label, now, measured = pair.label, pair.now, pair.report.dynamic.sizes(pair.report.inputs)
    sizes = f" {shown_sizes(measured)}" if measured else ""
    before = pair.previous.benchmark if pair.previous else None
    size, memory = (before.library_bytes, before.peak_memory_bytes) if before else (None, None)
    growth = Bound(REGRESS, bounds.regress_percent)
    library = _size("library", now.library_bytes, size, Bound(SIZE, bounds.library_bytes), growth)
    peak, most = now.peak_memory_bytes, Bound(MEMORY, bounds.memory_bytes)
    return (
        *_ratio(label, sizes, now, before, bounds),
        _latency(label, sizes, pair.report, now, pair.previous, bounds),
        *((library,) if pair.is_first else ()),
        _size(f"{label}peak memory", peak, memory, most, growth),
    )


def _ratio(
    label: str, sizes: str, now: BenchmarkResult, before: BenchmarkResult | None, bounds: Bounds
) -> tuple[Measure, ...]:
    eager, eager_before = _eager(now), _eager(before)
    if eager is None:
        return ()
    ratio_before = eager_before.ratio if eager_before else None
    return (
        Measure(
            f"{label}latency / torch eager{sizes}",
            _plain,
            eager.ratio,
            ratio_before,
            _growth(eager.ratio, ratio_before),
            Bound(LATENCY_RATIO, bounds.latency_ratio),
            Bound(REGRESS, bounds.regress_percent),
            Verdict.SLOWER,
            unsteady=_ratio_doubt(eager, eager_before),
        ),
    )


def _latency(
    label: str, sizes: str, report: Report, now: BenchmarkResult, previous: Report | None, bounds: Bounds
) -> Measure:
    before = previous.benchmark if previous else None
    if previous is None or before is None or not _is_same_run(report, previous):
        p50_before, doubt = None, ""
    else:
        most = WARN_PERCENT if bounds.regress_percent is None else bounds.regress_percent
        p50_before = before.latency.p50_ms
        doubt = (
            _unsteady_doubt(now, before)
            or _fastest_doubt(now.latency, before.latency, most)
            or _machine_doubt(report, previous)
        )
    is_met_once = bounds.latency_ms is not None and now.latency.min_ms <= bounds.latency_ms
    return Measure(
        f"{label}latency p50{sizes}",
        _milliseconds,
        now.latency.p50_ms,
        p50_before,
        _growth(now.latency.p50_ms, p50_before),
        Bound(
            LATENCY_MS,
            bounds.latency_ms,
            _unsteady_doubt(now) or (_fastest(now.latency) if is_met_once else ""),
        ),
        Bound(REGRESS, bounds.regress_percent, doubt),
        Verdict.SLOWER,
    )


def _size(name: str, now: int, before: int | None, bound: Bound, change_bound: Bound) -> Measure:
    return Measure(name, _bytes, now, before, _growth(now, before), bound, change_bound, Verdict.LARGER)


def _output_measure(label: str, outputs: OutputChange | None, bounds: Bounds) -> Measure:
    return Measure(
        f"{label}outputs",
        _plain,
        None,
        None,
        outputs.percent if outputs else None,
        None,
        Bound(OUTPUT_CHANGE, bounds.output_percent),
        Verdict.WRONG,
        WARN_OUTPUT_PERCENT,
        outputs.detail if outputs else "",
    )


def _error(reports: Iterable[Report]) -> Measure:
    error = max((part.max_absolute_error for report in reports for part in report.comparisons), default=0.0)
    return Measure("largest error (absolute)", _plain, error, None, None, None, None, Verdict.WRONG)


def _growth(now: float, before: float | None) -> float | None:
    """The growth in percent."""
    return None if not before else 100.0 * (now / before - 1.0)


def _ratio_doubt(now: BaselineResult, before: BaselineResult | None) -> str:
    """Why a ratio is unreliable; empty if it is reliable."""
    if now.doubt:
        return f"{now.doubt}; measure again when the worker is idle"
    if before is not None and before.doubt:
        return f"in the base's report, {before.doubt}; compare with a report from an idle worker"
    return ""


def _unsteady_doubt(now: BenchmarkResult, before: BenchmarkResult | None = None) -> str:
    """Why slower runs are inconclusive: the benchmark found the library's own latency unsteady."""
    if now.unsteady:
        return f"; but {now.unsteady}: measure again when the worker is idle"
    if before is not None and before.unsteady:
        return f"; but in the base's report, {before.unsteady}: compare with a report from an idle worker"
    return ""


def _fastest_doubt(now: Latency, before: Latency, most_percent: float) -> str:
    """Why slower runs are inconclusive: the fastest did not slow down, so other work slowed the rest."""
    growth = _growth(now.min_ms, before.min_ms)
    return _fastest(now) if growth is not None and growth <= most_percent else ""


def _fastest(latency: Latency) -> str:
    return (
        f"; but its fastest run took {_milliseconds(latency.min_ms)}: measure again when the worker is idle"
    )


def _machine_doubt(report: Report, previous: Report) -> str:
    """Why slower runs of the same work are inconclusive: the worker was unsteady, or eager slower too."""
    eager, eager_before = _eager(report.benchmark), _eager(previous.benchmark)
    if eager is None or eager_before is None or _work(report) != _work(previous):
        return ""
    if eager.doubt:
        return f"; but {eager.doubt}, and the operators are the base's: measure again when the worker is idle"
    growth = _growth(eager.latency.p50_ms, eager_before.latency.p50_ms)
    if growth is None or eager.ratio > eager_before.ratio:
        return ""
    return f"; but torch eager took {growth:.1f} % more time on the same operators: the worker was slower"


def _work(report: Report) -> tuple[object, ...]:
    return report.operators, report.model_parameters, report.inputs


def _eager(result: BenchmarkResult | None) -> BaselineResult | None:
    peers = result.baselines if result else ()
    return next((peer for peer in peers if peer.name == Baseline.TORCH_EAGER), None)


def _plain(value: float) -> str:
    return f"{value:.3g}"


def _milliseconds(value: float) -> str:
    return f"{value:.4g} ms"


def _bytes(value: float) -> str:
    return f"{value:,.0f} bytes"
