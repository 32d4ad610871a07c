"""How a search spends its trials: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from bessemer.contract.options import SearchEnd, TuneOptions

ROUND_TRIALS = 8
"""Candidates per round: few enough that what is learned steers the next, enough to keep the builders busy."""

MEASURED_ROUNDS = 3
"""How often a candidate is timed."""

COMPARISON_ROUNDS = 5
"""How often a winner and the default that it replaces are timed."""

_WORTHWHILE = 0.98
"""Less than this share of the default's time is a gain; more is noise."""

COMPARISON_SECONDS = 1.0
_COMPARISON_SHARE = 0.1


@dataclass(frozen=True)
class Standing:
    """How far a task is. Seconds are of one call; None until anything of the task ran.

    ``best_seconds`` is of the default schedule or of a trial, whichever is faster. A task that ``is_named``
    is searched because the request names it.
    """

    weight: int
    trials: int
    best_seconds: float | None
    exhausted: bool
    is_named: bool = False
    default_seconds: float | None = None


class Budget(NamedTuple):
    """Seconds for the search and for the contest that follows it; None has no limit."""

    search_seconds: float | None
    comparison_seconds: float


def share_seconds(seconds: float | None) -> Budget:
    """Share what a request gives to tuning: the contest gets a tenth, and never more than it needs."""
    if seconds is None:
        return Budget(None, COMPARISON_SECONDS)
    comparison_seconds = min(COMPARISON_SECONDS, _COMPARISON_SHARE * seconds)
    return Budget(seconds - comparison_seconds, comparison_seconds)


def next_task(standings: Sequence[Standing]) -> int | None:
    """The task that the next round goes to: the one whose share of the model's time had the fewest trials.

    Trials end up in proportion to the time that the model spends in each task. Tasks that the request names
    come first as long as they had none.

    Returns:
        The task's index, or None where every task is exhausted.
    """
    open_tasks = [index for index, standing in enumerate(standings) if not standing.exhausted]
    return max(open_tasks, key=lambda index: _claim(standings[index]), default=None)


def search_end(
    options: TuneOptions, done: int, elapsed_seconds: float, standings: Sequence[Standing]
) -> SearchEnd | None:
    """Why a search stops now; None while it goes on."""
    if done >= options.trials:
        return SearchEnd.TRIALS
    if next_task(standings) is None:
        return SearchEnd.CANDIDATES
    limit = share_seconds(options.seconds).search_seconds
    return SearchEnd.SECONDS if limit is not None and elapsed_seconds >= limit else None


def round_size(trials_left: int, standings: Sequence[Standing]) -> int:
    """How many candidates the next round measures: named tasks share what is little."""
    waiting = sum(_is_waiting(standing) for standing in standings)
    return min(ROUND_TRIALS, max(1, trials_left // max(1, waiting)), trials_left)


def next_plans(
    plans: Sequence[Mapping[str, int]], measured: Mapping[int, float | None], count: int
) -> tuple[int, ...]:
    """Which plans of a family to measure next: in turn the model's next, and a neighbor of the best so far.

    Args:
        plans: the numbers of every plan, the model's favorite first.
        measured: by the index of a plan its seconds, None where they are unknown.
        count: how many to choose at most.

    Returns:
        Indices of plans that are not measured; none where all are.
    """
    best = _best_plan(measured)
    left = [index for index in range(len(plans)) if index not in measured]
    near = sorted(left, key=lambda index: (_distance(plans[index], plans[best]), index))
    alternating = [index for pair in zip(left, near, strict=True) for index in pair]
    return tuple(dict.fromkeys(alternating))[:count]


def best_of(seconds: Sequence[float] | None) -> float | None:
    """The least of several measurements, to which everything else that runs only adds."""
    return min(map(float, seconds), default=None) if seconds is not None else None


def may_beat(seconds: float | None, default_seconds: float | None) -> bool:
    """Whether a candidate is worth a second measurement beside the default."""
    return seconds is not None and (default_seconds is None or seconds < default_seconds)


def beats(seconds: Sequence[float] | None, default_seconds: Sequence[float] | None) -> bool:
    """Whether measurements in alternation show a candidate to be faster than the default."""
    ours, theirs = best_of(seconds), best_of(default_seconds)
    return ours is not None and (theirs is None or ours < _WORTHWHILE * theirs)


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


def shown_search(
    options: TuneOptions, elapsed_seconds: float, standings: Sequence[Standing], note: str
) -> str:
    """How far a search is, to follow the number of trials: its time, the best model so far, and a note.

    The model's time is the sum over the functions that are searched, as often as the model calls them.
    """
    limit = "" if options.seconds is None else f" in {elapsed_seconds:.0f} of {options.seconds:g} s"
    return f"trials{limit}{_shown_times(standings)}; {note}"


def _shown_times(standings: Sequence[Standing]) -> str:
    known = [standing for standing in standings if standing.default_seconds is not None]
    if not known:
        return ", nothing ran yet" if standings else ""
    best = sum(standing.weight * (standing.best_seconds or 0.0) for standing in known)
    default = sum(standing.weight * (standing.default_seconds or 0.0) for standing in known)
    return f", best {best * 1e3:.3g} ms, default {default * 1e3:.3g} ms"


def shown_scope(tasks: int, unsearched: int) -> str:
    """What a search covers, and how many functions it leaves out because their sizes are open."""
    if not unsearched:
        return f"{tasks} tasks"
    left_out = f"{unsearched} {'function' if unsearched == 1 else 'functions'} left out: open sizes"
    return f"{tasks} tasks, {left_out}" if tasks else f"nothing to search, {left_out}"


def _best_plan(measured: Mapping[int, float | None]) -> int:
    """The fastest plan; the model's favorite as long as none ran."""
    ran = {index: seconds for index, seconds in measured.items() if seconds is not None}
    return min(ran, key=lambda index: ran[index], default=0)


def _distance(plan: Mapping[str, int], other: Mapping[str, int]) -> int:
    """How many numbers differ."""
    return sum(plan[name] != other[name] for name in plan)


def _is_waiting(standing: Standing) -> bool:
    return standing.is_named and standing.trials == 0 and not standing.exhausted


def _claim(standing: Standing) -> float:
    if _is_waiting(standing):
        return inf
    if standing.best_seconds is None:
        return inf if standing.trials == 0 else 0.0
    return standing.weight * standing.best_seconds / (standing.trials + ROUND_TRIALS)
