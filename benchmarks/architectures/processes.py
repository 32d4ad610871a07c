"""Runs each architecture in its own process, because a model can crash the compiler or never finish."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import torch
from torch import nn

from benchmarks.architectures.entry import Architecture
from benchmarks.architectures.outcomes import Form, Outcome, Reached, append_outcome, read_outcomes
from benchmarks.architectures.survey import survey
from bessemer.contract.target import HOST

LIMIT_SECONDS = 300
"""Processor time, because other programs may share the cores."""

Task = tuple[Architecture, Form]


def warm_up() -> None:
    """Initialize torch and TVM once for all forked processes."""
    torch.set_num_threads(1)
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    from worker.job.compiler_warmup import warm_up_compiler

    warm_up_compiler()
    torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))


def survey_each(
    tasks: Iterable[Task],
    until: Reached,
    progress: Path,
    jobs: int,
    limit_seconds: int = LIMIT_SECONDS,
    preset: str = HOST,
) -> None:
    """Survey every task in its own process, ``jobs`` at a time.

    Args:
        tasks: models and forms.
        until: the last stage to run.
        progress: the file to append outcomes to.
        jobs: processes at a time.
        limit_seconds: the limit of a process's processor time; it ends at ten times that in any case.
        preset: the target.
    """
    running: dict[int, Task] = {}
    for task in tasks:
        if len(running) >= jobs:
            _wait(running, progress)
        running[_start(task, until, progress, limit_seconds, preset)] = task
    while running:
        _wait(running, progress)


def _start(task: Task, until: Reached, progress: Path, limit_seconds: int, preset: str) -> int:
    with suppress(ImportError):
        import_module(task[0].module)
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (limit_seconds, limit_seconds))
        signal.alarm(10 * limit_seconds)
        append_outcome(progress, survey(*task, until, preset=preset))
        os._exit(0)
    return child


def _wait(running: dict[int, Task], progress: Path) -> None:
    child, status = os.wait()
    architecture, form = running.pop(child)
    if status:
        how = signal.Signals(status & 127).name if status & 127 else f"exit {status >> 8}"
        error = f"the process ended: {how}"
        append_outcome(
            progress, Outcome(name=architecture.name, form=form, reached=Reached.SAVED, error=error)
        )
    outcome = read_outcomes(progress)[architecture.name, form]
    print(f"{outcome.name:40} {form.value:9} {outcome.reached:10} {outcome.error[:150]}", flush=True)
