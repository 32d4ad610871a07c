from dataclasses import replace
from typing import Any

import pytest

from bessemer.contract.options import SearchEnd, TuneOptions
from worker.compiler.tuning.trial_budget import (
    ROUND_TRIALS,
    Budget,
    Standing,
    best_so_far,
    next_task,
    round_size,
    round_trials,
    search_end,
    share_seconds,
    shown_scope,
)


def standing(
    weight: int = 1, trials: int = 0, best_seconds: float | None = 1.0, exhausted: bool = False
) -> Standing:
    return Standing(weight=weight, trials=trials, best_seconds=best_seconds, exhausted=exhausted)


def gained(seconds: float) -> Standing:
    return replace(standing(trials=8), latest_gain=seconds)


def named(trials: int = 0, exhausted: bool = False) -> Standing:
    return replace(standing(trials=trials, exhausted=exhausted), is_named=True)


@pytest.mark.parametrize(
    ("standings", "expected"),
    [
        ([], None),
        ([standing(exhausted=True)], None),
        ([standing(best_seconds=1.0), standing(best_seconds=2.0)], 1),
        ([standing(weight=3, best_seconds=1.0), standing(best_seconds=2.0)], 0),
        ([standing(best_seconds=9.0), standing(best_seconds=None)], 1),
        ([standing(best_seconds=0.1), standing(best_seconds=None, trials=16)], 0),
        ([standing(best_seconds=2.0, trials=32), standing(best_seconds=1.0, trials=0)], 1),
        ([standing(best_seconds=30.0, trials=32), standing(best_seconds=1.0, trials=0)], 1),
        ([standing(best_seconds=30.0, trials=32), standing(best_seconds=1.0, trials=8)], 0),
        ([standing(best_seconds=1.0, trials=8), gained(0.2)], 1),
        ([standing(best_seconds=9.0, trials=8), gained(0.2)], 0),
        ([standing(weight=9, trials=8), gained(0.2)], 0),
    ],
)
def test_the_next_round_goes_to_a_task_without_one_or_to_the_one_that_is_expected_to_gain_most(
    standings: list[Standing], expected: Any
) -> None:
    assert next_task(standings) == expected


def test_trials_end_up_in_proportion_to_the_time_spent() -> None:
    seconds, trials = [3.0, 1.0], [0, 0]
    for _ in range(400):
        chosen = next_task([standing(trials=trials[i], best_seconds=seconds[i]) for i in range(2)])
        trials[chosen] += 1
    assert trials == [304, 96]


@pytest.mark.parametrize(
    ("trials_left", "waiting", "expected"),
    [(64, 4, 8), (64, 16, 2), (64, 100, 1), (3, 1, 1), (1, 1, 1), (1000, 4, 8)],
)
def test_first_rounds_share_half_of_the_trials(trials_left: int, waiting: int, expected: int) -> None:
    standings = [standing() for _ in range(waiting)] + [standing(trials=8)]
    assert round_size(trials_left, standings) == expected


@pytest.mark.parametrize(("left", "expected"), [(1, 1), (ROUND_TRIALS, ROUND_TRIALS), (1000, ROUND_TRIALS)])
def test_a_round_never_exceeds_the_remaining_trials(left: int, expected: Any) -> None:
    assert round_size(left, [standing(trials=8)]) == expected


@pytest.mark.parametrize(
    ("standings", "expected"),
    [
        ([named(), named(), named()], 2),
        ([named(trials=2), named(), named()], 3),
        ([named(trials=2), named(trials=2)], 6),
        ([named(exhausted=True), standing(trials=8)], 6),
    ],
)
def test_named_tasks_without_trials_share_the_remaining_ones(
    standings: list[Standing], expected: int
) -> None:
    assert round_size(6, standings) == expected


def test_a_named_task_without_a_trial_comes_first() -> None:
    assert next_task([standing(best_seconds=9.0), replace(named(), best_seconds=0.1)]) == 1


def with_plans(best_seconds: float, exhausted: bool = False) -> Standing:
    return replace(standing(best_seconds=best_seconds, exhausted=exhausted), has_plans=True)


def after_plans(best_seconds: float) -> Standing:
    return replace(standing(best_seconds=best_seconds), follows_plans=True)


@pytest.mark.parametrize(
    ("standings", "expected"),
    [
        ([after_plans(9.0), with_plans(1.0)], 1),
        ([after_plans(9.0), with_plans(1.0), standing(best_seconds=2.0)], 2),
        ([after_plans(9.0), with_plans(1.0, exhausted=True), standing(best_seconds=2.0)], 0),
        ([after_plans(1.0), after_plans(9.0)], 1),
    ],
)
def test_metaschedule_follows_plans_when_all_plans_are_measured(
    standings: list[Standing], expected: int
) -> None:
    assert next_task(standings) == expected


@pytest.mark.parametrize(
    ("seconds", "start", "expected"),
    [
        ([], None, ()),
        ([None, 0.002, None, 0.003, 0.001], None, (2.0, 2.0, 2.0, 1.0)),
        ([None, 0.002], 0.0015, (1.5, 1.5)),
    ],
)
def test_the_history_holds_the_best_after_each_trial(
    seconds: list[float | None], start: float | None, expected: Any
) -> None:
    assert best_so_far(seconds, start) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(None, Budget(None, 1.0)), (600.0, Budget(599.0, 1.0)), (5.0, Budget(4.5, 0.5))],
)
def test_the_final_comparison_counts_against_the_tuning_time(seconds: float | None, expected: Budget) -> None:
    assert share_seconds(seconds) == expected


@pytest.mark.parametrize(
    ("tasks", "unsearched", "words"),
    [
        (3, 0, "3 tasks"),
        (3, 1, "3 tasks, 1 function skipped: dynamic sizes"),
        (0, 5, "nothing to search, 5 functions skipped: dynamic sizes"),
    ],
)
def test_a_search_reports_the_tasks_it_leaves_out(tasks: int, unsearched: int, words: str) -> None:
    assert shown_scope(tasks, unsearched) == words


@pytest.mark.parametrize(
    ("options", "done", "elapsed", "standings", "end"),
    [
        (TuneOptions(trials=8), 7, 1e9, [standing()], None),
        (TuneOptions(trials=8), 8, 0.0, [standing()], SearchEnd.TRIALS),
        (TuneOptions(trials=8), 3, 0.0, [standing(exhausted=True)], SearchEnd.CANDIDATES),
        (TuneOptions(trials=8), 0, 0.0, [], SearchEnd.CANDIDATES),
        (
            TuneOptions(trials=8, max_trials_per_task=2),
            3,
            0.0,
            [replace(standing(exhausted=True), is_capped=True), standing(exhausted=True)],
            SearchEnd.TRIALS_PER_TASK,
        ),
        (TuneOptions(seconds=10), 5000, 8.9, [standing()], None),
        (TuneOptions(seconds=10), 5, 9.0, [standing()], SearchEnd.SECONDS),
        (TuneOptions(seconds=10), 5, 1.0, [standing(exhausted=True)], SearchEnd.CANDIDATES),
        (TuneOptions(trials=8, seconds=10), 8, 1.0, [standing()], SearchEnd.TRIALS),
        (TuneOptions(trials=8, seconds=10), 7, 9.5, [standing()], SearchEnd.SECONDS),
    ],
)
def test_a_search_ends_at_whichever_limit_comes_first(
    options: TuneOptions, done: int, elapsed: float, standings: list[Standing], end: SearchEnd | None
) -> None:
    assert search_end(options, done, elapsed, standings) is end


@pytest.mark.parametrize(("builders", "expected"), [(1, ROUND_TRIALS), (16, 16), (96, 32)])
def test_a_round_on_a_gpu_keeps_all_builders_busy(builders: int, expected: int) -> None:
    assert round_trials(builders) == expected
    assert round_size(1000, [standing()], round_trials(builders)) == expected
