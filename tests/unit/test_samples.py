"""Looks at a side, and the steadiness of its figures."""

import time
from dataclasses import dataclass, field

import pytest

from worker.measure.samples import (
    FEW_RUNS,
    LEAST_RUNS,
    Sample,
    drift,
    take_sample,
    why_undecided,
    why_unsteady,
)
from worker.measure.timed import timed

FAST, SLOW, STALLED = (0.0001,) * 20, (0.0002,) * 20, (0.0001,) + (0.026,) * 19


@dataclass
class Side:
    """Runs that report their durations without taking any time."""

    seconds: float
    rest_seconds: float = 0.0
    chunks: list[int] = field(default_factory=list)
    rested: int = 0
    warm_ups: int = 0

    def time(self, runs: int, warm_up: bool = True) -> tuple[float, ...]:
        self.chunks.append(runs)
        self.warm_ups += warm_up
        time.sleep(min(runs * self.seconds, 0.4))
        return (self.seconds,) * runs

    def rest(self) -> None:
        self.rested += 1


def test_a_look_has_at_least_twenty_runs_and_rests() -> None:
    side = Side(0.002)
    assert len(take_sample(side)) >= LEAST_RUNS
    assert side.rested == 1


def test_a_look_at_slow_runs_ends_after_a_second() -> None:
    side = Side(5.0)
    assert 1 <= len(take_sample(side)) < LEAST_RUNS


def test_a_look_at_long_runs_has_a_few_without_warm_ups_between() -> None:
    side = Side(0.08)
    assert FEW_RUNS <= len(take_sample(side)) <= LEAST_RUNS
    assert side.warm_ups == 0


@pytest.mark.parametrize(
    ("seconds", "rival", "runs"),
    [
        (0.08, (), FEW_RUNS),
        (0.08, (0.04,) * 3, 1),
        (0.08, (0.06,) * 3, FEW_RUNS),
        (0.004, (0.001,) * 20, LEAST_RUNS),
    ],
    ids=["no-rival", "clearly-slower", "close", "short"],
)
def test_a_long_run_that_is_clearly_slower_is_not_repeated(seconds: float, rival: Sample, runs: int) -> None:
    sample = take_sample(Side(seconds), rival)
    assert len(sample) == 1 if runs == 1 else len(sample) >= runs


def test_stalling_calls_end_a_turn_early_after_one_is_timed() -> None:
    assert len(timed(lambda: time.sleep(0.01), 1000, most_seconds=0.03)) < 1000
    assert len(timed(lambda: time.sleep(0.01), 1000, most_seconds=0.0)) == 1
    assert len(timed(lambda: None, 1000)) == 1000


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ((FAST, FAST, FAST), ""),
        ((FAST, (0.00014,) * 20, FAST), ""),
        ((FAST, FAST, SLOW), "torch eager took 0.1 ms in one sample and 0.2 ms in another"),
        ((SLOW, FAST, FAST), "torch eager took 0.1 ms in one sample and 0.2 ms in another"),
        ((STALLED, STALLED), "torch eager stalled: its fastest run took 0.1 ms, its median run 26 ms"),
        (((*FAST[:19], 0.026),), ""),
    ],
    ids=["equal", "close", "later", "earlier", "stalled", "one-stray-run"],
)
def test_samples_that_differ_or_stall_are_unsteady(
    samples: tuple[tuple[float, ...], ...], reason: str
) -> None:
    assert why_unsteady("torch eager", samples) == reason


@pytest.mark.parametrize(
    ("early", "late", "told"),
    [
        (FAST, FAST, ""),
        (FAST, SLOW, "0.1 ms and the later ones 0.2 ms: the processor lowered its clock"),
        (SLOW, FAST, "0.2 ms and the later ones 0.1 ms: the processor raised its clock"),
        (FAST, (*FAST, *SLOW), ""),
        (FAST[:3], SLOW, ""),
        (FAST, (), ""),
    ],
    ids=["equal", "slower", "faster", "overlapping", "few runs", "no runs"],
)
def test_runs_that_get_slower_for_good_are_told(early: Sample, late: Sample, told: str) -> None:
    assert told in drift(early, late)
    assert bool(drift(early, late)) == bool(told)


@pytest.mark.parametrize(
    ("chosen", "samples", "reason"),
    [
        (1, {1: FAST}, ""),
        (1, {1: FAST, 2: SLOW}, ""),
        (2, {1: SLOW, 2: FAST}, ""),
        (1, {1: FAST, 2: STALLED}, ""),
        (
            1,
            {1: SLOW, 2: STALLED},
            "torch eager was timed with threads=1, where its median run took 0.2 ms, but a run with "
            "threads=2 took 0.1 ms: other work may have decided the number of threads",
        ),
    ],
    ids=["alone", "one-thread", "all-threads", "stalled-but-no-faster", "stalled-and-faster-when-quiet"],
)
def test_a_stall_leaves_the_choice_of_threads_open(
    chosen: int, samples: dict[int, tuple[float, ...]], reason: str
) -> None:
    assert why_undecided("torch eager", chosen, samples) == reason
