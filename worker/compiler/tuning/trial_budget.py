"""How a search spends its trials: pure functions of its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from bessemer.contract.options import SearchEnd, TuneOptions

ROUND_TRIALS = 8
"""Candidates per round: few enough to learn between rounds, enough to keep the builders busy."""

_MOST_ROUND_TRIALS = 32

MEASURED_ROUNDS = 3
"""How often a candidate is timed."""

COMPARISON_ROUNDS = 5
"""How often a winner and the default schedule that it would replace are timed."""

_WORTHWHILE = 0.98
"""A gain is a time below this share of the default's; anything above is noise."""

_FIRST_ROUNDS = 2
"""First rounds of all tasks take at most one trial out of this many."""

_EXPECTED_GAIN = 0.1
"""The share of a task's time that its first round is expected to bring; each later one brings less."""

_GAIN_LASTS = 0.5
"""The share of a round's gain that the next one is expected to gain again."""

COMPARISON_SECONDS = 1.0
_COMPARISON_SHARE = 0.1


@dataclass(frozen=True)
class Standing:
    """A task's progress. Times are seconds of one call, None until something ran.

    ``best_seconds`` is the faster of the default schedule and the best trial. ``is_named`` says that the
    request names the task. ``has_plans`` says that plans of its family are left, ``follows_plans`` that
    MetaSchedule goes on where they ended. ``is_capped`` says that the task has all trials that one may have.
    ``latest_gain`` is by how many seconds the latest round's trials beat everything before them.
    ``is_compared`` says that the best trial was measured beside the default schedule. ``space`` proposes the
    next candidates; ``has_proposed`` says that it need not draw them first.
    """

    weight: int
    trials: int
    best_seconds: float | None
    exhausted: bool
    is_named: bool = False
    default_seconds: float | None = None
    has_plans: bool = False
    follows_plans: bool = False
    is_capped: bool = False
    latest_gain: float = 0.0
    is_compared: bool = False
    space: str = ""
    has_proposed: bool = False


class Budget(NamedTuple):
    """Seconds for the search and for the final comparison; None means no limit."""

    search_seconds: float | None
    comparison_seconds: float


def share_seconds(seconds: float | None) -> Budget:
    """Divide a request's tuning time: the final comparison gets a tenth, up to what it needs."""
    if seconds is None:
        return Budget(None, COMPARISON_SECONDS)
    comparison_seconds = min(COMPARISON_SECONDS, _COMPARISON_SHARE * seconds)
    return Budget(seconds - comparison_seconds, comparison_seconds)


def next_task(standings: Sequence[Standing]) -> int | None:
    """The task for the next round: the one that is expected to gain most, weighted by its calls.

    Before any task has a second round, each has had a first one; tasks that the request names come before all
    others. Then a task's round is expected to bring half of what its latest one did, and a share of its time
    that falls with each round: until a function gains, trials are in proportion to the time that the model
    spends in each task. Tasks whose plans are measured wait until those of all tasks are.

    Returns:
        The task's index, or None if every task is exhausted.
    """
    return max(_open_tasks(standings), key=lambda index: _claim(standings[index]), default=None)


def _open_tasks(standings: Sequence[Standing]) -> list[int]:
    """The tasks that may have a round now."""
    plans_left = any(standing.has_plans and not standing.exhausted for standing in standings)
    return [
        index
        for index, standing in enumerate(standings)
        if not (standing.exhausted or (plans_left and standing.follows_plans))
    ]


def search_end(
    options: TuneOptions, done: int, elapsed_seconds: float, standings: Sequence[Standing]
) -> SearchEnd | None:
    """Why a search ends now; None while it goes on."""
    if done >= options.trials:
        return SearchEnd.TRIALS
    if next_task(standings) is None:
        is_capped = any(standing.is_capped for standing in standings)
        return SearchEnd.TRIALS_PER_TASK if is_capped else SearchEnd.CANDIDATES
    limit = share_seconds(options.seconds).search_seconds
    return SearchEnd.SECONDS if limit is not None and elapsed_seconds >= limit else None


def round_trials(builders: int) -> int:
    """Candidates per round where measuring takes less time than building: one for each builder."""
    return min(max(ROUND_TRIALS, builders), _MOST_ROUND_TRIALS)


def round_size(trials_left: int, standings: Sequence[Standing], most: int = ROUND_TRIALS) -> int:
    """How many candidates the next round measures, up to ``most``.

    Named tasks without a trial share scarce trials. Others share half of them, so that as many are left for
    the tasks that gain most.
    """
    named = sum(_is_waiting(standing) for standing in standings)
    waiting = named or _FIRST_ROUNDS * sum(
        _has_no_round(standings[index]) for index in _open_tasks(standings)
    )
    return min(most, max(1, trials_left // max(1, waiting)), trials_left)


def next_plans(
    plans: Sequence[Mapping[str, int]], measured: Mapping[int, float | None], count: int
) -> tuple[int, ...]:
    """The plans of a family to measure next, alternately by the model's order and by nearness to the best.

    Args:
        plans: the numbers of every plan, in the model's order of preference.
        measured: seconds by a plan's index, None where unknown.
        count: maximum number to choose.

    Returns:
        Indices of plans without a measurement.
    """
    best = best_plan(measured)
    left = [index for index in range(len(plans)) if index not in measured]
    near = sorted(left, key=lambda index: (_distance(plans[index], plans[best]), index))
    alternating = [index for pair in zip(left, near, strict=True) for index in pair]
    return tuple(dict.fromkeys(alternating))[:count]


def best_of(seconds: Sequence[float] | None) -> float | None:
    """The fastest of several measurements, since other load only adds time."""
    return min(map(float, seconds), default=None) if seconds is not None else None


def milliseconds(seconds: float | None) -> float | None:
    """Seconds in milliseconds; None if unknown."""
    return None if seconds is None else seconds * 1e3


def may_beat(seconds: float | None, default_seconds: float | None) -> bool:
    """Whether a candidate deserves a second measurement beside the default schedule."""
    return seconds is not None and (default_seconds is None or seconds < default_seconds)


def beats(seconds: Sequence[float] | None, default_seconds: Sequence[float] | None) -> bool:
    """Whether alternating measurements show a candidate to be faster than the default schedule."""
    ours, theirs = best_of(seconds), best_of(default_seconds)
    return ours is not None and (theirs is None or ours < _WORTHWHILE * theirs)


def best_so_far(seconds: Sequence[float | None], start_seconds: float | None) -> tuple[float, ...]:
    """The best milliseconds after each trial, from the first success on; a failed trial is None."""
    best = inf if start_seconds is None else start_seconds
    history = []
    for trial in seconds:
        best = min(best, inf if trial is None else trial)
        history.append(best * 1e3)
    return tuple(value for value in history if value != inf)


def shown_scope(tasks: int, unsearched: int) -> str:
    """The number of tasks, and of functions left out because their sizes are dynamic."""
    if not unsearched:
        return f"{tasks} tasks"
    left_out = f"{unsearched} {'function' if unsearched == 1 else 'functions'} skipped: dynamic sizes"
    return f"{tasks} tasks, {left_out}" if tasks else f"nothing to search, {left_out}"


def best_plan(measured: Mapping[int, float | None]) -> int:
    """The fastest plan; the model's first choice until one ran."""
    ran = {index: seconds for index, seconds in measured.items() if seconds is not None}
    return min(ran, key=lambda index: ran[index], default=0)


def _distance(plan: Mapping[str, int], other: Mapping[str, int]) -> int:
    """The number of differing values."""
    return sum(plan[name] != other[name] for name in plan)


def _is_waiting(standing: Standing) -> bool:
    return standing.is_named and standing.trials == 0 and not standing.exhausted


def _has_no_round(standing: Standing) -> bool:
    return standing.trials == 0 and not standing.exhausted


def _claim(standing: Standing) -> tuple[bool, bool, float]:
    """Whether a named task waits, whether any does, and the gain that the next round is expected to bring."""
    if standing.best_seconds is None:
        return _is_waiting(standing), _has_no_round(standing), inf if standing.trials == 0 else 0.0
    expected = _EXPECTED_GAIN * standing.best_seconds * ROUND_TRIALS / (standing.trials + ROUND_TRIALS)
    gain = standing.weight * (expected + _GAIN_LASTS * standing.latest_gain)
    return _is_waiting(standing), _has_no_round(standing), gain
