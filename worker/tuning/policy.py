"""How a search spends its trials: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

ROUND_TRIALS = 16
"""Candidates per round: few enough that the cost model learns often, enough to keep the builders busy."""

CONTEST_SECONDS = 1.0
_CONTEST_SHARE = 0.1


@dataclass(frozen=True)
class Standing:
    """How far a task is. ``best_seconds`` is of one call; None until anything of the task ran."""

    weight: int
    trials: int
    best_seconds: float | None
    exhausted: bool


class Budget(NamedTuple):
    """Seconds for the search and for the contest that follows it; None has no limit."""

    search_seconds: float | None
    contest_seconds: float


def share_seconds(seconds: float | None) -> Budget:
    """Share what a request gives to tuning: the contest gets a tenth, and never more than it needs."""
    if seconds is None:
        return Budget(None, CONTEST_SECONDS)
    contest_seconds = min(CONTEST_SECONDS, _CONTEST_SHARE * seconds)
    return Budget(seconds - contest_seconds, contest_seconds)


def next_task(standings: Sequence[Standing]) -> int | None:
    """The task that the next round goes to: the one whose share of the model's time had the fewest trials.

    Trials end up in proportion to the time that the model spends in each task.

    Returns:
        The task's index, or None where every task is exhausted.
    """
    open_tasks = [index for index, standing in enumerate(standings) if not standing.exhausted]
    return max(open_tasks, key=lambda index: _claim(standings[index]), default=None)


def round_size(trials_left: int) -> int:
    """How many candidates the next round measures."""
    return min(ROUND_TRIALS, trials_left)


def best_so_far(seconds: Sequence[float | None], start_seconds: float | None) -> tuple[float, ...]:
    """The best after each trial, in milliseconds; a failed trial (None) changes nothing.

    Trials before anything ran have no entry.
    """
    best = inf if start_seconds is None else start_seconds
    history = []
    for trial in seconds:
        best = min(best, inf if trial is None else trial)
        history.append(best * 1e3)
    return tuple(value for value in history if value != inf)


def _claim(standing: Standing) -> float:
    if standing.best_seconds is None:
        return inf if standing.trials == 0 else 0.0
    return standing.weight * standing.best_seconds / (standing.trials + ROUND_TRIALS)
