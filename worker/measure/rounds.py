"""Times sides in alternation: rounds, runs per round, and the rest between them.

Threads spin for work after a parallel region: libgomp's for some 10 ms, TVM's for a quarter of a second. On a
machine without spare cores they would take a core from the other side. So each side has its own process, and
the candidate server stops that process between two commands.

Each turn begins with a warm-up, as the other side has used the caches since. For long runs that is a run or
two, so they have fewer rounds, with several runs in each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from worker.measure.timed import WARM_UP_SECONDS

ROUNDS = 20
MIN_ROUNDS = 3
MAX_RUNS = 100
LONG_TURN_RUNS = 4
"""The most runs of a turn where a warm-up takes as long as a run or two."""
LONG_ROUNDS = ROUNDS // LONG_TURN_RUNS

_SHORT_SECONDS = 0.002
_SHORT_RUNS = 5


class Plan(NamedTuple):
    """How many rounds, and how many runs each side makes per round."""

    rounds: int
    runs: tuple[int, ...]


class Side(Protocol):
    """One side of an alternation."""

    @property
    def rest_seconds(self) -> float:
        """How long this side usually keeps cores busy after a run."""
        ...

    def time(self, runs: int, warm_up: bool = True) -> tuple[float, ...]:
        """Seconds of each of ``runs`` single runs, after a warm-up if they do not follow others."""
        ...

    def rest(self) -> None:
        """Return when the side has released its cores."""
        ...


class Rounds(NamedTuple):
    """The seconds of every run: by side, then by round."""

    sides: tuple[tuple[tuple[float, ...], ...], ...]

    def runs(self, side: int) -> tuple[float, ...]:
        """All runs of a side."""
        return _joined(self.sides[side])

    def halves(self, side: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The runs of a side in the first half of the rounds and in the last; a single round is both."""
        turns = self.sides[side]
        middle = max(1, len(turns) // 2)
        return _joined(turns[:middle]), _joined(turns[middle:] or turns)


def _joined(turns: tuple[tuple[float, ...], ...]) -> tuple[float, ...]:
    return tuple(seconds for turn in turns for seconds in turn)


def plan_rounds(
    run_seconds: tuple[float, ...], rest_seconds: float, budget_seconds: float, most_seconds: float = 0.0
) -> Plan:
    """Share a budget of time among the sides.

    Each side gets the same time in a round, and at least one run. If ``ROUNDS`` rounds do not fit, there are
    fewer, but at least ``MIN_ROUNDS``. ``LONG_ROUNDS`` rounds have ``LONG_TURN_RUNS`` runs of the first side
    if these fit, and fewer of slower sides.

    Args:
        run_seconds: the time of a single run, by side.
        rest_seconds: the rests of all sides in one round.
        budget_seconds: the time for all rounds.
        most_seconds: how long ``LONG_ROUNDS`` rounds may take if they do not fit into the budget.
    """
    turn_seconds = (budget_seconds / ROUNDS - rest_seconds) / len(run_seconds)
    runs = tuple(min(max(int(turn_seconds / seconds), 1), MAX_RUNS) for seconds in run_seconds)
    if budget_seconds >= ROUNDS * _round_seconds(run_seconds, runs, rest_seconds):
        return Plan(ROUNDS, runs)
    limit_seconds = max(budget_seconds, most_seconds)
    long_turns = _long_turns(run_seconds, runs)
    if LONG_ROUNDS * _round_seconds(run_seconds, long_turns, rest_seconds) <= limit_seconds:
        runs = long_turns
    round_seconds = _round_seconds(run_seconds, runs, rest_seconds)
    enough = min(int(limit_seconds / round_seconds), LONG_ROUNDS)
    return Plan(min(max(int(budget_seconds / round_seconds), enough, MIN_ROUNDS), ROUNDS), runs)


def _long_turns(run_seconds: tuple[float, ...], runs: tuple[int, ...]) -> tuple[int, ...]:
    """The runs of each side if the first has ``LONG_TURN_RUNS``, and slower sides have its time."""
    turn_seconds = LONG_TURN_RUNS * run_seconds[0]
    shares = (max(min(LONG_TURN_RUNS, int(turn_seconds / seconds)), 1) for seconds in run_seconds)
    return tuple(map(max, runs, shares))


def _round_seconds(run_seconds: tuple[float, ...], runs: tuple[int, ...], rest_seconds: float) -> float:
    """How long a round takes, with the warm-ups of long runs."""
    turns = (
        (n + (seconds > WARM_UP_SECONDS)) * seconds for n, seconds in zip(runs, run_seconds, strict=True)
    )
    return rest_seconds + sum(turns)


def alternate(
    sides: tuple[Side, ...],
    budget_seconds: float,
    advance: Callable[[int, int], None],
    most_seconds: float = 0.0,
    run_seconds: tuple[float, ...] | None = None,
) -> Rounds:
    """Time sides in turns: A B A B ….

    Args:
        sides: the sides, in the order of their turns.
        budget_seconds: the time for all rounds, without the first warm-up. If runs get slower on a busy
            machine, rounds are dropped.
        advance: called with the number of finished rounds and of all rounds.
        most_seconds: see ``plan_rounds``.
        run_seconds: the time of a single run, by side, if it is known.
    """
    if run_seconds is None:
        run_seconds = tuple(_estimate(side) for side in sides)
    rest_seconds = sum(side.rest_seconds for side in sides)
    plan = plan_rounds(run_seconds, rest_seconds, budget_seconds, most_seconds)
    timed: tuple[list[tuple[float, ...]], ...] = tuple([] for _ in sides)
    deadline = time.perf_counter() + max(budget_seconds, most_seconds)
    for done in range(plan.rounds):
        if done >= MIN_ROUNDS and time.perf_counter() > deadline:
            break
        advance(done, plan.rounds)
        for side, runs, turns in zip(sides, plan.runs, timed, strict=True):
            turns.append(side.time(runs))
            side.rest()
    return Rounds(tuple(tuple(turns) for turns in timed))


def _estimate(side: Side) -> float:
    seconds = min(side.time(1))
    if seconds < _SHORT_SECONDS:
        seconds = min(side.time(_SHORT_RUNS))
    side.rest()
    return max(seconds, 1e-7)
