"""What a search knows of the whole model, and when that or the time ends it."""

from dataclasses import replace
from math import inf

import pytest

from bessemer.contract.options import MAX_TRIALS, SearchEnd, TuneOptions
from bessemer.contract.report import SearchPoint
from worker.compiler.tuning.course import (
    MAX_POINTS,
    SLACK,
    Costs,
    Course,
    Round,
    affords_model,
    candidate_timeout,
    costs_now,
    costs_of,
    enough_seconds,
    estimate_seconds,
    fitting_trials,
    lap_gain,
    likely_winners,
    longest_comparison,
    open_ended_seconds,
    settling_seconds,
    shares_of,
    shown_curve,
)
from worker.compiler.tuning.trial_budget import Standing


def standing(weight: int, best: float | None, default: float | None, exhausted: bool = False) -> Standing:
    return Standing(weight=weight, trials=0, best_seconds=best, exhausted=exhausted, default_seconds=default)


TUNED = [standing(3, 0.001, 0.0012), standing(1, 0.0012, 0.0016)]
"""With default schedules 5.2 ms, with the best ones 4.2 ms."""


@pytest.mark.parametrize(
    ("standings", "untuned", "expected"),
    [
        ([], None, None),
        ([], 0.006, 0.006),
        ([standing(1, None, None)], None, None),
        (TUNED, None, 0.0042),
        (TUNED, 0.006, 0.005),
        (TUNED, 0.0052, 0.0042),
        (TUNED, 0.0051, 0.0042),
        (TUNED, 0.0026, 0.0026),
        ([*TUNED, standing(1, 0.5, None)], 0.006, 0.005),
    ],
)
def test_the_model_takes_its_functions_best_times_and_the_rest(
    standings: list[Standing], untuned: float | None, expected: float | None
) -> None:
    assert estimate_seconds(standings, untuned) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("estimates", "rounds", "expected"),
    [
        ([], 1, None),
        ([1.0], 1, None),
        ([1.0, 0.9], 1, 0.1),
        ([1.0, 0.9, 0.9], 1, 0.0),
        ([1.0, 0.9, 0.8], 2, 0.2),
    ],
)
def test_a_lap_gains_what_its_rounds_gain_together(
    estimates: list[float], rounds: int, expected: float | None
) -> None:
    assert lap_gain(estimates, rounds) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rounds", "left", "expected"),
    [
        ([], 10.0, None),
        ([Round(0, 3.0)], 10.0, None),
        ([Round(8, 4.0, 4.0)], 10.0, 20),
        ([Round(8, 4.0, 4.0), Round(8, 16.0, 16.0)], 10.0, 5),
        ([Round(8, 80.0, 80.0), Round(8, 4.0, 4.0), Round(8, 4.0, 4.0), Round(8, 4.0, 4.0)], 10.0, 20),
        ([Round(8, 4.0, 4.0)], -1.0, 0),
        ([Round(8, 4.0, 4.0)], inf, None),
    ],
)
def test_the_slowest_of_the_latest_rounds_says_how_many_trials_fit(
    rounds: list[Round], left: float, expected: int | None
) -> None:
    assert fitting_trials(rounds, left) == expected


@pytest.mark.parametrize(
    ("rounds", "left", "space", "expected"),
    [
        ([Round(8, 5.0, 3.0, 1.0)], 5.0, "", 8),
        ([Round(8, 5.0, 3.0, 1.0), Round(8, 4.0, 3.0, 1.0)], 4.0, "", 6),
        ([Round(8, 5.0, 3.0, 1.0)], 0.9, "", 0),
        ([Round(8, 4.0, 4.0, space="plans"), Round(2, 6.0, 2.0, space="metaschedule")], 8.0, "plans", 16),
        (
            [Round(8, 4.0, 4.0, space="plans"), Round(2, 6.0, 2.0, space="metaschedule")],
            8.0,
            "metaschedule",
            4,
        ),
        ([Round(8, 4.0, 4.0, space="plans")], 8.0, "metaschedule", 16),
        ([Round(8, 4.0, 4.0), Round(0, 9.0)], 8.0, "", 16),
    ],
)
def test_a_round_takes_the_time_of_its_proposals_and_of_each_trial(
    rounds: list[Round], left: float, space: str, expected: int
) -> None:
    assert fitting_trials(rounds, left, space) == expected


def test_candidates_that_are_proposed_cost_no_time_for_that() -> None:
    rounds = [Round(8, 6.0, 3.0, 1.0), Round(8, 4.0, 3.0, 1.0)]
    assert fitting_trials(rounds, 4.0, is_proposed=True) == 8
    assert fitting_trials(rounds, 4.0) == 4


COSTS = Costs(build_seconds=0.2, measure_seconds=0.3, model_seconds=2.0)


@pytest.mark.parametrize(
    ("winners", "is_laid_out", "expected"),
    [(0, False, 0.0), (0, True, 2.0), (2, False, 2 * 2 * 0.7 + 2.0), (2, True, 2 * 2 * 0.7 + 2.0)],
)
def test_settling_takes_time_for_each_winner_and_for_a_model_that_may_change(
    winners: int, is_laid_out: bool, expected: float
) -> None:
    assert settling_seconds(COSTS, winners, is_laid_out) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("standings", "expected"),
    [
        ([], 0),
        (TUNED, 2),
        ([standing(1, 1.0, 1.0)], 1),
        ([*TUNED, standing(9, 1.0, 1.0)], 3),
        ([*TUNED, standing(9, 1.0, 1.0), standing(1, 1.0, 1.0)], 3),
        ([*TUNED, standing(9, 1.0, 1.0, exhausted=True)], 2),
        ([*(replace(each, is_compared=True) for each in TUNED), standing(9, 1.0, 1.0)], 1),
    ],
)
def test_the_next_round_may_find_another_winner(standings: list[Standing], expected: int) -> None:
    assert likely_winners(standings) == expected


@pytest.mark.parametrize(
    ("model_seconds", "expected"),
    [(None, Costs(0.75, 0.25, 8.0)), (3.0, Costs(0.75, 0.25, 3.0))],
)
def test_default_schedules_show_what_a_function_costs(model_seconds: float | None, expected: Costs) -> None:
    assert costs_of(4, 4.0, 1.0, model_seconds) == expected


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([], COSTS),
        ([Round(0, 9.0)], COSTS),
        ([Round(8, 9.0, 4.0, 2.0)], Costs(0.5, 0.25, 2.0)),
        ([Round(1, 90.0, 80.0, 9.0), *[Round(8, 9.0, 4.0, 2.0)] * 3], Costs(0.5, 0.25, 2.0)),
    ],
)
def test_the_latest_rounds_show_what_a_function_costs_now(rounds: list[Round], expected: Costs) -> None:
    assert costs_now(COSTS, rounds) == expected


@pytest.mark.parametrize(
    ("seconds", "elapsed", "expected"), [(None, 50.0, 0.0), (30.0, 29.0, 1.0), (30.0, 20.0, 3.0)]
)
def test_the_final_comparison_uses_what_is_left_up_to_a_tenth(
    seconds: float | None, elapsed: float, expected: float
) -> None:
    assert longest_comparison(seconds, elapsed) == expected


@pytest.mark.parametrize(("left", "expected"), [(3600.0, 2880.0), (100.0, 70.0), (40.0, 20.0)])
def test_a_search_without_a_limit_of_time_leaves_the_job_some(left: float, expected: float) -> None:
    assert open_ended_seconds(left) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(None, 20.0), (600.0, 20.0), (10.0, 2.0), (1.0, 1.0)])
def test_a_candidate_may_not_use_up_the_time(seconds: float | None, expected: float) -> None:
    assert candidate_timeout(seconds, 20.0) == expected


def test_the_untuned_model_is_built_where_the_time_allows_it() -> None:
    assert affords_model(inf, 100.0)
    assert affords_model(10.0, 2.0)
    assert not affords_model(10.0, 3.5)


def test_shares_of_a_search_are_those_of_its_rounds() -> None:
    assert shares_of([]) is None
    assert shares_of([Round(0, 2.0)]) is None
    shares = shares_of([Round(8, 4.0, 2.0, 1.0), Round(8, 4.0, 1.0, 1.0), Round(0, 2.0)])
    assert shares is not None
    assert shares.trials_per_minute == 96
    assert (shares.search, shares.build, shares.measure) == pytest.approx((0.5, 0.3, 0.2))


def points(*latencies: float) -> list[SearchPoint]:
    return [SearchPoint(seconds=i, trials=8 * i, latency_ms=ms) for i, ms in enumerate(latencies)]


@pytest.mark.parametrize(
    ("latencies", "trials"),
    [((), []), ((5.0,), [0]), ((5.0, 5.0), [0, 8]), ((5.0, 5.0, 4.0, 4.0, 4.0), [0, 16, 32])],
)
def test_a_curve_has_its_ends_and_every_step_down(latencies: tuple[float, ...], trials: list[int]) -> None:
    assert [point.trials for point in shown_curve(points(*latencies))] == trials


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    curve = shown_curve(points(*(10_000.0 - step for step in range(5_000))))
    assert len(curve) <= MAX_POINTS + 1
    assert (curve[0].latency_ms, curve[-1].latency_ms) == (10_000.0, 5_001.0)


def course(options: TuneOptions, *latencies: float, rounds: tuple[Round, ...] = ()) -> Course:
    found = Course(options, tasks=2, untuned_seconds=0.006, left_seconds=100.0)
    found.points += points(*latencies)
    found.rounds += rounds
    return found


FAST = (Round(8, 0.8, 0.8),)
DONE = [replace(each, exhausted=True) for each in TUNED]


@pytest.mark.parametrize(
    ("found", "elapsed", "standings", "end"),
    [
        (course(TuneOptions(trials=64), 6, 5), 1e6, TUNED, None),
        (course(TuneOptions(trials=16), 6, 5), 1.0, TUNED, SearchEnd.TRIALS),
        (course(TuneOptions(until_ms=5.0), 6, 5), 1.0, TUNED, SearchEnd.UNTIL_MS),
        (course(TuneOptions(until_ms=4.9), 6, 5), 1.0, TUNED, None),
        (course(TuneOptions(until_ms=4.9), 6, 5), 71.0, TUNED, SearchEnd.JOB_TIME),
        (course(TuneOptions(until_ms=4.9), 6, 5), 1.0, DONE, SearchEnd.CANDIDATES),
        (course(TuneOptions(gain_below=0.01), 6, 6), 1.0, TUNED, None),
        (course(TuneOptions(gain_below=0.01), 6, 6, 6), 1.0, TUNED, SearchEnd.GAIN_BELOW),
        (course(TuneOptions(gain_below=0.01), 6, 6, 5), 1.0, TUNED, None),
        (course(TuneOptions(seconds=10, until_ms=4), 6, rounds=FAST), 8.95, TUNED, SearchEnd.SECONDS),
        (course(TuneOptions(seconds=10, until_ms=4), 6, rounds=FAST), 8.35, TUNED, None),
        (course(TuneOptions(seconds=10, until_ms=6), 6, rounds=FAST), 8.35, TUNED, SearchEnd.UNTIL_MS),
    ],
)
def test_a_search_ends_at_the_first_limit(
    found: Course, elapsed: float, standings: list[Standing], end: SearchEnd | None
) -> None:
    assert found.end(16, elapsed, standings) is end


def test_the_last_round_is_as_small_as_the_time_that_is_left() -> None:
    found = course(TuneOptions(seconds=10), 6, rounds=FAST)
    assert [found.fitting(elapsed, TUNED, 8) for elapsed in (1.0, 8.1, 8.5)] == [8, 4, 0]


def test_a_rounds_builds_end_soon_after_the_search_should() -> None:
    found = course(TuneOptions(seconds=10), 6)
    assert found.round_seconds(8.0, TUNED, 1) == pytest.approx(0.5 + 0.2)
    assert found.round_seconds(8.0, TUNED, 8) == pytest.approx(8 / 9 + 0.2)
    assert course(TuneOptions(trials=8), 6).round_seconds(8.0, TUNED, 8) == inf


def test_what_follows_the_search_is_part_of_its_time() -> None:
    found = course(TuneOptions(seconds=10), 6)
    found.costs = COSTS
    assert found.search_seconds(TUNED) == pytest.approx(9.0 - SLACK * (2.8 + 2.0))
    found.rounds.append(Round(8, 2.0, 0.8, 0.24))
    assert found.search_seconds(TUNED) == pytest.approx(9.0 - SLACK * (0.6 + 2.0))
    found.is_laid_out = True
    assert found.search_seconds([standing(1, 1.0, 1.0, exhausted=True)]) == pytest.approx(9.0 - SLACK * 2.0)
    assert course(TuneOptions(trials=8)).search_seconds(TUNED) == inf


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (course(TuneOptions(trials=64), 6, 5), "model 5 ms, untuned 6 ms; f"),
        (course(TuneOptions(seconds=10), 5), "6 of 10 s, model 5 ms, untuned 6 ms; f"),
        (
            Course(TuneOptions(trials=1), 1, 0.006, {"torch-eager": 9.0}, points=points(5.0)),
            "model 5 ms, untuned 6 ms, torch-eager 9 ms; f",
        ),
        (Course(TuneOptions(trials=1), 1, points=points(5.0)), "functions 5 ms; f"),
        (Course(TuneOptions(trials=1), 1), "no trial has succeeded yet; f"),
        (Course(TuneOptions(trials=1)), "f"),
    ],
)
def test_progress_shows_the_model_and_the_lines_to_beat(found: Course, words: str) -> None:
    assert found.shown(6.2, "f") == words


def test_the_estimate_has_the_lines_to_beat() -> None:
    found = Course(TuneOptions(trials=1), 1, 0.006, {"torch-eager": 9.0}, points=points(5.0))
    assert found.estimate is not None
    assert found.estimate.model_dump() == {
        "latency_ms": 5.0,
        "untuned_ms": 6.0,
        "peers_ms": {"torch-eager": 9.0},
    }
    assert Course(TuneOptions(trials=1)).estimate is None


@pytest.mark.parametrize(
    ("limits", "trials", "is_open_ended"),
    [
        ({"until_ms": 5.0}, MAX_TRIALS, True),
        ({"gain_below": 0.01}, MAX_TRIALS, True),
        ({"gain_below": 0.01, "seconds": 5.0}, MAX_TRIALS, False),
        ({"gain_below": 0.01, "trials": 8}, 8, False),
        ({"until_ms": None}, 0, False),
    ],
)
def test_every_limit_alone_asks_for_a_search(
    limits: dict[str, float | None], trials: int, is_open_ended: bool
) -> None:
    options = TuneOptions.model_validate(limits)
    assert (options.trials, options.is_open_ended) == (trials, is_open_ended)


ROUNDS = [Round(1, 3.0, 2.0, 0.5), Round(1, 1.0, 0.5, 0.5)]
"""Two trials in 4 seconds."""


@pytest.mark.parametrize(
    ("rounds", "tasks", "ended_by", "trials_seconds"),
    [
        (ROUNDS, 17, SearchEnd.SECONDS, 15 * 2),
        (ROUNDS, 17, SearchEnd.JOB_TIME, 15 * 2),
        (ROUNDS, 2, SearchEnd.SECONDS, None),
        (ROUNDS, 17, SearchEnd.STOPPED, None),
        ([], 17, SearchEnd.SECONDS, 17 * 0.75),
    ],
)
def test_a_search_whose_time_was_too_short_says_what_would_be_enough(
    rounds: list[Round], tasks: int, ended_by: SearchEnd, trials_seconds: float | None
) -> None:
    costs = Costs(build_seconds=0.5, measure_seconds=0.25, model_seconds=3.0)
    found = enough_seconds(rounds, costs, tasks, 10.0, ended_by)
    settling = SLACK * settling_seconds(costs_now(costs, rounds), tasks)
    assert found == (None if trials_seconds is None else 10 + trials_seconds + settling)


def test_nothing_is_enough_as_long_as_no_trial_has_a_time() -> None:
    costs = Costs(build_seconds=0.0, measure_seconds=0.0, model_seconds=0.0)
    assert enough_seconds([], costs, 17, 10.0, SearchEnd.SECONDS) is None
