"""What a search does with the service's tuning records: it begins with them, and judges its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tvm.s_tir.meta_schedule.database import TuningRecord

from bessemer.contract.options import STORED_OF_A_FUNCTION, SearchMethod
from bessemer.contract.report import StoredRecordsUse
from worker.compiler.tuning.search import TaskSearch
from worker.compiler.tuning.session import TuningSession
from worker.compiler.tuning.stored_records import Function, judged_record, records_for, restored


def open_journal(tasks: Sequence[TaskSearch], session: TuningSession) -> StoredRecordsUse | None:
    """Give each task the service's records of its function, and the trials of the job's earlier attempts."""
    if session.journal is None:
        return None
    answer = session.journal.open([Function(task.name, task.module) for task in tasks])
    hits, misfits, restored_trials = 0, 0, 0
    for task in tasks:
        found, misfit = records_for(task.module, answer.records, session.target, session.database)
        given = {str(record.trace) for record in task.records}
        fresh = [record for record in found if str(record.trace) not in given]
        used = fresh[:STORED_OF_A_FUNCTION] if _searches_everything(task) else []
        task.records = (*task.records, *used)
        hits, misfits = hits + bool(used), misfits + misfit
        earlier = list(restored(task.module, answer.trials))
        task.restore(earlier)
        restored_trials += len(earlier)
    return StoredRecordsUse(
        hits=hits, misses=len(tasks) - hits, misfits=misfits, restored_trials=restored_trials
    )


def _searches_everything(task: TaskSearch) -> bool:
    """Whether the request leaves open where a task's candidates come from."""
    return task.wanted is None and task.session.options.search is SearchMethod.BOTH


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
