"""The default schedule against the search's best: what is built is what measures faster."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import tvm
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.runner import RunnerInput

from worker.schedules.default import default_schedule
from worker.tuning.search import DEVICE, Laboratory, TaskSearch

_ENTRY = "main"
_CONTEST_ROUNDS = 3


def measure_defaults(tasks: Sequence[TaskSearch], laboratory: Laboratory) -> None:
    """Measure the default schedule of every task; what fails stays unknown."""
    modules = [_default_module(task, laboratory) for task in tasks]
    for task, seconds in zip(tasks, measure_modules(modules, laboratory, rounds=1), strict=True):
        task.default_seconds = seconds


def wins(task: TaskSearch, laboratory: Laboratory) -> bool:
    """Whether the search's best beats the default schedule, measured again in alternation.

    The best of many noisy measurements flatters itself; hence the second measurement.
    """
    if task.best_record is None or task.best_seconds is None:
        return False
    if task.default_seconds is None:
        return True
    tuned = task.best_record.as_measure_candidate().sch.mod
    ours, theirs = measure_modules([tuned, _default_module(task, laboratory)], laboratory, _CONTEST_ROUNDS)
    if ours is None or theirs is None:
        return theirs is None and ours is not None
    return ours < theirs


def measure_modules(
    modules: Sequence[tvm.IRModule], laboratory: Laboratory, rounds: int
) -> list[float | None]:
    """Median seconds of one call of each module's ``main``, in alternation; None where it fails."""
    built = laboratory.builder.build([BuilderInput(module, laboratory.target) for module in modules])
    runnable = [index for index, result in enumerate(built) if result.error_msg is None] * rounds
    inputs = [
        RunnerInput(built[index].artifact_path, DEVICE, ArgInfo.from_entry_func(modules[index]))
        for index in runnable
    ]
    samples: list[list[float]] = [[] for _ in modules]
    for index, future in zip(runnable, laboratory.runner.run(inputs) if inputs else (), strict=True):
        samples[index] += [float(seconds) for seconds in future.result().run_secs or ()]
    return [median(seconds) if seconds else None for seconds in samples]


def _default_module(task: TaskSearch, laboratory: Laboratory) -> tvm.IRModule:
    return tvm.IRModule({_ENTRY: default_schedule(task.module[_ENTRY], laboratory.target)})
