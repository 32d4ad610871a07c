"""MetaSchedule's runner over the candidate server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerInput, RunnerResult

from worker.candidates.client import CandidateClient
from worker.candidates.requests import (
    Evaluation,
    MeasureBatch,
    MeasureCandidate,
    MeasureOutcome,
    TensorArgument,
)

RUN_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class RunnerSettings:
    """With how many threads candidates run, how they are timed, and how long each may take."""

    threads: int
    evaluation: Evaluation = field(default_factory=Evaluation)
    timeout_seconds: float = RUN_TIMEOUT_SECONDS


@derived_object
class CandidateRunner(PyRunner):
    """Times MetaSchedule's candidates one after the other, then removes their libraries."""

    def __init__(self, candidates: CandidateClient, settings: RunnerSettings) -> None:
        super().__init__()
        self.candidates = candidates
        self.settings = settings

    def run(self, runner_inputs: list[RunnerInput]) -> list[Any]:
        """Run each library; the futures are done when this returns."""
        batch = MeasureBatch(
            candidates=tuple(describe_candidate(runner_input) for runner_input in runner_inputs),
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
    """A run that has ended."""

    def __init__(self, outcome: MeasureOutcome) -> None:
        super().__init__()
        self.outcome = outcome

    def done(self) -> bool:
        """Always."""
        return True

    def result(self) -> RunnerResult:
        """The seconds of the best repeat, or the error: whatever else runs here only adds to a repeat."""
        if self.outcome.error is not None:
            return RunnerResult(None, self.outcome.error)
        return RunnerResult([min(self.outcome.seconds)], None)


def describe_candidate(runner_input: RunnerInput) -> MeasureCandidate:
    """The input as the candidate server takes it."""
    arguments = tuple(
        TensorArgument(dtype=str(info.dtype), shape=tuple(int(size) for size in info.shape))
        for info in runner_input.args_info
    )
    return MeasureCandidate(library=str(runner_input.artifact_path), arguments=arguments)
