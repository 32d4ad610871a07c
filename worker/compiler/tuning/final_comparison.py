"""The default schedule against the search's best: what is built is what measures faster."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm.s_tir.meta_schedule.database import TuningRecord

from worker.compiler.schedules.default import default_schedule
from worker.compiler.tuning.policy import CONTEST_ROUNDS, MEASURED_ROUNDS, beats, best_of, may_beat
from worker.compiler.tuning.search import TaskSearch
from worker.compiler.tuning.session import TuningSession, measure

_ENTRY = "main"


def measure_defaults(tasks: Sequence[TaskSearch], session: TuningSession) -> None:
    """Measure the default schedule of every task; what fails stays unknown."""
    modules = [_default_module(task, session) for task in tasks]
    for task, result in zip(tasks, measure(modules, session, MEASURED_ROUNDS), strict=True):
        task.default_seconds = best_of(result.run_secs)


def winners(tasks: Sequence[TaskSearch], session: TuningSession) -> list[TuningRecord]:
    """The records that beat the default schedules of their tasks, measured again in alternation.

    The best of many noisy measurements flatters itself; hence the second measurement.
    """
    open_tasks = [task for task in tasks if may_beat(task.best_seconds, task.default_seconds)]
    records = [task.best_record for task in open_tasks if task.best_record is not None]
    ours = [record.as_measure_candidate().sch.mod for record in records]
    theirs = [_default_module(task, session) for task in open_tasks]
    results = [result.run_secs for result in measure([*ours, *theirs], session, CONTEST_ROUNDS)]
    pairs = zip(records, results[: len(ours)], results[len(ours) :], strict=True)
    return [record for record, seconds, default_seconds in pairs if beats(seconds, default_seconds)]


def _default_module(task: TaskSearch, session: TuningSession) -> tvm.IRModule:
    return tvm.IRModule({_ENTRY: default_schedule(task.module[_ENTRY], session.target)})
