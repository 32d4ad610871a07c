"""Measures all sides of a model in alternation, after comparing their outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.models.results import Ratio, SideResult, State
from benchmarks.models.runtimes import Runtime, Subject
from benchmarks.models.side import Arrays, SideFailedError, SideProcess
from worker.measure.rounds import MAX_RUNS, Rounds
from worker.measure.statistics import latency, round_ratios

TURN_SECONDS = 0.1
TOLERATED_ERRORS = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 8e-2}
"""By dtype, the allowed difference from torch eager, relative to its largest value: rounding."""

_SLOW_SECONDS = 2.0
_MAX_SLOW_RUNS = 3
_SHORT_RUNS = 5

Advance = Callable[[], None]


def measure_sides(
    subject: Subject,
    runtimes: tuple[Runtime, ...],
    references: Arrays,
    rounds: int,
    log: Path,
    advance: Advance,
) -> list[SideResult]:
    """Start every side, compare its outputs, and measure the correct ones in turn: A B C A B C ….

    Args:
        subject: the model.
        runtimes: ours first; ratios are relative to it.
        references: torch eager's outputs.
        rounds: turns per side.
        log: the file for the sides' output.
        advance: called after each start and each round.

    Returns:
        One result per runtime, in order.
    """
    results = {runtime.name: SideResult(name=runtime.name, version=runtime.version) for runtime in runtimes}
    with _processes() as running:
        for runtime in runtimes:
            _start(running, runtime, subject, references, log, results[runtime.name])
            advance()
        timed = _take_turns(tuple(running.values()), rounds, advance)
        for index, name in enumerate(running):
            _sum_up(results[name], timed, index, with_ratio=index > 0 and runtimes[0].name in running)
    return list(results.values())


def measure_slow(
    subject: Subject, runtime: Runtime, references: Arrays, ours: SideResult, log: Path
) -> SideResult:
    """Time a slow side a few times, alone; its ratio is that of the best runs."""
    result = SideResult(name=runtime.name, version=runtime.version)
    with _processes() as running:
        _start(running, runtime, subject, references, log, result)
        for side in running.values():
            seconds = _cold_runs(side)
            result.latency, result.rounds = latency(seconds), 1
            if ours.latency is not None:
                ratio = ours.latency.min_ms / result.latency.min_ms
                result.ratio = Ratio(p10=ratio, median=ratio, p90=ratio)
    return result


def largest_error(outputs: Arrays, references: Arrays) -> float:
    """The largest difference of any output, relative to its reference's largest value."""
    if [output.shape for output in outputs] != [reference.shape for reference in references]:
        return float("inf")
    return max(
        float(np.max(np.abs(output - reference)) / max(float(np.max(np.abs(reference))), 1e-30))
        for output, reference in zip(outputs, references, strict=True)
    )


@contextmanager
def _processes() -> Iterator[dict[str, SideProcess]]:
    running: dict[str, SideProcess] = {}
    try:
        yield running
    finally:
        for side in running.values():
            side.close()


def _start(
    running: dict[str, SideProcess],
    runtime: Runtime,
    subject: Subject,
    references: Arrays,
    log: Path,
    result: SideResult,
) -> None:
    try:
        side = SideProcess.start(partial(runtime.load, subject), log)
    except SideFailedError as error:
        result.state = State.MISSING if error.missing else State.FAILED
        result.note = str(error)
        return
    running[runtime.name] = side
    result.ready_seconds = round(side.ready.seconds, 3)
    result.error = largest_error(side.ready.outputs, references)
    if not result.error <= TOLERATED_ERRORS[subject.dtype]:
        result.state, result.note = (
            State.DIFFERS,
            f"outputs differ from torch eager's by {result.error:.1e}",
        )
        running.pop(runtime.name).close()
        return
    result.busy_threads = side.busy_threads()


def _take_turns(sides: tuple[SideProcess, ...], rounds: int, advance: Advance) -> Rounds:
    runs = tuple(min(max(int(TURN_SECONDS / _estimate(side)), 1), MAX_RUNS) for side in sides)
    timed: tuple[list[tuple[float, ...]], ...] = tuple([] for _ in sides)
    for _ in range(rounds):
        for side, count, turns in zip(sides, runs, timed, strict=True):
            turns.append(side.time(count))
        advance()
    return Rounds(tuple(tuple(turns) for turns in timed))


def _estimate(side: SideProcess) -> float:
    seconds = side.time(1)[0]
    return min(side.time(_SHORT_RUNS)) if seconds < TURN_SECONDS / _SHORT_RUNS else seconds


def _cold_runs(side: SideProcess) -> list[float]:
    seconds: list[float] = []
    while len(seconds) < _MAX_SLOW_RUNS and sum(seconds) < _SLOW_SECONDS:
        seconds.append(side.time_cold())
    return seconds


def _sum_up(result: SideResult, timed: Rounds, index: int, with_ratio: bool) -> None:
    result.latency, result.rounds = latency(timed.runs(index)), len(timed.sides[index])
    if with_ratio:
        spread = round_ratios(timed.sides[0], timed.sides[index])
        result.ratio = Ratio(p10=spread.p10, median=spread.p50, p90=spread.p90)
