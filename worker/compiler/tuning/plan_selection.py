"""The schedules that a request wants in the library, whatever the default takes."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.s_tir.meta_schedule.database import TuningRecord

from bessemer.contract.problem import ErrorCode
from worker.compiler.tuning.search import TaskSearch
from worker.errors import JobError


def forced_records(tasks: Sequence[TaskSearch]) -> list[TuningRecord]:
    """The best record of every task.

    Raises:
        JobError: ``space-failed``: nothing of a task ran.
    """
    return [_best_record(task) for task in tasks]


def _best_record(task: TaskSearch) -> TuningRecord:
    if task.best_record is None:
        tried = len(task.trial_seconds)
        reason = f"none of {tried} trials ran: {task.failure}" if tried else "it got no trial: ask for more"
        raise JobError(ErrorCode.SPACE_FAILED, f"space '{task.space}' on function '{task.name}': {reason}")
    return task.best_record
