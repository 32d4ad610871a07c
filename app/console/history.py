"""A model's compilations over time, and which of them a gate would stop. Pure functions."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from app.console import words
from app.console.charts import Chart, Line, Point, can_be_drawn, chart
from app.console.differences import Compared, change, gate_outcome, ratio, reasons
from bessemer.contract.group import shown_target
from bessemer.contract.job import Compilation, Figures
from bessemer.contract.options import Baseline
from bessemer.contract.report import BaselineResult, Latency, Report
from bessemer.figures.words import duration
from bessemer.gate.policy import WARN_PERCENT, Outcome, Verdict

MOST_POINTS = 400
"""The newest compilations that a page shows."""
MOST_JUDGED = 40
"""The newest suspicious pairs whose reports are read."""
BOUND = 1 + WARN_PERCENT / 100
Reports = Callable[[Compilation], Report | None]


@dataclass(frozen=True)
class Step:
    """A compilation after the one before it for the same target.

    Attributes:
        before: the compilation before it; None for the first.
        outcome: a gate's outcome; None if no figure grew enough to ask one, or if it cannot judge.
    """

    job: Compilation
    figures: Figures
    before: Compilation | None
    outcome: Outcome | None

    @property
    def verdict(self) -> Verdict:
        """The gate's verdict."""
        return Verdict.PASSED if self.outcome is None else self.outcome.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a gate would stop it."""
        return () if self.outcome is None else reasons(self.outcome)

    @property
    def change(self) -> str:
        """The change of the median latency."""
        if self.before is None or self.before.figures is None:
            return ""
        factor = ratio(self.figures.latency.p50_ms, self.before.figures.latency.p50_ms)
        return "" if factor is None else change(factor)


@dataclass(frozen=True)
class Series:
    """The compilations for one target, oldest first."""

    target: str
    steps: tuple[Step, ...]

    @property
    def regressions(self) -> int:
        """How many a gate would stop."""
        return sum(step.verdict in (Verdict.SLOWER, Verdict.LARGER, Verdict.WRONG) for step in self.steps)

    def chart(self, address: Callable[[Compilation], str]) -> Chart | None:
        """The median latencies of the library and the fastest baselines; None with fewer than two steps."""
        if len(self.steps) < 2:
            return None
        ours = tuple(_point(step, address(step.job)) for step in self.steps)
        peers = tuple(_peer_point(step) for step in self.steps)
        return chart((Line("peer", "fastest baseline", peers), Line("ours", "library", ours)), words.tick)


def history(jobs: Iterable[Compilation], report: Reports) -> tuple[Series, ...]:
    """The series of some compilations, which come newest first; longer series come first.

    A cached compilation has the figures of an earlier one, so it is left out.
    """
    by_target: dict[str, list[Compilation]] = {}
    for job in jobs:
        if job.figures is not None and not job.cached:
            by_target.setdefault(shown_target(job.request.target), []).append(job)
    left = MOST_JUDGED
    found = []
    for target, newest_first in sorted(by_target.items(), key=lambda each: -len(each[1])):
        steps = []
        for job, before in zip(newest_first, (*newest_first[1:], None), strict=True):
            asks = before is not None and left > 0 and is_suspicious(job.figures, before.figures)
            left -= asks
            outcome = None
            if before is not None and asks:
                outcome = gate_outcome(Compared(job, report(job)), Compared(before, report(before)))
            assert job.figures is not None
            steps.append(Step(job, job.figures, before, outcome))
        found.append(Series(target, tuple(reversed(steps))))
    return tuple(found)


def is_suspicious(now: Figures | None, before: Figures | None) -> bool:
    """Whether a figure grew beyond the bound at which a gate warns, so that the reports are worth reading."""
    if now is None or before is None:
        return False
    pairs = [
        (now.library_bytes, before.library_bytes),
        (now.peak_memory_bytes, before.peak_memory_bytes),
        *_times(now.latency, now.baselines, before.latency, before.baselines),
    ]
    known = {entry.name: entry for entry in before.entries}
    for entry in now.entries:
        if (old := known.get(entry.name)) is not None:
            pairs += _times(entry.latency, entry.baselines, old.latency, old.baselines)
    return any((ratio(new, old) or 0.0) > BOUND for new, old in pairs)


def _times(
    now: Latency, peers: Sequence[BaselineResult], before: Latency, old_peers: Sequence[BaselineResult]
) -> Iterator[tuple[float, float]]:
    yield now.p50_ms, before.p50_ms
    eager, old = _eager(peers), _eager(old_peers)
    if eager is not None and old is not None:
        yield eager, old


def _eager(peers: Sequence[BaselineResult]) -> float | None:
    return next((peer.ratio for peer in peers if peer.name == Baseline.TORCH_EAGER), None)


MARKS = {
    Verdict.SLOWER: "bad",
    Verdict.LARGER: "bad",
    Verdict.WRONG: "bad",
    Verdict.FAILED: "bad",
    Verdict.UNSTEADY: "unsure",
    Verdict.PASSED: "",
}


def _point(step: Step, address: str) -> Point | None:
    p50 = step.figures.latency.p50_ms
    labels = ", ".join(f"{key}={value}" for key, value in step.job.request.labels.items())
    title = (words.moment(step.job.created_at), labels, duration(p50), step.change, *step.reasons)
    return _drawable(
        Point(
            p50, f"{step.job.created_at:%b %d}", ": ".join(filter(None, title)), address, MARKS[step.verdict]
        )
    )


def _peer_point(step: Step) -> Point | None:
    best = min((peer.latency.p50_ms for peer in step.figures.baselines), default=None)
    return None if best is None else _drawable(Point(best, "", "", "", ""))


def _drawable(point: Point) -> Point | None:
    return point if can_be_drawn(point.value) else None
