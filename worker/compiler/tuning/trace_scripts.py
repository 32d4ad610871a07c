"""Writes schedules as readable Python that runs where TVM is installed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import tvm
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.schedule import Trace

from bessemer.contract.report import WrittenSchedule
from worker.compiler.schedules.gpu.chips import gpu_in
from worker.compiler.tuning.search import TaskSearch

_DEFAULTS = re.compile(
    r", (?:preserve_unit_iters=True|disable_predication=False|preserve_unit_loops=False|index=-1)(?=[,)])"
)
"""Arguments with their default values."""

_INDENTATION = re.compile(r"^  (?=\S)", re.MULTILINE)

_SCRIPT = '''"""{title}

{account}{note}

    python {name}.py        # prints the scheduled function; needs apache-tvm {version}
"""

from tvm import s_tir
{imports}

{workload}


{trace}


def scheduled():
    """The function with its loops."""
    schedule = s_tir.Schedule(Module)
    apply_trace(schedule)
    return schedule.mod


if __name__ == "__main__":
    print(scheduled().script())
'''

_IMPORTS = "from tvm.script import ir as I\nfrom tvm.script import tirx as T"

_NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9_]")
MAX_STEM = 128

_OF_PLANS = """
The annotations name a plan of Bessemer's; worker/compiler/schedules writes its loops."""
_OF_INTRINSICS = """
The tensor intrinsics come from Bessemer or a package; load them first
(worker.compiler.spaces.registry.space_book)."""


def write_scripts(tasks: Sequence[TaskSearch], folder: Path) -> None:
    """Write ``<function>.py`` for every task with a candidate that ran."""
    for task in tasks:
        if task.best_record is not None:
            path = folder / f"{file_stem(task.name)}.py"
            path.write_text(script_of(task, task.best_record), encoding="utf-8")


def file_stem(function: str) -> str:
    """The name of a function's files in a bundle, which allows fewer letters than a module."""
    stem = _NOT_IN_FILE_NAMES.sub("_", function)[:MAX_STEM]
    return stem if stem == function else f"{stem}_{sha256(function.encode()).hexdigest()[:8]}"


def script_of(task: TaskSearch, record: TuningRecord) -> str:
    """A record as a Python module: the function, ``apply_trace(schedule)`` and ``scheduled()``."""
    best_ms, processor = float(record.run_secs[0]) * 1e3, processor_of(task.session.target)
    tried = f"Best of {len(task.trials)} trials, {best_ms:.4g} ms a call on {processor}."
    return _script(
        name=task.name,
        title=f"The best schedule that the search found for `{task.name}`.",
        account=f"Space: {task.best_space}. {tried}",
        workload=record.workload.mod,
        trace=readable_trace(record.trace),
    )


def processor_of(target: tvm.target.Target) -> str:
    """The processor, or the architecture of the GPU, that a target names."""
    gpu = gpu_in(target)
    return str(target.attrs["mcpu"]) if gpu is None else gpu.arch


def script_of_given(schedule: WrittenSchedule, workload: tvm.IRModule, processor: str) -> str:
    """A schedule from the request as such a module, with the decisions that it sampled."""
    took = "Not timed, since its sizes are dynamic."
    if schedule.schedule_ms is not None:
        took = f"{schedule.schedule_ms:.4g} ms a call on {processor}."
    return _script(
        name=schedule.function,
        title=f"The schedule that `{schedule.file}` gives `{schedule.function}`.",
        account=took,
        workload=workload,
        trace=schedule.trace,
    )


def readable_trace(trace: Trace) -> str:
    """A trace as the function ``apply_trace(schedule)``, without arguments with their default values."""
    text = _without_comments(str(trace.simplified(remove_postproc=False)))
    return _INDENTATION.sub("    ", _DEFAULTS.sub("", text))


def tvmscript(module: tvm.IRModule) -> str:
    """A module as a TVMScript program with its imports."""
    return f"{_IMPORTS}\n\n{_without_comments(module.script())}"


def _script(name: str, title: str, account: str, workload: tvm.IRModule, trace: str) -> str:
    return _SCRIPT.format(
        name=file_stem(name),
        title=title,
        account=account,
        version=tvm.__version__,
        imports=_IMPORTS,
        workload=_without_comments(workload.script()),
        trace=trace,
        note=_note(trace),
    )


def _without_comments(text: str) -> str:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return "\n".join(lines).strip()


def _note(trace: str) -> str:
    if "bessemer.plan." in trace:
        return _OF_PLANS
    return _OF_INTRINSICS if "tensorize(" in trace else ""
