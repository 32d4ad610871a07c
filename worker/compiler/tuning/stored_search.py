"""What a search does with the service's tuning records: it begins with them, and judges its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tvm.s_tir.meta_schedule.database import TuningRecord

from bessemer.contract.cost_model import MeasuredFunction
from bessemer.contract.options import STORED_OF_A_FUNCTION, SearchMethod
from bessemer.contract.report import StoredRecordsUse
from worker.compiler.spaces.space import RECORDS
from worker.compiler.tuning.cost_model.measured import measured_function
from worker.compiler.tuning.near_misses import advice_of, replayed, sized_function
from worker.compiler.tuning.search import TaskSearch
from worker.compiler.tuning.session import TuningSession, tuning_logger
from worker.compiler.tuning.stored_records import (
    Function,
    SearchJournal,
    judged_record,
    records_for,
    restored,
    workload_of,
)
from worker.errors import ran_out_of_memory, short_message


def open_journal(tasks: Sequence[TaskSearch], session: TuningSession) -> StoredRecordsUse | None:
    """Give each task the service's records of its function, and the trials of the job's earlier attempts.

    A task without records gets those of similar functions as advice.
    """
    if session.journal is None:
        return None
    answer = session.journal.open([Function(task.name, task.module) for task in tasks])
    own = {(trial.workload, trial.trace) for trial in answer.trials if trial.space != RECORDS}
    modules = {workload_of(task.module): task.module for task in tasks}
    others = [
        record
        for record in answer.records
        if (record.workload, record.trace) not in own and record.workload in modules
    ]
    records = session.journal.replays.surviving(modules, others)
    uncompiled: dict[str, set[str]] = {}
    for trial in answer.uncompiled:
        uncompiled.setdefault(trial.workload, set()).add(trial.digest)
    hits, misfits, restored_trials = 0, len(others) - len(records), 0
    for task in tasks:
        found, misfit = records_for(task.module, records, session.target, session.database)
        given = {str(record.trace) for record in task.records}
        fresh = [record for record in found if str(record.trace) not in given]
        used = fresh[:STORED_OF_A_FUNCTION] if _searches_everything(task) else []
        task.records = (*task.records, *used)
        hits, misfits = hits + bool(used), misfits + misfit
        if task.wanted is None:
            task.uncompiled = frozenset(uncompiled.get(workload_of(task.module), ()))
        earlier = list(restored(task.module, answer.trials))
        task.restore(earlier)
        restored_trials += len(earlier)
    _advise([task for task in tasks if not task.records and _searches_everything(task)], session.journal)
    return StoredRecordsUse(
        hits=hits, misses=len(tasks) - hits, misfits=misfits, restored_trials=restored_trials
    )


def with_search_figures(use: StoredRecordsUse | None, tasks: Sequence[TaskSearch]) -> StoredRecordsUse | None:
    """The use of records after a search, with what it measured or left out because of them."""
    if use is None:
        return None
    trials = [task.advice.trials for task in tasks]
    passed_over = sum(len(task.passed_over) for task in tasks)
    return use.model_copy(
        update={"near": sum(map(bool, trials)), "near_trials": sum(trials), "passed_over": passed_over}
    )


def _advise(tasks: Sequence[TaskSearch], journal: SearchJournal) -> None:
    """Give each task the schedules that were fast for functions similar to its own."""
    sized = [(task, found) for task in tasks if (found := sized_function(task.function)) is not None]
    modules = {function.workload: task.module for task, function in sized}
    answer = list(journal.near([function for _, function in sized]))
    traces: dict[str, list[str]] = {}
    for near in journal.replays.surviving(modules, answer, replayed):
        traces.setdefault(near.workload, []).append(near.trace)
    for task, function in sized:
        task.advice = advice_of(task.module, traces.get(function.workload, ()))


def _searches_everything(task: TaskSearch) -> bool:
    """Whether the request leaves open where a task's candidates come from."""
    return task.wanted is None and task.session.options.search is SearchMethod.BOTH


def report_plans(tasks: Sequence[TaskSearch], session: TuningSession) -> None:
    """Report what was measured of the tasks' plans, for cost models. No failure of this ends a search."""
    if session.journal is not None:
        measured = (_measured(task, session) for task in tasks)
        session.journal.report_plans(function for function in measured if function is not None)


def _measured(task: TaskSearch, session: TuningSession) -> MeasuredFunction | None:
    try:
        return measured_function(task.module, task.plan_seconds, session.target)
    except Exception as error:
        if ran_out_of_memory(error):
            raise
        tuning_logger().warning("%s: its plans are not reported: %s", task.name, short_message(error))
        return None


def judge_tasks(
    tasks: Sequence[TaskSearch], winners: Collection[TuningRecord], session: TuningSession
) -> None:
    """Tell which of the tasks' best records the library uses; the others lost."""
    if session.journal is None:
        return
    session.journal.judge(
        judged_record(task.best_record, task.best_record in winners, task.default_seconds)
        for task in tasks
        if task.best_record is not None
    )
