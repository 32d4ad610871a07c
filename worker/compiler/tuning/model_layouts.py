"""Searches what the layout phase may choose otherwise, before the rounds of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bessemer.contract.options import SearchMethod
from bessemer.contract.report import LayoutTrial, StoredRecordsUse
from bessemer.contract.stage import Stage
from worker.compiler.layout.choices import AS_EXPECTED, LAYOUT_PHASE, LayoutChoices
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.tuning.course import Course
from worker.compiler.tuning.final_comparison import compare_finalists
from worker.compiler.tuning.layout_search import (
    SECONDS_SHARE,
    TRIALS_FOR_MODELS,
    LayoutSearch,
    carried_over,
    model_alternatives,
)
from worker.compiler.tuning.phases import seconds_since
from worker.compiler.tuning.record_selection import measure_defaults
from worker.compiler.tuning.results import Outcome
from worker.compiler.tuning.search import TaskSearch
from worker.compiler.tuning.searched_model import SearchedModel
from worker.compiler.tuning.session import TuningSession, tuning_logger
from worker.compiler.tuning.stored_records import model_of
from worker.compiler.tuning.stored_search import open_journal
from worker.compiler.tuning.tasks import tasks_of
from worker.compiler.tuning.trial_budget import share_seconds
from worker.compiler.values import Optimized, StageContext
from worker.errors import JobError


def lay_out_better(
    tasks: list[TaskSearch], model: SearchedModel, course: Course, context: StageContext, started: float
) -> tuple[SearchedModel, list[TaskSearch]]:
    """Search what the layout phase may choose otherwise, and lay the model out with the winners.

    Returns:
        The model and the functions to search, the same as before if nothing won.
    """
    session, optimized = model.session, model.optimized
    if not tasks or not _may_lay_out(optimized, session):
        return model, tasks
    machine = optimized.captured.upload.target.machine
    seconds = share_seconds(session.options.seconds).comparison_seconds

    def functions_of(choices: LayoutChoices) -> list[TaskSearch]:
        context.observer.progress(Stage.TUNE, len(search.trials), 0, "trying another memory layout")
        try:
            return tasks_of(model.lay_out(choices).module, session)
        except JobError as error:
            tuning_logger().warning("no functions of another layout: %s", error.detail)
            return []

    def compared(choices: LayoutChoices) -> tuple[float, float] | None:
        context.observer.progress(
            Stage.TUNE, len(search.trials), 0, "timing the whole model with another memory layout"
        )
        try:
            other = model.lay_out(choices)
            scheduled = schedule_rest(other.module, session.target)
            found = compare_finalists(replace(model, laid_out=other).finalists(scheduled), context, seconds)
        except JobError as error:
            tuning_logger().warning("the model fails with another layout: %s", error.detail)
            return None
        if found.search_ms is None or found.default_ms is None:
            return None
        return found.search_ms / 1e3, found.default_ms / 1e3

    name = model_of(task.module for task in tasks)
    search = LayoutSearch(session, machine, functions_of, _layout_seconds(optimized), name)
    left_seconds = course.search_seconds([task.standing for task in tasks]) - seconds_since(started)
    whole = model_alternatives(optimized.module, machine)
    choices = AS_EXPECTED
    each_seconds = search.seconds + course.costs.model_seconds + seconds
    if _affords_models(len(whole), each_seconds, left_seconds, session):
        choices = search.search_model(tasks, whole, compared, course.untuned_seconds)
    searched = (_continued(tasks, search, choices) if choices else None) or tasks
    known = [*tasks, *_opened(searched, tasks, search)]
    left_seconds = course.search_seconds([task.standing for task in tasks]) - seconds_since(started)
    choices = search.search_layers(searched, choices, left_seconds)
    course.laid_out_trials = len(search.trials)
    model = replace(model, layouts=search)
    if not choices:
        return model, tasks
    searched = _continued(known, search, choices)
    if not searched:
        return model, tasks
    _opened(searched, known, search)
    course.is_laid_out = True
    course.laid_out_gain = _default_seconds(tasks) - _default_seconds(searched)
    return replace(model, choices=choices, laid_out=model.lay_out(choices)), searched


def _continued(tasks: Sequence[TaskSearch], search: LayoutSearch, choices: LayoutChoices) -> list[TaskSearch]:
    """The functions of the model that is laid out otherwise, with the times of their default schedules."""
    searched = carried_over(tasks, search.known(list(search.lay_out(choices))))
    measure_defaults([task for task in searched if task.default_seconds is None], search.session)
    return searched


def _opened(
    searched: Sequence[TaskSearch], known: Sequence[TaskSearch], search: LayoutSearch
) -> list[TaskSearch]:
    """The functions that only another layout makes, with their records and the trials of earlier attempts."""
    fresh = [task for task in searched if task not in known]
    stored = open_journal(fresh, search.session) if fresh else None
    search.restored_trials += 0 if stored is None else stored.restored_trials
    return fresh


def _affords_models(count: int, seconds: float, left_seconds: float, session: TuningSession) -> bool:
    """Whether a search is long enough to build and time whole models, and this machine can."""
    enough = session.options.trials >= TRIALS_FOR_MODELS and count * seconds <= SECONDS_SHARE * left_seconds
    return bool(count) and session.is_local and enough


def _may_lay_out(optimized: Optimized, session: TuningSession) -> bool:
    """Whether the request leaves open how the model is laid out, and where candidates come from."""
    options = session.options
    names_nothing = not (options.spaces or options.schedules or options.force)
    searches_plans = options.search is not SearchMethod.METASCHEDULE
    return optimized.unlaid is not None and names_nothing and searches_plans


def _layout_seconds(optimized: Optimized) -> float:
    """The time that the layout phase and the phases after it took."""
    names = [each.phase for each in optimized.passes]
    first = names.index(LAYOUT_PHASE) if LAYOUT_PHASE in names else 0
    return sum(each.seconds for each in optimized.passes[first:])


def _default_seconds(tasks: Sequence[TaskSearch]) -> float:
    return sum(task.weight * (task.default_seconds or 0.0) for task in tasks)


def judged_layouts(model: SearchedModel, outcome: Outcome) -> tuple[LayoutTrial, ...]:
    """The choices of the layout phase that were measured, with whether the library follows them."""
    search = model.layouts
    if search is None:
        return ()
    search.judge(model.choices if outcome.optimized is model.searched else AS_EXPECTED)
    return tuple(trial.reported for trial in search.trials)


def with_restored(stored: StoredRecordsUse | None, model: SearchedModel) -> StoredRecordsUse | None:
    """The use of records, with the restored trials of functions that only another layout makes."""
    if stored is None or model.layouts is None:
        return stored
    restored = stored.restored_trials + model.layouts.restored_trials
    return stored.model_copy(update={"restored_trials": restored})
