"""Profiles beside the latency that was measured: each is of few runs, and a busy machine spoils some."""

from __future__ import annotations

from collections.abc import Iterable

from bessemer.contract.report import FunctionTime

_AGREES_WITHIN = 0.25
"""Of the run. A model of microseconds may never agree: observing its calls costs as much."""

Profile = tuple[FunctionTime, ...]


def total_ms(profile: Profile) -> float:
    """What all functions take together in one run."""
    return sum(function.milliseconds for function in profile)


def agrees(profile: Profile, run_ms: float) -> bool:
    """Whether the functions take together about what a run of the model takes.

    Args:
        profile: of the functions.
        run_ms: the median of the model's runs.
    """
    return _distance(profile, run_ms) <= _AGREES_WITHIN * run_ms


def choose_profile(profiles: Iterable[Profile], run_ms: float) -> Profile:
    """The first profile that agrees with the model's median run; the nearest to it where none does.

    Args:
        profiles: at least one; after one that agrees, no more are asked for.
        run_ms: the median of the model's runs.

    Raises:
        ValueError: there are none.
    """
    taken = []
    for profile in profiles:
        if agrees(profile, run_ms):
            return profile
        taken.append(profile)
    return min(taken, key=lambda profile: _distance(profile, run_ms))


def _distance(profile: Profile, run_ms: float) -> float:
    return abs(total_ms(profile) - run_ms)
