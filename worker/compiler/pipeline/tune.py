"""Tune: spends the trials where the model spends its time, and schedules every function."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord

from bessemer.contract.options import SearchEnd, TuneOptions
from bessemer.contract.problem import ErrorCode
from bessemer.contract.records import JudgedTrial
from bessemer.contract.report import Schedules, TuneResult
from bessemer.contract.stage import Stage
from worker.compiler.layout.choices import AS_EXPECTED, LayoutChoices
from worker.compiler.pipeline.compare import time_peers
from worker.compiler.pipeline.early import publish_bundle, report_not_early
from worker.compiler.pipeline.optimize import lay_out
from worker.compiler.schedules.blocks import REFUSALS
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.schedules.gpu.chips import gpu_in
from worker.compiler.tuning.cost_model.ranking import preferred_plans
from worker.compiler.tuning.course import (
    Course,
    affords_model,
    costs_of,
    enough_seconds,
    longest_comparison,
    shares_of,
    shown_curve,
)
from worker.compiler.tuning.early_bundles import EarlyBundles
from worker.compiler.tuning.final_comparison import time_untuned
from worker.compiler.tuning.given_records import read_records, records_of
from worker.compiler.tuning.given_schedules import apply_schedules
from worker.compiler.tuning.model_layouts import judged_layouts, lay_out_better, with_restored
from worker.compiler.tuning.on_device import NoDeviceError
from worker.compiler.tuning.open_session import open_session
from worker.compiler.tuning.phases import seconds_since
from worker.compiler.tuning.record_selection import measure_defaults, refuse_misfits
from worker.compiler.tuning.replays import Replays
from worker.compiler.tuning.results import no_search, result_of, with_unclaimed
from worker.compiler.tuning.rounds import search_in_rounds
from worker.compiler.tuning.search import TaskSearch
from worker.compiler.tuning.searched_model import SearchedModel, is_compared, settle
from worker.compiler.tuning.session import TuningSession, logging_to, tuning_logger
from worker.compiler.tuning.stored_records import Function, find_schedules, scope_of
from worker.compiler.tuning.stored_search import judge_tasks, open_journal, report_plans, with_search_figures
from worker.compiler.tuning.tasks import (
    apply_records,
    count_dynamic,
    known_tasks,
    named_tasks,
    target_of,
    tasks_of,
)
from worker.compiler.tuning.trace_scripts import write_scripts
from worker.compiler.tuning.trial_budget import shown_scope
from worker.compiler.values import Optimized, StageContext, Tuned
from worker.errors import JobError, failure_of


def tune(optimized: Optimized, context: StageContext) -> Tuned:
    """Schedule every function of the module.

    Before: the module is legalized and fused; its functions have no schedule; this machine can run the
    target's code. After: every TensorIR function has a schedule. The search's best record replaces a default
    schedule that it beats, unless the records make the whole model slower.

    Raises:
        JobError: ``tune-failed``: the search itself failed.
    """
    target, options = target_of(optimized), optimized.captured.upload.request.tune
    try:
        if options.trials == 0 and not options.schedules:
            return _by_layout_records(optimized, context)
        return _schedule_and_search(optimized, context, target, options)
    except REFUSALS as error:
        raise failure_of(ErrorCode.TUNE_FAILED, error) from error


class _Scheduled(NamedTuple):
    """A module with schedules, the result that says so, the service's records in it, and their layout."""

    module: tvm.IRModule
    result: TuneResult
    applied: tuple[JudgedTrial, ...] = ()
    choices: LayoutChoices = AS_EXPECTED


def _by_layout_records(optimized: Optimized, context: StageContext) -> Tuned:
    """Schedule functions by records; if some of them want another layout, follow these first."""
    may_lay_out, laid_out, followed = optimized.unlaid is not None, optimized, AS_EXPECTED
    expected = earlier = _functions_of(optimized) if may_lay_out else []
    found = _by_records(optimized.module, optimized, context, may_lay_out=may_lay_out, expected=expected)
    applied = found.applied
    while found.choices != followed:
        followed, stored = found.choices, found.result.stored
        try:
            laid_out = lay_out(optimized, followed, context)
        except JobError as error:
            tuning_logger().warning("records want a layout that fails: %s", error.detail)
            break
        found = _by_records(laid_out.module, laid_out, context, followed, earlier, may_lay_out, expected)
        found = found._replace(result=found.result.model_copy(update={"stored": stored}))
        applied, earlier = (*applied, *found.applied), [*earlier, *_functions_of(laid_out)]
    return Tuned(
        optimized=laid_out,
        module=found.module,
        result=found.result,
        records=None,
        applied=applied,
        as_expected=optimized,
    )


def _functions_of(optimized: Optimized) -> list[Function]:
    """The functions that may have records."""
    tasks = known_tasks(optimized.module, target_of(optimized))
    return [Function(str(task.task_name), task.dispatched[0]) for task in tasks]


def _by_records(
    module: tvm.IRModule,
    optimized: Optimized,
    context: StageContext,
    followed: LayoutChoices = AS_EXPECTED,
    laid_out: Sequence[Function] = (),
    may_lay_out: bool = False,
    expected: Sequence[Function] = (),
) -> _Scheduled:
    """Schedule functions by the service's records that won, and the others by default."""
    upload, target = optimized.captured.upload, target_of(optimized)
    if context.stored is None or not upload.request.tune.from_records:
        scheduled = schedule_rest(module, target)
        return _Scheduled(scheduled, no_search(scheduled))
    scope = scope_of(target, upload.target.threads, context.extensions)
    functions = [Function(str(task.task_name), task.dispatched[0]) for task in known_tasks(module, target)]
    found = find_schedules(
        functions,
        context.stored,
        Replays(context.candidates),
        scope,
        target,
        into=ms.database.MemoryDatabase(),
        followed=followed,
        laid_out=laid_out,
        may_lay_out=may_lay_out,
        expected=expected,
    )
    scheduled = (
        apply_records(module, found.records, target) if found.records else schedule_rest(module, target)
    )
    result = no_search(scheduled).model_copy(update={"stored": found.use})
    return _Scheduled(scheduled, result, found.judged, found.choices)


def _ranked_by_model(module: tvm.IRModule, session: TuningSession) -> tuple[tvm.IRModule, TuneResult]:
    """Follow the plan that a model prefers for each function, where nothing can measure plans."""
    chosen, rankers = preferred_plans(module, session.target, session.learned)
    scheduled = schedule_rest(chosen, session.target)
    ended_by = SearchEnd.NO_GPU if gpu_in(session.target) is not None else SearchEnd.NO_DEVICE
    kept = {"kept": Schedules.DEFAULT, "ended_by": ended_by, "rankers": rankers}
    return scheduled, no_search(scheduled).model_copy(update=kept)


def _schedule_and_search(
    optimized: Optimized, context: StageContext, target: tvm.target.Target, options: TuneOptions
) -> Tuned:
    records, started = context.scratch / "records", time.monotonic()
    with logging_to(context.scratch / "tune.log"):
        session = open_session(optimized, context, target)
        given = apply_schedules(optimized.module, options.schedules, session, records)
        applied: tuple[JudgedTrial, ...] = ()
        if options.trials == 0:
            module, result, applied, _ = _by_records(given.module, optimized, context)
        elif not session.measures:
            module, result = _ranked_by_model(given.module, session)
        else:
            advice = read_records(context.records, {each.digest for each in context.extensions})
            searched = replace(optimized, module=given.module)
            optimized, module, result = _search_and_apply(searched, context, session, advice, started)
    return Tuned(
        optimized=optimized,
        module=module,
        result=result.model_copy(update={"schedules": given.schedules, **_measured_by(session)}),
        records=records,
        applied=applied,
    )


def _measured_by(session: TuningSession) -> dict[str, object]:
    """What the result says of the devices that measured."""
    bench = session.bench
    return {} if bench is None else {"devices": tuple(bench.seen), "device_failure": bench.failure}


def _search_and_apply(
    optimized: Optimized,
    context: StageContext,
    session: TuningSession,
    advice: Sequence[TuningRecord],
    started: float,
) -> tuple[Optimized, tvm.IRModule, TuneResult]:
    options = session.options
    tasks = named_tasks(tasks_of(optimized.module, session), optimized.module, options)
    tasks = [replace(task, records=records_of(task.module, advice)) for task in tasks]
    unused = len(advice) - len({id(record) for task in tasks for record in task.records})
    if tasks and session.journal is not None:
        _tell(context, "reading the records of earlier searches")
    stored = open_journal(tasks, session)
    unsearched = count_dynamic(optimized.module)
    scope = shown_scope(len(tasks), unsearched)
    default = schedule_rest(optimized.module, session.target)
    model = SearchedModel(optimized, session, default, partial(lay_out, optimized, context=context))
    began = time.monotonic()
    early = _open_early(tasks, model, context)
    peers_ms = time_peers(optimized.captured, context) if tasks and is_compared(model) else {}
    started += time.monotonic() - began
    if session.journal is not None:
        started = session.journal.begin(started)
    left_seconds = context.left_seconds()
    course = Course(options, tasks=len(tasks), peers_ms=peers_ms, left_seconds=left_seconds)
    try:
        model = _measure_before(tasks, model, course, context, started)
        model, tasks = lay_out_better(tasks, model, course, context, started)
        better = partial(_tuned_so_far, tasks, model, context, started)
        ended_by = search_in_rounds(tasks, course, started, context, scope, early, better)
    except NoDeviceError:
        ended_by = SearchEnd.DEVICE
    refuse_misfits(tasks)
    report_plans(tasks, session)
    write_scripts(tasks, context.scratch / "records")
    if not options.force:
        judge_tasks(tasks, (), session)
    outcome = settle(
        tasks, model, context, lambda: longest_comparison(options.seconds, seconds_since(started))
    )
    if not options.force:
        judge_tasks(tasks, outcome.kept, session)
    result = with_unclaimed(result_of(tasks, seconds_since(started), outcome), outcome.module)
    layouts = judged_layouts(model, outcome)
    found = {
        "trials": result.trials + len(layouts),
        "layouts": layouts,
        "unsearched": unsearched,
        "ended_by": ended_by,
        "records": len(advice),
        "unused_records": unused,
        "stored": with_search_figures(with_restored(stored, model), tasks),
        "estimate": course.estimate,
        "curve": shown_curve(course.points),
        "shares": shares_of(course.rounds),
        "workloads": len(tasks),
        "seemed_faster": sum(task.looked_faster and not task.won for task in result.tasks),
        "enough_seconds": enough_seconds(course.rounds, course.costs, len(tasks), result.seconds, ended_by),
        "rankers": dict(Counter(task.ranked_by for task in result.tasks if task.ranked_by is not None)),
    }
    return outcome.optimized, outcome.module, result.model_copy(update=found)


def _open_early(
    tasks: Sequence[TaskSearch], model: SearchedModel, context: StageContext
) -> EarlyBundles | None:
    """Publish the bundle with the default schedules, if the request asks for that and this machine can.

    After an earlier attempt, which has published it, nothing takes the place of its bundles but a faster one.
    """
    session, request = model.session, model.optimized.captured.upload.request
    if not (session.options.publish_early and request.makes_bundle):
        return None
    if not session.is_local:
        report_not_early(Stage.TUNE, context)
        return None
    make = partial(publish_bundle, context=context)
    if any(task.trials for task in tasks):
        return EarlyBundles(make, made=1)
    early = EarlyBundles(make)
    early.publish(lambda: Tuned(model.optimized, model.default, no_search(model.default), None))
    return early


def _tuned_so_far(
    tasks: Sequence[TaskSearch], model: SearchedModel, context: StageContext, started: float
) -> Tuned | None:
    """The model with the best schedules so far; None if they are no faster when measured again."""
    outcome = settle(tasks, model, context)
    if not outcome.kept:
        return None
    result = with_unclaimed(result_of(tasks, time.monotonic() - started, outcome), outcome.module)
    return Tuned(outcome.optimized, outcome.module, result, context.scratch / "records")


def _measure_before(
    tasks: Sequence[TaskSearch], model: SearchedModel, course: Course, context: StageContext, started: float
) -> SearchedModel:
    """Measure the default schedules and, where this machine can, the untuned model.

    Returns:
        The model, with its library if it was built.
    """
    session, began = model.session, time.monotonic()
    measured_before = session.clock.measure_seconds
    limit = course.search_seconds([task.standing for task in tasks])
    measure_defaults(
        tasks,
        session,
        lambda seconds: time.monotonic() - started + seconds < limit,
        lambda done: _tell(context, f"timing the default schedules, {done} of {len(tasks)} functions"),
    )
    defaults_seconds = time.monotonic() - began
    measure_seconds = session.clock.measure_seconds - measured_before
    course.costs = costs_of(len(tasks), defaults_seconds, measure_seconds, None)
    if not tasks or not session.is_local or not affords_model(limit, defaults_seconds):
        return model
    _tell(context, "timing the whole model with the default schedules")
    untuned = time_untuned(model.finalists(model.default), context)
    model_seconds = time.monotonic() - began - defaults_seconds
    model_seconds += 0.0 if untuned is None else untuned.open_seconds  # the comparison opens both
    course.costs = costs_of(len(tasks), defaults_seconds, measure_seconds, model_seconds)
    if untuned is None:
        return model
    course.untuned_seconds = untuned.seconds
    return replace(model, library=untuned.library)


def _tell(context: StageContext, what: str) -> None:
    """Say what happens before the first trial."""
    context.observer.progress(Stage.TUNE, 0, 0, what)
