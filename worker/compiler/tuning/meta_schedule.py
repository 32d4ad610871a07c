"""MetaSchedule's builder and runner, which use the candidate server's processes."""

from __future__ import annotations

import itertools
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerInput, RunnerResult
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from worker.candidates.client import CandidateClient
from worker.candidates.requests import (
    BuildBatch,
    BuildCandidate,
    Evaluation,
    MeasureBatch,
    MeasureCandidate,
    MeasureOutcome,
    TensorArgument,
)
from worker.compiler.codegen.generate import generate_code
from worker.compiler.codegen.link import link_shared
from worker.compiler.schedules.default import follow_plans

BUILD_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True)
class BuilderSettings:
    """The folder for libraries, the number of concurrent builds, and the time limit of each."""

    folder: Path
    workers: int
    timeout_seconds: float = BUILD_TIMEOUT_SECONDS


Describe = Callable[[BuilderInput, int], BuildCandidate]
"""What the candidate server does for a builder's input, which has a number."""


@derived_object
class CandidateBuilder(PyBuilder):
    """Compiles candidates in forked processes. A failed build is a result with an error.

    ``left_seconds`` is the time for all builds of a batch.
    """

    def __init__(self, candidates: CandidateClient, settings: BuilderSettings, describe: Describe) -> None:
        super().__init__()
        self.candidates = candidates
        self.settings = settings
        self.describe = describe
        self.numbers = itertools.count()
        self.left_seconds = inf

    def build(self, build_inputs: list[BuilderInput]) -> list[BuilderResult]:
        """Build each input."""
        batch = BuildBatch(
            candidates=tuple(self.describe(build_input, next(self.numbers)) for build_input in build_inputs),
            workers=self.settings.workers,
            timeout_seconds=self.settings.timeout_seconds,
            left_seconds=self.left_seconds,
        )
        outcomes = self.candidates.build_many(batch)
        return [BuilderResult(outcome.library, outcome.error) for outcome in outcomes]


def library_builder(candidates: CandidateClient, settings: BuilderSettings) -> CandidateBuilder:
    """A builder of shared libraries for this machine."""

    def describe(build_input: BuilderInput, number: int) -> BuildCandidate:
        build = partial(build_library, build_input.mod, build_input.target)
        return BuildCandidate(pickle.dumps(build), str(settings.folder / f"candidate-{number}.so"))

    return CandidateBuilder(candidates, settings, describe)


def build_library(module: tvm.IRModule, target: tvm.target.Target, library: str) -> None:
    """Compile a candidate in this process to a library."""
    module = follow_plans(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target)
    with tempfile.TemporaryDirectory() as folder:
        generate_code(module, target).export_library(library, fcompile=link_shared, workspace_dir=folder)


RUN_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class RunnerSettings:
    """The threads of a candidate, how it is timed, and the time limit of each."""

    threads: int
    evaluation: Evaluation = field(default_factory=Evaluation)
    timeout_seconds: float = RUN_TIMEOUT_SECONDS


@derived_object
class CandidateRunner(PyRunner):
    """Times candidates one after another, then removes their libraries.

    ``rival_seconds`` is the best time so far, if they all compute the same function.
    """

    def __init__(self, candidates: CandidateClient, settings: RunnerSettings) -> None:
        super().__init__()
        self.candidates = candidates
        self.settings = settings
        self.rival_seconds: float | None = None

    def run(self, runner_inputs: list[RunnerInput]) -> list[Any]:
        """Run each library; every future is done on return."""
        batch = MeasureBatch(
            candidates=tuple(
                replace(describe_candidate(runner_input), rival_seconds=self.rival_seconds)
                for runner_input in runner_inputs
            ),
            threads=self.settings.threads,
            evaluation=self.settings.evaluation,
            timeout_seconds=self.settings.timeout_seconds,
        )
        outcomes = self.candidates.measure_many(batch)
        for candidate in batch.candidates:
            Path(candidate.library).unlink(missing_ok=True)
        return [FinishedRun(outcome) for outcome in outcomes]


@derived_object
class FinishedRun(PyRunnerFuture):
    """The future of a finished run."""

    def __init__(self, outcome: MeasureOutcome) -> None:
        super().__init__()
        self.outcome = outcome

    def done(self) -> bool:
        """True."""
        return True

    def result(self) -> RunnerResult:
        """The seconds of the fastest repeat, or the error. Other load can only slow a repeat down."""
        if self.outcome.error is not None:
            return RunnerResult(None, self.outcome.error)
        return RunnerResult([min(self.outcome.seconds)], None)


def describe_candidate(runner_input: RunnerInput) -> MeasureCandidate:
    """Convert an input for the candidate server."""
    arguments = tuple(
        TensorArgument(dtype=str(info.dtype), shape=tuple(int(size) for size in info.shape))
        for info in runner_input.args_info
    )
    return MeasureCandidate(library=str(runner_input.artifact_path), arguments=arguments)
