from dataclasses import dataclass, field

import pytest

from worker.measure.rounds import MAX_RUNS, MIN_ROUNDS, ROUNDS, Plan, Rounds, alternate, plan_rounds


@pytest.mark.parametrize(
    ("run_seconds", "rest_seconds", "budget_seconds", "expected"),
    [
        ((0.001, 0.001), 0.0, 0.4, Plan(ROUNDS, (10, 10))),
        ((0.001, 0.002), 0.0, 0.4, Plan(ROUNDS, (10, 5))),
        ((0.001,), 0.0, 0.4, Plan(ROUNDS, (20,))),
        ((0.001, 0.001), 0.01, 0.4, Plan(ROUNDS, (5, 5))),
        ((0.02, 0.02), 0.0, 0.4, Plan(10, (1, 1))),
        ((0.03, 0.03), 0.0, 0.6, Plan(5, (1, 1))),
        ((0.03, 0.001), 0.0, 3.0, Plan(13, (4, 75))),
        ((2.0, 0.1), 0.006, 0.4, Plan(MIN_ROUNDS, (1, 1))),
        ((1e-7, 1e-7), 0.0, 0.4, Plan(ROUNDS, (MAX_RUNS, MAX_RUNS))),
    ],
)
def test_a_budget_is_shared_evenly(
    run_seconds: tuple[float, ...], rest_seconds: float, budget_seconds: float, expected: Plan
) -> None:
    assert plan_rounds(run_seconds, rest_seconds, budget_seconds) == expected


@dataclass
class Recorder:
    """A side that records its turns in a shared list."""

    name: str
    seconds: float
    turns: list[str] = field(default_factory=list)
    rest_seconds: float = 0.0

    def time(self, runs: int, warm_up: bool = True) -> tuple[float, ...]:
        self.turns.append(self.name)
        return (self.seconds,) * runs

    def rest(self) -> None:
        self.turns.append(f"{self.name} rests")


@pytest.mark.parametrize(
    ("run_seconds", "expected"),
    [
        ((0.015, 0.015), Plan(5, (4, 4))),
        ((0.05, 0.05), Plan(5, (4, 4))),
        ((0.025, 0.06), Plan(5, (4, 1))),
        ((0.06, 0.025), Plan(5, (4, 4))),
        ((0.03, 0.14), Plan(5, (4, 1))),
        ((0.15, 0.25), Plan(MIN_ROUNDS, (1, 1))),
        ((0.5, 0.5), Plan(MIN_ROUNDS, (1, 1))),
    ],
)
def test_slow_runs_get_more_time_until_the_first_side_has_enough(
    run_seconds: tuple[float, ...], expected: Plan
) -> None:
    assert plan_rounds(run_seconds, 0.0, 0.4, most_seconds=2.5) == expected


def test_sides_take_turns_and_rest_in_between() -> None:
    turns: list[str] = []
    sides = (Recorder("a", 0.01, turns), Recorder("b", 0.03, turns))

    rounds = alternate(sides, 1e-9, lambda done, of: None)

    one_round = ["a", "a rests", "b", "b rests"]
    assert turns == one_round * (1 + MIN_ROUNDS)
    assert rounds.sides == (((0.01,),) * MIN_ROUNDS, ((0.03,),) * MIN_ROUNDS)
    assert rounds.runs(1) == (0.03,) * MIN_ROUNDS


def test_known_times_are_not_estimated_again() -> None:
    side = Recorder("a", 1.0)
    alternate((side,), 1e-9, lambda done, of: None, run_seconds=(1.0,))
    assert side.turns == ["a", "a rests"] * MIN_ROUNDS


def test_finished_rounds_are_reported() -> None:
    progress: list[tuple[int, int]] = []

    alternate((Recorder("a", 1.0),), 1e-9, lambda done, of: progress.append((done, of)))

    assert progress == [(done, MIN_ROUNDS) for done in range(MIN_ROUNDS)]


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (((1.0,),), ((1.0,), (1.0,))),
        (((1.0, 2.0), (3.0,), (4.0, 5.0)), ((1.0, 2.0), (3.0, 4.0, 5.0))),
        (((1.0,), (2.0,), (3.0,), (4.0,)), ((1.0, 2.0), (3.0, 4.0))),
    ],
)
def test_rounds_have_an_early_half_and_a_late_one(
    turns: tuple[tuple[float, ...], ...], expected: tuple[tuple[float, ...], ...]
) -> None:
    assert Rounds((turns,)).halves(0) == expected
