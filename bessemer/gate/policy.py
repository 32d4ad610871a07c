"""The policy of a gate: pure functions from reports and bounds to verdicts.

Workers differ in speed, and so does one from hour to hour. So latency is judged by its ratio to torch eager,
which was measured in alternation with the library, on the same machine and inputs; milliseconds are shown.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from bessemer.contract.job import Compilation, JobState
from bessemer.contract.options import Baseline
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import BaselineResult, BenchmarkResult, Report


class Verdict(StrEnum):
    """How a gate ends, the worst first."""

    FAILED = "failed"
    WRONG = "wrong"
    SLOWER = "slower"
    LARGER = "larger"
    UNSTEADY = "unsteady"
    PASSED = "passed"


WRONG_CODES = frozenset({ErrorCode.VERIFY_MISMATCH, ErrorCode.VERIFY_CRASHED})


@dataclass(frozen=True)
class Bounds:
    """What a pipeline allows; None allows anything.

    Attributes:
        latency_ratio: the library's latency divided by torch eager's.
        library_bytes: the library's size.
        regress_percent: how much more than before either of them may be.
    """

    latency_ratio: float | None = None
    library_bytes: int | None = None
    regress_percent: float | None = None


@dataclass(frozen=True)
class Measure:
    """One figure, now and before, and what it may be.

    ``verdict`` is that of a figure beyond its bound. ``doubt`` says why the figure does not hold: then no
    bound on it can be judged, and it neither passes nor fails.
    """

    name: str
    now: float
    before: float | None
    shown: Callable[[float], str]
    most: float | None = None
    most_percent: float | None = None
    verdict: Verdict = Verdict.PASSED
    doubt: str = ""

    @property
    def change_percent(self) -> float | None:
        """How much more than before; None where there is nothing to compare with."""
        return None if not self.before else 100.0 * (self.now / self.before - 1.0)

    @property
    def breaches(self) -> tuple[str, ...]:
        """In words, each bound that is broken or cannot be judged."""
        found, change = [], self.change_percent
        if self.doubt and self._bounded:
            return (f"{self.name} is inconclusive: {self.doubt}",)
        if self.most is not None and self.now > self.most:
            found.append(f"{self.name} is {self.shown(self.now)}, more than {self.shown(self.most)}")
        if self.most_percent is not None and change is not None and change > self.most_percent:
            found.append(
                f"{self.name} is {self.shown(self.now)}, {change:.1f} % more than before "
                f"({self.shown(self.before or 0)}); {self.most_percent:g} % are allowed"
            )
        return tuple(found)

    @property
    def _bounded(self) -> bool:
        """Whether there is a bound, and what it is compared with."""
        return self.most is not None or (self.most_percent is not None and self.before is not None)


@dataclass(frozen=True)
class Outcome:
    """What a gate found.

    Attributes:
        model: what the pipeline calls the model.
        document: the compilation, at its end.
        report: None where it failed.
        measures: every figure.
        notes: what was not compared, and why.
    """

    model: str
    document: Compilation
    report: Report | None
    measures: tuple[Measure, ...]
    notes: tuple[str, ...]

    @property
    def breaches(self) -> tuple[tuple[Verdict, str], ...]:
        """Every bound that is broken."""
        return tuple((measure.verdict, text) for measure in self.measures for text in measure.breaches)

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        if self.document.state is not JobState.SUCCEEDED:
            problem = self.document.problem
            return Verdict.WRONG if problem and problem.code in WRONG_CODES else Verdict.FAILED
        found = {verdict for verdict, _ in self.breaches}
        return next(verdict for verdict in Verdict if verdict in found or verdict is Verdict.PASSED)


def judge(
    model: str,
    document: Compilation,
    report: Report | None,
    previous: Report | None,
    bounds: Bounds,
    notes: tuple[str, ...] = (),
) -> Outcome:
    """Compare a compilation with an earlier one's report, and with what is allowed.

    Args:
        model: what the pipeline calls it.
        document: the compilation, at its end.
        report: None where it failed.
        previous: what it is compared with, if anything.
        bounds: what is allowed.
        notes: what is known already of what cannot be compared.
    """
    if report is None or report.benchmark is None:
        return Outcome(model, document, report, (), notes)
    difference = None if previous is None else _difference(report, previous)
    before = None if previous is None or difference else previous.benchmark
    measures = _measures(report, report.benchmark, before, bounds)
    found = difference or _without_ratio(report.benchmark, before)
    return Outcome(model, document, report, measures, (*notes, *((found,) if found else ())))


def _difference(report: Report, previous: Report) -> str | None:
    """Why two reports cannot be compared."""
    if previous.benchmark is None:
        return "the earlier report has no benchmark: nothing was compared"
    now, before = _conditions(report), _conditions(previous)
    if now != before:
        return f"the earlier report is of {before}, this one of {now}: nothing was compared"
    return None


def _without_ratio(now: BenchmarkResult, before: BenchmarkResult | None) -> str | None:
    """Why the latency, alone of all figures, cannot be compared."""
    if before is None or (_eager(now) and _eager(before)):
        return None
    which = "this report" if _eager(before) else "the earlier report"
    return f"{which} has no latency beside torch eager: the latency was not compared"


def _conditions(report: Report) -> str:
    target = report.target
    return f"{target.mcpu} with {target.cores} cores"


def _measures(
    report: Report, now: BenchmarkResult, before: BenchmarkResult | None, bounds: Bounds
) -> tuple[Measure, ...]:
    eager, eager_before = _eager(now), _eager(before)
    doubt = _doubt(eager, eager_before)
    error = max((part.max_absolute_error for part in report.comparisons), default=0.0)
    ratio = (
        ()
        if eager is None
        else (
            Measure(
                "latency / torch eager",
                eager.ratio,
                eager_before.ratio if eager_before else None,
                _plain,
                bounds.latency_ratio,
                bounds.regress_percent,
                Verdict.UNSTEADY if doubt else Verdict.SLOWER,
                doubt,
            ),
        )
    )
    return (
        *ratio,
        Measure("latency p50", now.latency.p50_ms, before.latency.p50_ms if before else None, _milliseconds),
        Measure(
            "library",
            now.library_bytes,
            before.library_bytes if before else None,
            _bytes,
            bounds.library_bytes,
            bounds.regress_percent,
            Verdict.LARGER,
        ),
        Measure("peak memory", now.peak_memory_bytes, before.peak_memory_bytes if before else None, _bytes),
        Measure("largest error (absolute)", error, None, _plain),
    )


def _doubt(now: BaselineResult | None, before: BaselineResult | None) -> str:
    """Why a ratio shows nothing, neither good nor bad; empty where it holds."""
    if now is not None and now.doubt:
        return f"{now.doubt}; measure again when the worker is idle"
    if before is not None and before.doubt:
        return f"in the earlier report, {before.doubt}; compare with a report from an idle worker"
    return ""


def _eager(result: BenchmarkResult | None) -> BaselineResult | None:
    peers = result.baselines if result else ()
    return next((peer for peer in peers if peer.name == Baseline.TORCH_EAGER), None)


def _plain(value: float) -> str:
    return f"{value:.3g}"


def _milliseconds(value: float) -> str:
    return f"{value:.4g} ms"


def _bytes(value: float) -> str:
    return f"{value:,.0f} bytes"
