"""Selects the records to build: the request's forced ones, or the ones that beat the default schedules."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import tvm
from tvm.s_tir.meta_schedule.database import TuningRecord

from bessemer.contract.problem import ErrorCode
from worker.compiler.schedules.default import default_schedule
from worker.compiler.tuning.on_device import NoDeviceError
from worker.compiler.tuning.search import Compared, TaskSearch
from worker.compiler.tuning.session import TuningSession, measure
from worker.compiler.tuning.trial_budget import COMPARISON_ROUNDS, MEASURED_ROUNDS, beats, best_of, may_beat
from worker.errors import JobError

_ENTRY = "main"


_DEFAULTS_AT_ONCE = 8
"""How many default schedules are measured between two looks at the clock."""


def measure_defaults(
    tasks: Sequence[TaskSearch],
    session: TuningSession,
    fits: Callable[[float], bool] = lambda _seconds: True,
    report: Callable[[int], object] = lambda _done: None,
) -> None:
    """Measure the default schedule of every task; the time of one that fails stays None.

    Args:
        tasks: the tasks.
        session: how to measure.
        fits: whether the search has this many seconds left; if not, no more are measured.
        report: called before each batch with the number of measured tasks.
    """
    last_seconds = 0.0
    for first in range(0, len(tasks), _DEFAULTS_AT_ONCE):
        if not fits(last_seconds):
            break
        report(first)
        began = time.monotonic()
        some = tasks[first : first + _DEFAULTS_AT_ONCE]
        modules = [default_module(task, session) for task in some]
        results = measure(modules, session, MEASURED_ROUNDS, together=False)
        for task, result in zip(some, results, strict=True):
            task.default_seconds = best_of(result.run_secs)
        last_seconds = time.monotonic() - began


def winners(tasks: Sequence[TaskSearch], session: TuningSession) -> list[TuningRecord]:
    """The records that beat their tasks' default schedules when both are measured in alternation.

    The second measurement is needed because the best of many noisy ones is too optimistic. It is not repeated
    for the same record. If the devices that measure are lost, the first one decides.
    """
    open_tasks = uncompared(tasks)
    records = [task.best_record for task in open_tasks if task.best_record is not None]
    ours = [record.as_measure_candidate().sch.mod for record in records]
    theirs = [default_module(task, session) for task in open_tasks]
    try:
        results = [result.run_secs for result in measure([*ours, *theirs], session, COMPARISON_ROUNDS)]
    except NoDeviceError:
        return _chosen(tasks, [task for task in open_tasks if _won_clearly(task)])
    _compare(open_tasks, results[: len(ours)], results[len(ours) :])
    return _chosen(tasks)


def _chosen(tasks: Sequence[TaskSearch], clear: Sequence[TaskSearch] = ()) -> list[TuningRecord]:
    """The records that won, and the best ones of tasks where they are ``clear`` winners."""
    chosen = (task.best_record if any(task is each for each in clear) else task.won_record for task in tasks)
    return [record for record in chosen if record is not None]


def _compare(
    tasks: Sequence[TaskSearch], ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]
) -> None:
    """Note which records beat the default schedules; a record that loses leaves the winner before it."""
    for task, seconds, default_seconds in zip(tasks, ours, theirs, strict=True):
        task.compared = Compared(task.best_record, beats(seconds, default_seconds))
        if task.compared.won:
            task.won_record = task.best_record


def uncompared(tasks: Sequence[TaskSearch]) -> list[TaskSearch]:
    """The tasks whose best records may beat the default schedules, and were not measured beside them yet."""
    return [
        task
        for task in tasks
        if may_beat(task.best_seconds, task.default_seconds)
        and task.best_record is not None
        and task.best_record is not task.compared.record
    ]


def _won_clearly(task: TaskSearch) -> bool:
    default = task.default_seconds
    return default is not None and beats([task.best_seconds or 0.0], [default])


def default_module(task: TaskSearch, session: TuningSession) -> tvm.IRModule:
    """A task's function with its default schedule."""
    return tvm.IRModule({_ENTRY: default_schedule(task.module[_ENTRY], session.target)})


def forced_records(tasks: Sequence[TaskSearch]) -> list[TuningRecord]:
    """The best record of every task, for a request that forces its spaces.

    Raises:
        JobError: ``space-failed``: none of a task's candidates ran, and its space may not skip it.
    """
    kept = [task for task in tasks if not is_skipped(task)]
    for task in kept:
        if task.best_record is None:
            raise _no_record(task)
    return [task.best_record for task in kept if task.best_record is not None]


def is_skipped(task: TaskSearch) -> bool:
    """Whether the space that a pattern names does not fit the task's function: no candidate of it runs."""
    may_skip = task.wanted is not None and task.wanted.may_skip
    return may_skip and task.best_record is None and (task.misfit is not None or bool(task.trials))


def refuse_misfits(tasks: Sequence[TaskSearch]) -> None:
    """Refuse a pattern whose space fits none of its functions.

    Raises:
        JobError: ``space-failed`` with the reason for the first function.
    """
    named = [task for task in tasks if task.wanted is not None]
    for assignment in dict.fromkeys(task.wanted for task in named):
        assigned = [task for task in named if task.wanted == assignment]
        if all(is_skipped(task) for task in assigned):
            raise assigned[0].misfit or _no_record(assigned[0])


def _no_record(task: TaskSearch) -> JobError:
    tried = len(task.trials)
    reason = (
        f"none of {tried} trials ran: {task.failure}" if tried else "it had no trials; raise `tune.trials`"
    )
    return JobError(ErrorCode.SPACE_FAILED, f"space '{task.space}' on function '{task.name}': {reason}")
