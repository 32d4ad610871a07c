"""Looks at a side: enough single runs, taken at one time. Several looks show whether a figure holds.

A machine that does other work at one look and not at another gives medians that differ; threads that lose
their core inside a parallel region stall a run for milliseconds. Neither is a figure of the code measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from worker.measure.rounds import Side

Look = tuple[float, ...]

LEAST_RUNS = 20
AGREE_WITHIN = 1.5
"""How many times as long the median run of one look may take as that of another."""
STALLS_BEYOND = 2.0
"""If the median run takes this many times as long as the fastest, the runs waited for something."""

_LOOK_SECONDS = 0.05
_MOST_SECONDS = 1.0
_WARM_SECONDS = 0.3
_CHUNK_SECONDS = 0.1
_MAX_CHUNK_RUNS = 200


def look(side: Side) -> Look:
    """Seconds of at least ``LEAST_RUNS`` runs, or of as many as a second allows; warm.

    Args:
        side: it rests afterwards.
    """
    chunk = min(max(int(_CHUNK_SECONDS / _warm(side)), 1), _MAX_CHUNK_RUNS)
    seconds: list[float] = []
    began = time.perf_counter()
    while not _seen_enough(len(seconds), time.perf_counter() - began):
        seconds += side.time(chunk)
    side.rest()
    return tuple(seconds)


def why_unsteady(name: str, looks: Sequence[Look]) -> str:
    """Why these looks give no reliable figure; empty if they agree.

    Args:
        name: what was looked at.
        looks: at least one, each of at least one run.
    """
    medians = [median(each) for each in looks]
    if max(medians) > AGREE_WITHIN * min(medians):
        return f"{name} took {_ms(min(medians))} at one look and {_ms(max(medians))} at another"
    runs = [seconds for each in looks for seconds in each]
    if median(runs) > STALLS_BEYOND * min(runs):
        return f"{name} stalled: its fastest run took {_ms(min(runs))}, its median run {_ms(median(runs))}"
    return ""


def why_undecided(name: str, chosen: int, looks: dict[int, Look]) -> str:
    """Why another number of threads may be better than the one chosen; empty where none is.

    Args:
        name: what was looked at.
        chosen: the number of threads that did best.
        looks: one for each number of threads.
    """
    typical = median(looks[chosen])
    for threads, each in looks.items():
        if typical > AGREE_WITHIN * min(each) and threads != chosen:
            return (
                f"{name} was timed with threads={chosen}, where its median run took {_ms(typical)}, "
                f"but a run with threads={threads} took {_ms(min(each))}: "
                "other work may have decided the number of threads"
            )
    return ""


def _warm(side: Side) -> float:
    """Run until runs get no faster; the seconds of a run then."""
    deadline = time.perf_counter() + _WARM_SECONDS
    best, latest = float("inf"), min(side.time(1))
    while latest < 0.95 * best and time.perf_counter() < deadline:
        best, latest = min(best, latest), min(side.time(3))
    return max(min(best, latest), 1e-7)


def _seen_enough(runs: int, seconds: float) -> bool:
    return runs > 0 and (seconds > _MOST_SECONDS or (runs >= LEAST_RUNS and seconds > _LOOK_SECONDS))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
