"""Statistics of latencies, and the choice of a profile: pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bessemer.contract.report import QUANTILES, FunctionTime, Latency, RunTimes

_MILLISECONDS = 1000.0


class RatioSpread(NamedTuple):
    """The median of a set of ratios, with its 10th and 90th percentile."""

    p10: float
    p50: float
    p90: float


def percentile(values: Sequence[float], rank: float) -> float:
    """The percentile by linear interpolation between the closest ranks, as numpy's default.

    Args:
        values: at least one number, in any order.
        rank: 0 to 100.

    Raises:
        ValueError: there are no values, or the rank lies outside 0 to 100.
    """
    if not values:
        raise ValueError("no values")
    if not 0 <= rank <= 100:
        raise ValueError(f"rank {rank} lies outside 0 to 100")
    ordered = sorted(values)
    position = (len(ordered) - 1) * rank / 100
    below = math.floor(position)
    above = math.ceil(position)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def largest(values: Iterable[float]) -> float:
    """The largest number; 0 if there are none, NaN if one is NaN."""
    numbers = tuple(values)
    return math.nan if any(map(math.isnan, numbers)) else max(numbers, default=0.0)


def latency(seconds: Sequence[float]) -> Latency:
    """The distribution of single runs, in milliseconds; ``Latency`` drops percentiles of too few runs.

    The standard deviation is that of the population (0 for one run).

    Args:
        seconds: wall-clock seconds of each run, at least one.

    Raises:
        ValueError: there are no runs.
    """
    times_ms = [value * _MILLISECONDS for value in seconds]
    return Latency(
        runs=len(times_ms),
        min_ms=percentile(times_ms, 0),
        p50_ms=percentile(times_ms, 50),
        p90_ms=percentile(times_ms, 90),
        p99_ms=percentile(times_ms, 99),
        mean_ms=statistics.fmean(times_ms),
        stddev_ms=statistics.pstdev(times_ms),
    )


def run_times(name: str, seconds: Sequence[float]) -> RunTimes:
    """The quantiles of single runs, at least one."""
    ordered = sorted(value * _MILLISECONDS for value in seconds)
    ranks = (100 * index / QUANTILES for index in range(QUANTILES + 1))
    return RunTimes(name=name, quantiles_ms=tuple(percentile(ordered, rank) for rank in ranks))


def round_ratios(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> RatioSpread:
    """The ratio of our rounds to the baseline's rounds; below 1, ours are faster.

    Each round is reduced to its median, so that one interrupted run does not decide it.

    Args:
        ours: seconds of each run, round by round.
        theirs: the same for the baseline, with as many rounds.

    Raises:
        ValueError: the numbers of rounds differ, or there are none.
    """
    ratios = [
        statistics.median(mine) / statistics.median(other) for mine, other in zip(ours, theirs, strict=True)
    ]
    return RatioSpread(percentile(ratios, 10), percentile(ratios, 50), percentile(ratios, 90))


_AGREES_WITHIN = 0.25
"""The allowed difference. A model of microseconds may never agree: profiling its calls costs as much."""

Profile = tuple[FunctionTime, ...]


def total_ms(profile: Profile) -> float:
    """The time of all functions in one run."""
    return sum(function.milliseconds for function in profile)


def agrees(profile: Profile, run_ms: float) -> bool:
    """Whether the functions together take about as long as ``run_ms``, the median run of the model."""
    return _distance(profile, run_ms) <= _AGREES_WITHIN * run_ms


def choose_profile(profiles: Iterable[Profile], run_ms: float) -> Profile:
    """The first profile that agrees with the model's median run, else the closest.

    Args:
        profiles: at least one; none is taken after one that agrees.
        run_ms: the median run of the model.

    Raises:
        ValueError: there are no profiles.
    """
    taken = []
    for profile in profiles:
        if agrees(profile, run_ms):
            return profile
        taken.append(profile)
    return min(taken, key=lambda profile: _distance(profile, run_ms))


def _distance(profile: Profile, run_ms: float) -> float:
    return abs(total_ms(profile) - run_ms)
