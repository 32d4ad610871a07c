"""Trials per minute of a search, beside stock MetaSchedule's builder and runner: ``make bench-search``.

Both sides search the same functions of an example model in the same order, in turns of a round each, in one
process. They differ in the builder and the runner only.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.relax_integration import extract_tasks

from bessemer.contract.options import SearchMethod, TuneOptions
from examples.models import EXAMPLES
from worker.candidates.server import fork_server
from worker.compiler.pipeline.optimize import default_phases
from worker.compiler.schedules.default import plans_of
from worker.compiler.schedules.processors import machine_of
from worker.compiler.target import host_mcpu, host_triple
from worker.compiler.tuning.course import Round, shares_of
from worker.compiler.tuning.meta_schedule import (
    BuilderSettings,
    CandidateRunner,
    RunnerSettings,
    library_builder,
)
from worker.compiler.tuning.record_selection import measure_defaults
from worker.compiler.tuning.search import TaskSearch
from worker.compiler.tuning.session import EVALUATION, TuningSession, make_cost_model, open_database
from worker.compiler.tuning.tasks import searches_of
from worker.compiler.tuning.trial_budget import ROUND_TRIALS
from worker.job.warmup import import_everything

PATIENCE_SECONDS = 300.0
"""How long a candidate of stock MetaSchedule may take: its processes import all of TVM first."""
OURS, STOCK = "bessemer", "stock MetaSchedule"


@dataclass
class Side:
    """A search with one builder and runner, and its rounds so far."""

    name: str
    tasks: Sequence[TaskSearch]
    rounds: list[Round] = field(default_factory=list)

    def advance(self, index: int) -> None:
        """Run a round of one function."""
        task = self.tasks[index]
        clock, began = task.session.clock, monotonic()
        build, measure = clock.build_seconds, clock.measure_seconds
        trials = task.advance(ROUND_TRIALS)
        parts = (clock.build_seconds - build, clock.measure_seconds - measure)
        self.rounds.append(Round(trials, monotonic() - began, *parts))

    def show(self, method: SearchMethod) -> None:
        """Print what it reached."""
        shares = shares_of(self.rounds)
        best = sum(task.weight * (task.standing.best_seconds or inf) for task in self.tasks)
        if shares is not None:
            print(
                f"{method.value:12} {self.name:20} {shares.trials_per_minute:6.1f} trials/min  "
                f"search {shares.search:4.0%}  build {shares.build:4.0%}  measure {shares.measure:4.0%}  "
                f"functions {best * 1e3:.4g} ms",
                flush=True,
            )


def main() -> None:
    """Print a line for each side and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="resnet18", choices=sorted(EXAMPLES))
    parser.add_argument("--functions", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2, help="for each function")
    arguments = parser.parse_args()
    import_everything()
    threads = len(os.sched_getaffinity(0))
    host = {"kind": "llvm", "mtriple": host_triple(), "mcpu": host_mcpu(), "num-cores": threads}
    target = tvm.target.Target(host)
    with tempfile.TemporaryDirectory() as name, fork_server(Path(name)) as candidates:
        module = _optimized(arguments.model, target)
        for method in (SearchMethod.METASCHEDULE, SearchMethod.PLANS):
            folder = Path(name) / method.value
            ours = _session(folder / "ours", target, threads, method)
            ours = replace(
                ours,
                builder=library_builder(candidates, BuilderSettings(folder / "ours", threads)),
                runner=CandidateRunner(candidates, RunnerSettings(threads, EVALUATION)),
            )
            stock = replace(_session(folder / "stock", target, threads, method), runner=_StockRunner())
            sides = [
                Side(side, _tasks(module, session, arguments.functions))
                for side, session in ((OURS, ours), (STOCK, stock))
            ]
            for side in sides:
                measure_defaults(side.tasks, side.tasks[0].session)
            for _ in range(arguments.rounds):
                for index in range(arguments.functions):
                    for side in sides:
                        side.advance(index)
            for side in sides:
                side.show(method)


class _StockRunner:
    """MetaSchedule's own runner, in a process of its own for each candidate."""

    def __init__(self) -> None:
        self._runner = ms.runner.LocalRunner(timeout_sec=PATIENCE_SECONDS)
        self.rival_seconds: float | None = None

    def run(self, inputs: list[Any]) -> list[Any]:
        return list(self._runner.run(inputs))


def _session(folder: Path, target: tvm.target.Target, threads: int, method: SearchMethod) -> TuningSession:
    folder.mkdir(parents=True)
    options = TuneOptions(trials=1, search=method)
    return TuningSession(
        target=target,
        builder=ms.builder.LocalBuilder(max_workers=threads, timeout_sec=PATIENCE_SECONDS),
        runner=None,
        database=open_database(folder),
        cost_model=make_cost_model(options, threads),
        threads=threads,
        options=options,
    )


def _optimized(name: str, target: tvm.target.Target) -> tvm.IRModule:
    example = EXAMPLES[name]
    program = torch.export.export(example.build().eval(), example.example_inputs())
    module = relax.transform.DecomposeOpsForInference()(from_exported_program(program))
    with target, tvm.transform.PassContext(opt_level=3):
        for phase in default_phases(machine_of(target)):
            for step in phase.passes:
                module = step(module)
    return module


def _tasks(module: tvm.IRModule, session: TuningSession, count: int) -> list[TaskSearch]:
    """The functions of products, the most frequent first."""
    found = [
        task
        for task in extract_tasks(module, session.target)
        if plans_of(task.dispatched[0]["main"], session.target) is not None
    ]
    chosen = sorted(found, key=lambda task: (-int(task.weight), str(task.task_name)))[:count]
    return searches_of(chosen, session)


if __name__ == "__main__":
    main()
