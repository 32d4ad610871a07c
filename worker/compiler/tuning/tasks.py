"""The functions of a model that a search may schedule, and the records that schedule them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import tvm
from tvm import relax, tirx
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.extracted_task import ExtractedTask
from tvm.s_tir.meta_schedule.relax_integration import extract_tasks

from bessemer.contract.options import TuneOptions
from worker.compiler.layout.separate_parameters import without_preparation
from worker.compiler.schedules.blocks import has_dynamic_sizes
from worker.compiler.schedules.default import is_scheduled, plans_of, schedule_rest
from worker.compiler.tuning.assignment import assign, names_of
from worker.compiler.tuning.search import TaskSearch
from worker.compiler.tuning.session import TuningSession
from worker.compiler.values import Optimized


def target_of(optimized: Optimized) -> tvm.target.Target:
    """The processor or the GPU that runs the model's functions."""
    target = optimized.captured.upload.target
    return target.llvm if target.gpu is None else target.gpu.target


def count_dynamic(module: tvm.IRModule) -> int:
    """The number of functions with dynamic sizes."""
    functions = (function for function in module.functions.values() if isinstance(function, tirx.PrimFunc))
    return sum(map(has_dynamic_sizes, functions))


def known_tasks(module: tvm.IRModule, target: tvm.target.Target) -> list[ExtractedTask]:
    """The distinct functions of each run that have no schedule, except for those of dynamic sizes."""
    return [
        task
        for task in extract_tasks(without_preparation(module), target)
        if not count_dynamic(task.dispatched[0]) and not is_scheduled(task.dispatched[0]["main"])
    ]


def tasks_of(module: tvm.IRModule, session: TuningSession) -> list[TaskSearch]:
    """The searches of the functions that have no schedule."""
    return searches_of(known_tasks(module, session.target), session)


def searches_of(functions: Sequence[ExtractedTask], session: TuningSession) -> list[TaskSearch]:
    """The searches of functions, by their plans if a family has some."""
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
        for index, task in enumerate(functions)
    ]


def named_tasks(tasks: list[TaskSearch], module: tvm.IRModule, options: TuneOptions) -> list[TaskSearch]:
    """The tasks that the request names, with their spaces; all tasks if it names none."""
    if not options.spaces:
        return tasks
    names = [names_of(task.module["main"], module) for task in tasks]
    spaces = assign(names, options.spaces)
    return [
        replace(task, wanted=space) for task, space in zip(tasks, spaces, strict=True) if space is not None
    ]


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
