"""Writes the best schedules of a search as readable Python that runs where TVM is installed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import tvm
from tvm.s_tir.meta_schedule.database import TuningRecord

from worker.compiler.tuning.search import TaskSearch

_DEFAULTS = re.compile(
    r", (?:preserve_unit_iters=True|disable_predication=False|preserve_unit_loops=False|index=-1)(?=[,)])"
)
"""Arguments with their default values."""

_INDENTATION = re.compile(r"^  (?=\S)", re.MULTILINE)

_SCRIPT = '''"""The best schedule that the search found for `{name}`.

Space: {space}. Best of {trials} trials, {milliseconds:.4g} ms a call on {processor}.{note}

    python {name}.py        # prints the scheduled function; needs apache-tvm {version}
"""

from tvm import s_tir
from tvm.script import ir as I
from tvm.script import tirx as T

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

_OF_PLANS = """
The annotations name a plan of Bessemer's; worker/compiler/schedules writes its loops."""
_OF_INTRINSICS = """
The tensor intrinsics come from Bessemer or a package; load them first
(worker.compiler.spaces.registry.space_book)."""


def write_scripts(tasks: Sequence[TaskSearch], folder: Path) -> None:
    """Write ``<function>.py`` for every task with a candidate that ran."""
    for task in tasks:
        if task.best_record is not None:
            path = folder / f"{task.name}.py"
            path.write_text(script_of(task, task.best_record), encoding="utf-8")


def script_of(task: TaskSearch, record: TuningRecord) -> str:
    """A record as a Python module: the function, ``apply_trace(schedule)`` and ``scheduled()``."""
    trace = _readable(record)
    return _SCRIPT.format(
        name=task.name,
        space=task.best_space,
        trials=len(task.trials),
        milliseconds=float(record.run_secs[0]) * 1e3,
        processor=task.session.target.attrs["mcpu"],
        version=tvm.__version__,
        workload=_without_comments(record.workload.mod.script()),
        trace=trace,
        note=_note(trace),
    )


def _readable(record: TuningRecord) -> str:
    text = _without_comments(str(record.trace.simplified(remove_postproc=False)))
    return _INDENTATION.sub("    ", _DEFAULTS.sub("", text))


def _without_comments(text: str) -> str:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return "\n".join(lines).strip()


def _note(trace: str) -> str:
    if "bessemer.plan." in trace:
        return _OF_PLANS
    return _OF_INTRINSICS if "tensorize(" in trace else ""
