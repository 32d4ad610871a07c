"""Compiles growing models through every stage: ``python -m benchmarks.compile_time.scaling``.

Each model runs in its own process. The table has the processor time of each stage in seconds. It is linear
if it grows as fast as the number of parts. The figures are saved in
``benchmarks/results/<date>-scaling.json``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import warnings
from datetime import UTC, datetime
from pathlib import Path

import psutil
import torch
from pydantic import BaseModel

from benchmarks.architectures.outcomes import Form
from benchmarks.architectures.processes import warm_up
from benchmarks.architectures.survey import save, upload
from benchmarks.compile_time.growing_models import GROWING
from benchmarks.machine import Machine, describe
from bessemer.contract.report import StageTime
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.stage import Stage
from worker.candidates.client import CandidateClient
from worker.candidates.server import fork_server
from worker.compiler.pipeline.pipeline import run_pipeline
from worker.compiler.values import Benchmarked, StageContext, made_from
from worker.protocol.observer import JobObserver

RESULTS = Path(__file__).parents[1] / "results"
SIZES = (100, 300, 1000)
JOB_SECONDS = 3600.0


class StageCost(BaseModel):
    """What one stage of one model took."""

    stage: Stage
    seconds: float
    processor_seconds: float


class Scaled(BaseModel):
    """A model of that many parts, the kernels of its library, and what each stage took."""

    model: str
    parts: int
    functions: int
    library_bytes: int
    stages: list[StageCost]


class Run(BaseModel):
    """One run of this benchmark."""

    machine: Machine
    models: list[Scaled]


class CostObserver(JobObserver):
    """Adds up what each stage takes, in this process and in those that it starts."""

    def __init__(self) -> None:
        self.costs: list[StageCost] = []
        self._start = 0.0

    def stage_started(self, stage: Stage) -> None:
        """See ``JobObserver``."""
        self._start = processor_seconds()

    def stage_finished(self, stage: Stage, seconds: float) -> None:
        """See ``JobObserver``."""
        used = processor_seconds() - self._start
        self.costs.append(StageCost(stage=stage, seconds=round(seconds, 2), processor_seconds=round(used, 2)))

    def finished(self) -> tuple[StageTime, ...]:
        """The stages so far, for the report."""
        return tuple(StageTime(stage=cost.stage, seconds=cost.seconds) for cost in self.costs)


def main() -> int:
    """Measure the models and print a table."""
    options = _options()
    warm_up()
    run = Run(machine=describe(("psutil",)), models=[])
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-scaling.json"
    for name in options.models:
        for parts in options.sizes:
            run.models.append(_in_a_process(name, parts))
            print(shown(run.models[-1]), flush=True)
            path.write_text(run.model_dump_json(indent=1) + "\n")
    return 0


def measure(name: str, parts: int) -> Scaled:
    """Compile one model through every stage."""
    torch.manual_seed(0)
    model, inputs = GROWING[name](parts)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        path = save(model.eval(), inputs, Form.PT2, Path(folder))
        with fork_server(Path(folder)) as candidates:
            observer = CostObserver()
            context = _context(Path(folder), candidates, observer)
            reached = run_pipeline(upload(path, Form.PT2, inputs), context)
    benchmarked = made_from(reached.value, Benchmarked)
    assert benchmarked is not None
    return Scaled(
        model=name,
        parts=parts,
        functions=len(benchmarked.verified.built.module.functions) - 1,
        library_bytes=benchmarked.result.library_bytes,
        stages=observer.costs,
    )


def processor_seconds() -> float:
    """The processor time of this process and of all that it started, including those that ended."""
    me = psutil.Process()
    return sum(map(_used, (me, *me.children(recursive=True))))


def shown(scaled: Scaled) -> str:
    """A row of the table."""
    seconds = sum(cost.seconds for cost in scaled.stages)
    used = sum(cost.processor_seconds for cost in scaled.stages)
    stages = "  ".join(f"{cost.stage.value} {cost.processor_seconds:6.2f}" for cost in scaled.stages)
    return f"{scaled.model:16} {scaled.parts:5} parts  {stages}  all {used:6.1f} (wall {seconds:.1f})"


def _used(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _in_a_process(name: str, parts: int) -> Scaled:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(measure, (name, parts))


def _context(folder: Path, candidates: CandidateClient, observer: CostObserver) -> StageContext:
    scratch, output = folder / "scratch", folder / "output"
    scratch.mkdir()
    output.mkdir()
    return StageContext(
        scratch=scratch,
        output=output,
        candidates=candidates,
        sandbox=SandboxStatus(mode=SandboxMode.OFF, layers=()),
        finished_stages=observer.finished,
        left_seconds=lambda: JOB_SECONDS,
        observer=observer,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of parts")
    parser.add_argument("--models", nargs="+", default=tuple(GROWING), choices=tuple(GROWING))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
