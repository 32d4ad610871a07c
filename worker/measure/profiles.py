"""Chooses a profile that agrees with the measured latency; a busy machine spoils some of them."""

from __future__ import annotations

from collections.abc import Iterable

from bessemer.contract.report import FunctionTime

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
