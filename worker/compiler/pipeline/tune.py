"""Tune: spends the trials where the model spends its time, and schedules every function."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import tvm
from tvm import relax, tirx
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.extracted_task import ExtractedTask
from tvm.s_tir.meta_schedule.relax_integration import extract_tasks

from bessemer.contract.options import SearchEnd, SearchMethod, TuneOptions
from bessemer.contract.problem import ErrorCode
from bessemer.contract.records import JudgedTrial
from bessemer.contract.report import (
    LayoutTrial,
    Schedules,
    SearchedSpace,
    StoredRecordsUse,
    TuneResult,
    TuneTask,
)
from bessemer.contract.stage import Stage
from worker.compiler.layout.choices import AS_EXPECTED, LayoutChoices
from worker.compiler.layout.separate_parameters import without_preparation
from worker.compiler.pipeline.compare import time_peers
from worker.compiler.pipeline.early import EarlyBundles
from worker.compiler.pipeline.optimize import LAYOUT, lay_out
from worker.compiler.schedules.blocks import REFUSALS, has_dynamic_sizes
from worker.compiler.schedules.default import is_scheduled, plans_of, schedule_rest, unclaimed_functions
from worker.compiler.schedules.gpu.chips import gpu_in
from worker.compiler.spaces.space import PLANS
from worker.compiler.tuning.assignment import assign, names_of
from worker.compiler.tuning.cost_model.ranking import preferred_plans
from worker.compiler.tuning.cost_model.trees import models_of
from worker.compiler.tuning.course import (
    Course,
    Round,
    affords_model,
    candidate_timeout,
    costs_of,
    enough_seconds,
    longest_comparison,
    shares_of,
    shown_curve,
)
from worker.compiler.tuning.final_comparison import (
    Finalists,
    ModelComparison,
    compare_finalists,
    compare_on_device,
    compare_on_gpu,
    time_untuned,
)
from worker.compiler.tuning.given_records import read_records, records_of
from worker.compiler.tuning.given_schedules import apply_schedules
from worker.compiler.tuning.layout_search import (
    SECONDS_SHARE,
    TRIALS_FOR_MODELS,
    LayoutSearch,
    carried_over,
    model_alternatives,
)
from worker.compiler.tuning.meta_schedule import (
    BUILD_TIMEOUT_SECONDS,
    BuilderSettings,
    CandidateRunner,
    RunnerSettings,
    library_builder,
)
from worker.compiler.tuning.on_device import NoDeviceError, bench_of, device_tools
from worker.compiler.tuning.on_gpu import BUILD_TIMEOUT_SECONDS as GPU_BUILD_SECONDS
from worker.compiler.tuning.on_gpu import References, gpu_tools
from worker.compiler.tuning.on_gpu_device import gpu_device_tools
from worker.compiler.tuning.record_selection import (
    forced_records,
    is_skipped,
    measure_defaults,
    refuse_misfits,
    uncompared,
    winners,
)
from worker.compiler.tuning.replays import Replays
from worker.compiler.tuning.search import TaskSearch, Trial
from worker.compiler.tuning.session import (
    EVALUATION,
    TuningSession,
    logging_to,
    make_cost_model,
    open_database,
    tuning_logger,
)
from worker.compiler.tuning.stored_records import (
    Function,
    SearchJournal,
    find_schedules,
    model_of,
    scope_of,
)
from worker.compiler.tuning.stored_search import (
    judge_tasks,
    open_journal,
    report_plans,
    with_search_figures,
)
from worker.compiler.tuning.trace_scripts import write_scripts
from worker.compiler.tuning.trial_budget import (
    ROUND_TRIALS,
    best_so_far,
    milliseconds,
    next_task,
    round_size,
    round_trials,
    share_seconds,
    shown_scope,
)
from worker.compiler.values import Optimized, StageContext, Tuned
from worker.errors import JobError, failure_of

_OUT_OF_TIME = (SearchEnd.SECONDS, SearchEnd.JOB_TIME)


def tune(optimized: Optimized, context: StageContext) -> Tuned:
    """Schedule every function of the module.

    Before: the module is legalized and fused; its functions have no schedule; this machine can run the
    target's code. After: every TensorIR function has a schedule. The search's best record replaces a default
    schedule that it beats, unless the records make the whole model slower.

    Raises:
        JobError: ``tune-failed``: the search itself failed.
    """
    target, options = _target_of(optimized), optimized.captured.upload.request.tune
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
    tasks = known_tasks(optimized.module, _target_of(optimized))
    return [Function(str(task.task_name), task.dispatched[0]) for task in tasks]


def _target_of(optimized: Optimized) -> tvm.target.Target:
    target = optimized.captured.upload.target
    return target.llvm if target.gpu is None else target.gpu.target


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
    upload, target = optimized.captured.upload, _target_of(optimized)
    if context.stored is None or not upload.request.tune.from_records:
        scheduled = schedule_rest(module, target)
        return _Scheduled(scheduled, _no_search(scheduled))
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
    result = _no_search(scheduled).model_copy(update={"stored": found.use})
    return _Scheduled(scheduled, result, found.judged, found.choices)


def _ranked_by_model(module: tvm.IRModule, session: TuningSession) -> tuple[tvm.IRModule, TuneResult]:
    """Follow the plan that a model prefers for each function, where nothing can measure plans."""
    chosen, rankers = preferred_plans(module, session.target, session.learned)
    scheduled = schedule_rest(chosen, session.target)
    ended_by = SearchEnd.NO_GPU if gpu_in(session.target) is not None else SearchEnd.NO_DEVICE
    kept = {"kept": Schedules.DEFAULT, "ended_by": ended_by, "rankers": rankers}
    return scheduled, _no_search(scheduled).model_copy(update=kept)


def _schedule_and_search(
    optimized: Optimized, context: StageContext, target: tvm.target.Target, options: TuneOptions
) -> Tuned:
    records, started = context.scratch / "records", time.monotonic()
    with logging_to(context.scratch / "tune.log"):
        session = _open_session(optimized, context, target)
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
    tasks = _named(_tasks_of(optimized.module, session), optimized.module, options)
    tasks = [replace(task, records=records_of(task.module, advice)) for task in tasks]
    unused = len(advice) - len({id(record) for task in tasks for record in task.records})
    if tasks and session.journal is not None:
        _tell(context, "reading the records of earlier searches")
    stored = open_journal(tasks, session)
    unsearched = count_dynamic(optimized.module)
    scope = shown_scope(len(tasks), unsearched)
    model = _Model(optimized, session, schedule_rest(optimized.module, session.target))
    began = time.monotonic()
    early = _open_early(tasks, model, context)
    peers_ms = time_peers(optimized.captured, context) if tasks and _is_compared(model) else {}
    started += time.monotonic() - began
    if session.journal is not None:
        started = session.journal.begin(started)
    left_seconds = context.left_seconds()
    course = Course(options, tasks=len(tasks), peers_ms=peers_ms, left_seconds=left_seconds)
    try:
        model = _measure_before(tasks, model, course, context, started)
        model, tasks = _lay_out_better(tasks, model, course, context, started)
        better = partial(_tuned_so_far, tasks, model, context, started)
        ended_by = _search(tasks, course, started, context, scope, early, better)
    except NoDeviceError:
        ended_by = SearchEnd.DEVICE
    refuse_misfits(tasks)
    report_plans(tasks, session)
    write_scripts(tasks, context.scratch / "records")
    if not options.force:
        judge_tasks(tasks, (), session)
    outcome = _settle(
        tasks, model, context, lambda: longest_comparison(options.seconds, _seconds_since(started))
    )
    if not options.force:
        judge_tasks(tasks, outcome.kept, session)
    result = _with_unclaimed(_result(tasks, _seconds_since(started), outcome), outcome.module)
    layouts = _judged_layouts(model, outcome)
    found = {
        "trials": result.trials + len(layouts),
        "layouts": layouts,
        "unsearched": unsearched,
        "ended_by": ended_by,
        "records": len(advice),
        "unused_records": unused,
        "stored": with_search_figures(_with_restored(stored, model), tasks),
        "estimate": course.estimate,
        "curve": shown_curve(course.points),
        "shares": shares_of(course.rounds),
        "workloads": len(tasks),
        "seemed_faster": sum(task.looked_faster and not task.won for task in result.tasks),
        "enough_seconds": enough_seconds(course.rounds, course.costs, len(tasks), result.seconds, ended_by),
        "rankers": dict(Counter(task.ranked_by for task in result.tasks if task.ranked_by is not None)),
    }
    return outcome.optimized, outcome.module, result.model_copy(update=found)


def _with_restored(stored: StoredRecordsUse | None, model: _Model) -> StoredRecordsUse | None:
    """The use of records, with the restored trials of functions that only another layout makes."""
    if stored is None or model.layouts is None:
        return stored
    restored = stored.restored_trials + model.layouts.restored_trials
    return stored.model_copy(update={"restored_trials": restored})


def _judged_layouts(model: _Model, outcome: _Outcome) -> tuple[LayoutTrial, ...]:
    """The choices of the layout phase that were measured, with whether the library follows them."""
    search = model.layouts
    if search is None:
        return ()
    search.judge(model.choices if outcome.optimized is model.searched else AS_EXPECTED)
    return tuple(trial.reported for trial in search.trials)


def _is_compared(model: _Model) -> bool:
    """Whether the request compares, and this machine's processor measures."""
    return model.session.is_local and model.optimized.captured.upload.request.benchmark.compare


def _open_early(tasks: Sequence[TaskSearch], model: _Model, context: StageContext) -> EarlyBundles | None:
    """Publish the bundle with the default schedules, if the request asks for that and this machine can.

    After an earlier attempt, which has published it, nothing takes the place of its bundles but a faster one.
    """
    session, request = model.session, model.optimized.captured.upload.request
    if not (session.options.publish_early and session.is_local and request.makes_bundle):
        return None
    if any(task.trials for task in tasks):
        return EarlyBundles(context, made=1)
    early = EarlyBundles(context)
    early.publish(lambda: Tuned(model.optimized, model.default, _no_search(model.default), None))
    return early


def _tuned_so_far(
    tasks: Sequence[TaskSearch], model: _Model, context: StageContext, started: float
) -> Tuned | None:
    """The model with the best schedules so far; None if they are no faster when measured again."""
    outcome = _settle(tasks, model, context)
    if not outcome.kept:
        return None
    result = _with_unclaimed(_result(tasks, time.monotonic() - started, outcome), outcome.module)
    return Tuned(outcome.optimized, outcome.module, result, context.scratch / "records")


class _Outcome(NamedTuple):
    """The model, scheduled, the final comparison, its records, and the records that won by themselves."""

    optimized: Optimized
    module: tvm.IRModule
    comparison: ModelComparison
    kept: Sequence[TuningRecord] = ()
    won: Sequence[TuningRecord] = ()


@dataclass(frozen=True)
class _Model:
    """The model that is searched, with its default schedules, and its library with these if it is built.

    ``laid_out`` is the same with the ``choices`` of a search of ``layouts``.
    """

    optimized: Optimized
    session: TuningSession
    default: tvm.IRModule
    library: Path | None = None
    layouts: LayoutSearch | None = None
    choices: LayoutChoices = AS_EXPECTED
    laid_out: Optimized | None = None

    @property
    def searched(self) -> Optimized:
        """The model whose functions are searched."""
        return self.laid_out or self.optimized

    def finalists(self, searched: tvm.IRModule) -> Finalists:
        """The model with the search's schedules beside the one with the default ones."""
        optimized = self.optimized
        return Finalists(
            searched,
            self.default,
            optimized.module,
            self.session.target,
            optimized.captured,
            optimized.parameters,
            self.library,
            None if self.laid_out is None else self.laid_out.module,
        )


def _measure_before(
    tasks: Sequence[TaskSearch], model: _Model, course: Course, context: StageContext, started: float
) -> _Model:
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


def _lay_out_better(
    tasks: list[TaskSearch], model: _Model, course: Course, context: StageContext, started: float
) -> tuple[_Model, list[TaskSearch]]:
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
            return _tasks_of(lay_out(optimized, choices, context).module, session)
        except JobError as error:
            tuning_logger().warning("no functions of another layout: %s", error.detail)
            return []

    def compared(choices: LayoutChoices) -> tuple[float, float] | None:
        context.observer.progress(
            Stage.TUNE, len(search.trials), 0, "timing the whole model with another memory layout"
        )
        try:
            other = lay_out(optimized, choices, context)
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
    left_seconds = course.search_seconds([task.standing for task in tasks]) - _seconds_since(started)
    whole = model_alternatives(optimized.module, machine)
    choices = AS_EXPECTED
    each_seconds = search.seconds + course.costs.model_seconds + seconds
    if _affords_models(len(whole), each_seconds, left_seconds, session):
        choices = search.search_model(tasks, whole, compared, course.untuned_seconds)
    searched = (_continued(tasks, search, choices) if choices else None) or tasks
    known = [*tasks, *_opened(searched, tasks, search)]
    left_seconds = course.search_seconds([task.standing for task in tasks]) - _seconds_since(started)
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
    better = lay_out(optimized, choices, context)
    return replace(model, choices=choices, laid_out=better), searched


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
    first = names.index(LAYOUT) if LAYOUT in names else 0
    return sum(each.seconds for each in optimized.passes[first:])


def _default_seconds(tasks: Sequence[TaskSearch]) -> float:
    return sum(task.weight * (task.default_seconds or 0.0) for task in tasks)


def _settle(
    tasks: Sequence[TaskSearch],
    model: _Model,
    context: StageContext,
    left_seconds: Callable[[], float] = lambda: 0.0,
) -> _Outcome:
    """Keep the records that the request forces, or the ones that win by themselves and in the whole model.

    The final comparison may measure for the ``left_seconds``.
    """
    session = model.session
    is_forced, optimized = session.options.force, model.searched
    records = forced_records(tasks) if is_forced else winners(tasks, session)
    if not records and model.laid_out is None:
        kept = Schedules.SEARCH if is_forced else Schedules.DEFAULT
        return _Outcome(optimized, model.default, ModelComparison(kept=kept))
    searched = apply_records(optimized.module, records, session.target)
    if is_forced:
        return _Outcome(optimized, searched, ModelComparison(kept=Schedules.SEARCH), kept=records)
    finalists = model.finalists(searched)
    seconds = share_seconds(session.options.seconds).comparison_seconds
    if session.bench is not None:
        comparison = compare_on_device(finalists, context, session.bench, seconds)
    elif session.references is not None:
        comparison = compare_on_gpu(finalists, context, seconds)
    else:
        comparison = compare_finalists(finalists, context, seconds, left_seconds)
    if comparison.kept is Schedules.SEARCH:
        return _Outcome(optimized, searched, comparison, kept=records, won=records)
    return _Outcome(model.optimized, model.default, comparison, won=records)


def count_dynamic(module: tvm.IRModule) -> int:
    """The number of functions with dynamic sizes."""
    functions = (function for function in module.functions.values() if isinstance(function, tirx.PrimFunc))
    return sum(map(has_dynamic_sizes, functions))


def _no_search(module: tvm.IRModule) -> TuneResult:
    return _with_unclaimed(TuneResult(trials=0, seconds=0.0, tasks=()), module)


def _with_unclaimed(result: TuneResult, module: tvm.IRModule) -> TuneResult:
    names = unclaimed_functions(module)
    return result.model_copy(update={"unclaimed": len(names), "unclaimed_functions": names})


def _open_session(optimized: Optimized, context: StageContext, target: tvm.target.Target) -> TuningSession:
    upload = optimized.captured.upload
    threads, options = upload.target.threads, upload.request.tune
    folder = context.scratch / "candidates"
    folder.mkdir(exist_ok=True)
    build_seconds = candidate_timeout(options.seconds, BUILD_TIMEOUT_SECONDS)
    settings, candidates = BuilderSettings(folder, threads, build_seconds), context.candidates
    gpu = upload.target.gpu
    own_gpu = gpu is not None and upload.target.has_gpu and upload.request.device is None
    bench = None if own_gpu else bench_of(context.devices, context.output, upload.target)
    references: References | None = None
    if gpu is not None:
        settings = replace(settings, timeout_seconds=GPU_BUILD_SECONDS)
    if gpu is not None and bench is not None:
        builder, runner, references = gpu_device_tools(candidates, settings, bench, target, EVALUATION)
    elif gpu is not None and own_gpu:
        architectures = upload.target.resolved.gpus
        builder, runner, references = gpu_tools(candidates, settings, target, architectures, EVALUATION)
    elif gpu is not None or (bench is None and not upload.target.is_native):
        builder, runner = None, None
    elif bench is None:
        builder = library_builder(candidates, settings)
        runner = CandidateRunner(candidates, RunnerSettings(threads, EVALUATION))
    else:
        builder, runner = device_tools(candidates, settings, bench, EVALUATION)
    return TuningSession(
        target=target,
        builder=builder,
        runner=runner,
        database=open_database(context.scratch / "records"),
        cost_model=make_cost_model(options, threads),
        threads=threads,
        options=options,
        bench=bench,
        references=references,
        journal=_journal(context, target, threads),
        learned=models_of(context.cost_model),
        round_trials=ROUND_TRIALS if references is None else round_trials(threads),
    )


def _journal(context: StageContext, target: tvm.target.Target, threads: int) -> SearchJournal | None:
    if context.stored is None:
        return None
    scope = scope_of(target, threads, context.extensions)
    return SearchJournal(context.stored, scope, Replays(context.candidates))


def _tasks_of(module: tvm.IRModule, session: TuningSession) -> list[TaskSearch]:
    """The searches of the functions that have no schedule."""
    known = known_tasks(module, session.target)
    return [
        TaskSearch(
            name=str(task.task_name),
            weight=int(task.weight),
            module=task.dispatched[0],
            plans=plans_of(task.dispatched[0]["main"], session.target),
            wanted=None,
            session=session,
            index=index,
        )
        for index, task in enumerate(known)
    ]


def known_tasks(module: tvm.IRModule, target: tvm.target.Target) -> list[ExtractedTask]:
    """The distinct functions of each run that have no schedule, except for those of dynamic sizes."""
    return [
        task
        for task in extract_tasks(without_preparation(module), target)
        if not count_dynamic(task.dispatched[0]) and not is_scheduled(task.dispatched[0]["main"])
    ]


def _named(tasks: list[TaskSearch], module: tvm.IRModule, options: TuneOptions) -> list[TaskSearch]:
    """The tasks that the request names, with their spaces; all tasks if it names none."""
    if not options.spaces:
        return tasks
    names = [names_of(task.module["main"], module) for task in tasks]
    spaces = assign(names, options.spaces)
    return [
        replace(task, wanted=space) for task, space in zip(tasks, spaces, strict=True) if space is not None
    ]


def _search(
    tasks: Sequence[TaskSearch],
    course: Course,
    started: float,
    context: StageContext,
    scope: str,
    early: EarlyBundles | None = None,
    better: Callable[[], Tuned | None] = lambda: None,
) -> SearchEnd:
    """Run rounds until a limit of the request is reached or candidates run out.

    Args:
        tasks: the functions to search.
        course: what happens in the search.
        started: when it began.
        context: the observer of its progress.
        scope: the first note of the progress.
        early: publishes what is ``better`` during the search, if the request asks for that.
        better: the model with the best schedules so far, if they are faster.
    """
    options = course.options
    total = 0 if options.is_without_trials else options.trials
    note = scope
    standings = [task.standing for task in tasks]
    resumed = sum(standing.trials for standing in standings)
    done = course.laid_out_trials + resumed
    elapsed = _seconds_since(started)
    course.reach(done, elapsed, standings)
    if early is not None:
        early.published_ms = _published_ms(course, is_resumed=resumed > 0)
    while True:
        end = _stopped(tasks) or course.end(done, elapsed, standings)
        if end in _OUT_OF_TIME and _compare_best(tasks):
            standings, elapsed = [task.standing for task in tasks], _seconds_since(started)
            continue
        if end is not None:
            break
        context.observer.progress(Stage.TUNE, done, total, course.shown(elapsed, note), course.estimate)
        index = next_task(standings)
        assert index is not None
        fitting = course.fitting(elapsed, standings, options.trials - done)
        size = round_size(fitting, standings, tasks[index].session.round_trials)
        clock = tasks[index].session.clock
        build, measure = clock.build_seconds, clock.measure_seconds
        space = standings[index].space
        measured = tasks[index].advance(size, course.round_seconds(elapsed, standings, size))
        done, note = done + measured, tasks[index].name
        standings = [task.standing for task in tasks]
        before, elapsed = elapsed, _seconds_since(started)
        parts = (clock.build_seconds - build, clock.measure_seconds - measure)
        course.rounds.append(Round(measured, elapsed - before, *parts, space))
        if measured:
            course.reach(done, elapsed, standings)
        left = 0.0 if _stopped(tasks) else course.search_seconds(standings) - elapsed
        if early is not None and early.is_due(course.latency_ms, elapsed, left):
            early.publish(better)
            early.published_ms = course.latency_ms
            elapsed = _seconds_since(started)
    note = options.limit_reached(end) if tasks else scope
    last = done if end is SearchEnd.TRIALS else 0
    context.observer.progress(Stage.TUNE, done, last, course.shown(elapsed, note), course.estimate)
    return end


def _published_ms(course: Course, is_resumed: bool) -> float | None:
    """What the model takes in the bundle that is published when a search begins, or goes on."""
    untuned_ms = None if is_resumed else milliseconds(course.untuned_seconds)
    return untuned_ms or course.latency_ms


def _compare_best(tasks: Sequence[TaskSearch]) -> bool:
    """Measure the best records beside the default schedules: those that lose leave time for others.

    Returns:
        Whether any was measured.
    """
    waiting = [] if tasks[0].session.options.force else uncompared(tasks)
    if waiting:
        winners(waiting, tasks[0].session)
    return len(uncompared(waiting)) < len(waiting)


def _stopped(tasks: Sequence[TaskSearch]) -> SearchEnd | None:
    """Whether the user wants the best so far."""
    journal = tasks[0].session.journal if tasks else None
    return SearchEnd.STOPPED if journal is not None and journal.stopped else None


def _seconds_since(started: float) -> float:
    return time.monotonic() - started


def apply_records(
    module: tvm.IRModule, records: Sequence[TuningRecord], target: tvm.target.Target
) -> tvm.IRModule:
    """Schedule functions by their records, and the others by default."""
    database = ms.database.MemoryDatabase()
    for record in records:
        database.commit_workload(record.workload.mod)
        database.commit_tuning_record(record)
    with target, database, tvm.transform.PassContext(opt_level=3):
        module = relax.transform.MetaScheduleApplyDatabase()(module)
    return schedule_rest(module, target)


def _result(tasks: Sequence[TaskSearch], seconds: float, outcome: _Outcome) -> TuneResult:
    return TuneResult(
        trials=sum(len(task.trials) for task in tasks),
        seconds=seconds,
        tasks=tuple(_describe(task, outcome) for task in tasks),
        skipped=sum(map(is_skipped, tasks)),
        kept=outcome.comparison.kept,
        search_ms=outcome.comparison.search_ms,
        default_ms=outcome.comparison.default_ms,
        crashed=outcome.comparison.crashed,
    )


def _describe(task: TaskSearch, outcome: _Outcome) -> TuneTask:
    best, found, default = task.standing.best_seconds, task.best_seconds, task.default_seconds
    return TuneTask(
        name=task.name,
        weight=task.weight,
        trials=len(task.trials),
        failed=_failed(task.trials),
        best_ms=None if best is None else best * 1e3,
        history_ms=best_so_far(task.trial_seconds, default),
        space=task.best_space,
        spaces=tuple(_searched_spaces(task)),
        kept=task.best_record in outcome.kept,
        won=task.best_record in outcome.won,
        found_ms=None if found is None else found * 1e3,
        default_ms=None if default is None else default * 1e3,
        failure=task.failure,
        exhausted=task.exhausted,
        refused=task.refusals.draws,
        refusal=task.refusals.last if task.misfit is None else task.misfit.detail,
        skipped=is_skipped(task),
        ranked_by=task.ranker.name if any(trial.space == PLANS for trial in task.trials) else None,
    )


def _searched_spaces(task: TaskSearch) -> Iterator[SearchedSpace]:
    for index, name in enumerate(task.spaces):
        trials = [trial for trial in task.trials if trial.space == name]
        if not trials and index > 0:
            continue
        best = min((trial.seconds for trial in trials if trial.seconds is not None), default=None)
        yield SearchedSpace(
            name=name,
            trials=len(trials),
            failed=_failed(trials),
            best_ms=None if best is None else best * 1e3,
        )


def _failed(trials: Sequence[Trial]) -> int:
    return sum(trial.seconds is None for trial in trials)
