"""The one way in which a call is timed, so that no change to it favors one of two sides."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

WARM_UP_RUNS = 2
_WARM_UP_SECONDS = 0.02


def timed(call: Callable[[], object], runs: int, most_seconds: float = math.inf) -> tuple[float, ...]:
    """Seconds of each of ``runs`` calls, after a short warm-up.

    Args:
        call: what is timed.
        runs: how many calls.
        most_seconds: after that long no further call is made: calls that stall must not hold a turn.
    """
    _warm_up(call)
    clock = time.perf_counter
    seconds: list[float] = []
    deadline = clock() + most_seconds
    while len(seconds) < runs:
        start = clock()
        if start > deadline and seconds:
            break
        call()
        seconds.append(clock() - start)
    return tuple(seconds)


def _warm_up(call: Callable[[], object]) -> None:
    """Wake the threads and fill the caches; what takes long needs that least."""
    end = time.perf_counter() + _WARM_UP_SECONDS
    for _ in range(WARM_UP_RUNS):
        call()
        if time.perf_counter() > end:
            return
