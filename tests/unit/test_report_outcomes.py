"""The outcome of a search's candidates, in words."""

import pytest

from bessemer.contract.report import GivenSchedule, Schedules, SearchedSpace, TuneResult, TuneTask
from bessemer.figures.words import decision, schedule_outcome, searched_spaces, task_outcome


def task(
    found_ms: float | None = None,
    default_ms: float | None = 2.0,
    won: bool = False,
    kept: bool = False,
    trials: int = 8,
) -> TuneTask:
    return TuneTask(
        name="f",
        weight=1,
        trials=trials,
        failed=0,
        best_ms=None,
        found_ms=found_ms,
        default_ms=default_ms,
        won=won,
        kept=kept,
    )


def result(*tasks: TuneTask, crashed: Schedules | None = None) -> TuneResult:
    kept = Schedules.SEARCH if crashed is Schedules.DEFAULT else Schedules.DEFAULT
    trials = sum(task.trials for task in tasks)
    return TuneResult(trials=trials, seconds=1, tasks=tasks, kept=kept, crashed=crashed)


SLOWER = task(found_ms=3.0)
FLATTERED = task(found_ms=1.9)
WON = task(found_ms=1.0, won=True)


@pytest.mark.parametrize(
    ("entry", "crashed", "words"),
    [
        (task(found_ms=1.0, won=True, kept=True), None, "yes"),
        (task(trials=0), None, "no: none tried"),
        (task(), None, "no: none ran"),
        (
            task(trials=0).model_copy(update={"skipped": True, "refusal": "no product"}),
            None,
            "no: the space does not fit: no product",
        ),
        (
            task(trials=1).model_copy(update={"skipped": True, "failure": "SIGILL"}),
            None,
            "no: the space does not fit: SIGILL",
        ),
        (SLOWER, None, "no: not faster"),
        (FLATTERED, None, "no: not when measured again"),
        (task(found_ms=3.0, default_ms=None), None, "no: not when measured again"),
        (WON, None, "no: the whole model was not faster"),
        (WON, Schedules.SEARCH, "no: the whole model crashed"),
    ],
)
def test_a_workload_explains_its_schedule(entry: TuneTask, crashed: Schedules | None, words: str) -> None:
    assert task_outcome(entry, result(entry, crashed=crashed)) == words


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (result(SLOWER, task()), "found nothing faster for any workload"),
        (result(task(trials=0)), "no other schedule was tried"),
        (result(SLOWER, FLATTERED), "looked faster for 1 of 2 workloads, but not clearly"),
        (result(SLOWER, WON, crashed=Schedules.SEARCH), "with the search's, the whole model crashed"),
        (result(WON, crashed=Schedules.DEFAULT), "with the default ones, the whole model crashed"),
    ],
)
def test_a_library_without_two_latencies_explains_its_schedules(verdict: TuneResult, words: str) -> None:
    assert words in decision(verdict)


@pytest.mark.parametrize(
    ("spaces", "words"),
    [((), "plans"), (("plans",), "plans"), (("plans", "metaschedule"), "plans (4), metaschedule (4)")],
)
def test_a_workload_names_the_spaces_that_its_trials_came_from(spaces: tuple[str, ...], words: str) -> None:
    searched = tuple(SearchedSpace(name=name, trials=4, failed=0, best_ms=None) for name in spaces)
    assert searched_spaces(task().model_copy(update={"space": "plans", "spaces": searched})) == words


@pytest.mark.parametrize(
    ("times", "skipped", "words"),
    [
        ((3.0, 2.0), None, "1.5x slower than the default schedule"),
        ((1.0, 2.0), None, "2.0x faster than the default schedule"),
        ((1.0, None), None, "the default schedule did not run"),
        ((None, None), None, "not timed: dynamic sizes"),
        ((None, None), "no block", "not used, since the file does not fit: no block"),
    ],
)
def test_a_given_schedule_is_compared_with_the_default(
    times: tuple[float | None, float | None], skipped: str | None, words: str
) -> None:
    ours, default = times
    given = GivenSchedule(
        function="f", file="a.py:schedule", schedule_ms=ours, default_ms=default, skipped=skipped
    )
    assert schedule_outcome(given).replace("\u00d7", "x") == words
