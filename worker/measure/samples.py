"""Samples of a side: enough single runs, taken at one time. Several samples show whether a figure is steady.

Other work on the machine makes the medians of samples differ. A thread that loses its core inside a parallel
region stalls a run for milliseconds. Neither says anything about the code measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from worker.measure.rounds import Side
from worker.measure.statistics import percentile
from worker.measure.timed import WARM_UP_SECONDS

Sample = tuple[float, ...]
"""The seconds of single runs."""

LEAST_RUNS = 20
FEW_RUNS = 3
"""Enough to compare medians within ``AGREE_WITHIN``, where runs are long."""
AGREE_WITHIN = 1.5
"""The medians of two samples agree within this factor."""
STALLS_BEYOND = 2.0
"""If the median run takes this many times as long as the fastest, the runs waited for something."""

_SAMPLE_SECONDS = 0.05
_LONG_SAMPLE_SECONDS = 0.15
_MOST_SECONDS = 1.0
_WARM_SECONDS = 0.3
_CHUNK_SECONDS = 0.1
_MAX_CHUNK_RUNS = 200


def take_sample(side: Side, rival: Sample = ()) -> Sample:
    """Time at least ``LEAST_RUNS`` warm runs, or ``FEW_RUNS`` long ones, or as many as a second allows.

    The side rests afterward.

    Args:
        side: what to time.
        rival: a sample that this one must beat; a long run that is clearly slower is not repeated.
    """
    run_seconds, seconds = _warm(side)
    if not rival or not seconds or run_seconds <= AGREE_WITHIN * median(rival):
        seconds += _timed(side, run_seconds, len(seconds))
    side.rest()
    return tuple(seconds)


def _timed(side: Side, run_seconds: float, runs: int) -> list[float]:
    """Time runs until there are enough, together with the ``runs`` already timed."""
    chunk = min(max(int(_CHUNK_SECONDS / run_seconds), 1), _MAX_CHUNK_RUNS)
    seconds: list[float] = []
    began = time.perf_counter() - runs * run_seconds
    while not _is_enough(runs + len(seconds), time.perf_counter() - began):
        seconds += side.time(chunk, warm_up=run_seconds < WARM_UP_SECONDS)
    return seconds


def why_unsteady(name: str, samples: Sequence[Sample]) -> str:
    """Why these samples give no reliable figure; empty if they agree.

    Args:
        name: the side that was measured.
        samples: at least one, each of at least one run.
    """
    medians = [median(sample) for sample in samples]
    if max(medians) > AGREE_WITHIN * min(medians):
        return f"{name} took {_ms(min(medians))} in one sample and {_ms(max(medians))} in another"
    runs = [seconds for sample in samples for seconds in sample]
    if median(runs) > STALLS_BEYOND * min(runs):
        return f"{name} stalled: its fastest run took {_ms(min(runs))}, its median run {_ms(median(runs))}"
    return ""


def drift(early: Sample, late: Sample) -> str:
    """How a side changed while it was measured, as when the processor lowers its clock; empty if it did not.

    Args:
        early: the first runs, of up to a second.
        late: the runs after them.
    """
    if min(len(early), len(late)) < LEAST_RUNS:
        return ""
    (early_low, early_high), (late_low, late_high) = (
        (percentile(sample, 10), percentile(sample, 90)) for sample in (early, late)
    )
    if early_high >= late_low and late_high >= early_low:
        return ""
    then, now = median(early), median(late)
    cause = "lowered its clock" if now > then else "raised its clock"
    times = f"the first runs took {_ms(then)} and the later ones {_ms(now)}"
    return f"{times}: the processor {cause}, or other work changed"


def why_undecided(name: str, chosen: int, samples: dict[int, Sample]) -> str:
    """Why a number of threads other than the chosen one may be better; empty if none is.

    Args:
        name: the side that was measured.
        chosen: the number of threads that did best.
        samples: one for each number of threads.
    """
    typical = median(samples[chosen])
    for threads, sample in samples.items():
        if typical > AGREE_WITHIN * min(sample) and threads != chosen:
            return (
                f"{name} was timed with threads={chosen}, where its median run took {_ms(typical)}, "
                f"but a run with threads={threads} took {_ms(min(sample))}: "
                "other work may have decided the number of threads"
            )
    return ""


def _warm(side: Side) -> tuple[float, list[float]]:
    """Run until runs get no faster; return the seconds of such a run, and the last run if it is long."""
    deadline = time.perf_counter() + _WARM_SECONDS
    best, latest = float("inf"), min(side.time(1, warm_up=False))
    while latest < 0.95 * best and time.perf_counter() < deadline:
        is_long = latest > WARM_UP_SECONDS
        best, latest = min(best, latest), min(side.time(1 if is_long else 3, warm_up=not is_long))
    return max(min(best, latest), 1e-7), [latest] if latest > WARM_UP_SECONDS else []


def _is_enough(runs: int, seconds: float) -> bool:
    return runs > 0 and (
        seconds > _MOST_SECONDS
        or (runs >= LEAST_RUNS and seconds > _SAMPLE_SECONDS)
        or (runs >= FEW_RUNS and seconds > _LONG_SAMPLE_SECONDS)
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
