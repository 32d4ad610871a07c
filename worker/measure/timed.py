"""The only code that times a call, so that a change to it cannot favor one side."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

WARM_UP_RUNS = 2
WARM_UP_SECONDS = 0.02
"""A run that takes longer is the only one of its warm-up."""


def timed(
    call: Callable[[], object], runs: int, most_seconds: float = math.inf, warm_up: bool = True
) -> tuple[float, ...]:
    """Seconds of each of ``runs`` calls, after a short warm-up.

    Args:
        call: the function to time.
        runs: the number of calls.
        most_seconds: no call starts after this time: stalled calls must not prolong a turn.
        warm_up: whether to warm up, which doubles the time of a single long call.
    """
    if warm_up:
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
    """Wake the threads and fill the caches; a long call needs this least."""
    end = time.perf_counter() + WARM_UP_SECONDS
    for _ in range(WARM_UP_RUNS):
        call()
        if time.perf_counter() > end:
            return
