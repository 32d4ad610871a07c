"""The pipeline: which stages it has, in which order, and what happens around each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from bessemer.contract.problem import ErrorCode, Problem
from bessemer.contract.stage import Stage
from worker.compiler.extensions import place_in_uploads
from worker.compiler.pipeline.benchmark import begin_baselines, benchmark
from worker.compiler.pipeline.capture import capture
from worker.compiler.pipeline.early import publish_verified
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.package import package
from worker.compiler.pipeline.translate import translate
from worker.compiler.pipeline.tune import tune
from worker.compiler.pipeline.without_records import build_or_drop_records, verify_or_drop_records
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.values import (
    Benchmarked,
    Captured,
    StageContext,
    Translated,
    Tuned,
    Upload,
    Verified,
)
from worker.errors import JobError, failure_of
from worker.protocol.observer import JobObserver

Value = TypeVar("Value")
Next = TypeVar("Next")


class Step(NamedTuple):
    """A stage of a pipeline: the function that runs it, and the code of its unexpected exceptions."""

    stage: Stage
    run: Callable[[Any, StageContext], Any]
    failure: ErrorCode


@dataclass(frozen=True)
class Pipeline(Generic[Value]):
    """Stages that end with a ``Value``. Each takes what the one before returns; mypy checks the order."""

    steps: tuple[Step, ...] = ()

    def then(
        self, stage: Stage, run: Callable[[Value, StageContext], Next], failure: ErrorCode
    ) -> Pipeline[Next]:
        """The pipeline with one more stage."""
        return Pipeline[Next]((*self.steps, Step(stage, run, failure)))


def capture_and_load_baselines(upload: Upload, context: StageContext) -> Captured:
    """Capture the model, and begin to load what the benchmark compares the library with."""
    captured = capture(upload, context)
    begin_baselines(captured, context)
    return captured


def benchmark_after_publishing(verified: Verified, context: StageContext) -> Benchmarked:
    """Measure the library, once its bundle is published if the request wants it early."""
    publish_verified(verified, context)
    return benchmark(verified, context)


PIPELINE = (
    Pipeline[Upload]()
    .then(Stage.CAPTURE, capture_and_load_baselines, ErrorCode.CAPTURE_FAILED)
    .then(Stage.TRANSLATE, translate, ErrorCode.TRANSLATE_FAILED)
    .then(Stage.OPTIMIZE, optimize, ErrorCode.OPTIMIZE_FAILED)
    .then(Stage.TUNE, tune, ErrorCode.TUNE_FAILED)
    .then(Stage.BUILD, build_or_drop_records, ErrorCode.BUILD_FAILED)
    .then(Stage.VERIFY, verify_or_drop_records, ErrorCode.VERIFY_CRASHED)
    .then(Stage.BENCHMARK, benchmark_after_publishing, ErrorCode.BENCHMARK_FAILED)
    .then(Stage.PACKAGE, package, ErrorCode.PACKAGE_FAILED)
)

FINDINGS = frozenset(
    {
        ErrorCode.OPERATOR_UNSUPPORTED,
        ErrorCode.TRANSLATE_FAILED,
        ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED,
    }
)
"""Failures that a preflight returns as its result, since it asks whether a model translates."""

_OF_EXTENSIONS = frozenset({ErrorCode.TRANSLATE_FAILED, ErrorCode.OPTIMIZE_FAILED})
"""Failures that an uploaded file is to blame for if it raised them."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reached:
    """The last stage of a run, and the value that it returned.

    Where a preflight's translation fails, ``finding`` is the failure and ``value`` the predecessor's.
    """

    stage: Stage
    value: Any
    finding: JobError | None = None


class StageFailedError(JobError):
    """A stage ended the job."""

    def __init__(self, stage: Stage, error: JobError) -> None:
        super().__init__(error.code, error.detail, error.places)
        self.stage = stage

    def problem(self, stage: str | None = None) -> Problem:
        """The problem document, with the stage in which the job ended."""
        return super().problem(stage or self.stage.value)


def run_pipeline(upload: Upload, context: StageContext) -> Reached:
    """Run the stages up to the last that the request wants, each on its predecessor's value.

    Args:
        upload: the model and the request.
        context: what the stages work with; its observer sees each stage's start and end.

    Raises:
        StageFailedError: a stage failed; an exception that it did not expect has the stage's own code.
    """
    last = upload.request.stop_after or Stage.PACKAGE
    reached = Reached(Stage.CAPTURE, upload)
    for step in PIPELINE.steps:
        if not last.includes(step.stage):
            break
        context.observer.stage_started(step.stage)
        start = time.perf_counter()
        reached = _reach(step, reached.value, context, last)
        finish_stage(step.stage, time.perf_counter() - start, reached.value, context.observer)
    return reached


def finish_stage(stage: Stage, seconds: float, value: object, observer: JobObserver) -> None:
    """Tell an observer that a stage has finished, and show it the module; optimize shows its own."""
    observer.stage_finished(stage, seconds)
    if isinstance(value, Translated | Tuned):
        observer.snapshot(stage, stage.value, stage.value, seconds, value.module)


def _blamed(failure: JobError, error: Exception) -> JobError:
    """The failure with the line of an uploaded file that raised it, unless its detail names the file."""
    place = place_in_uploads(error)
    if not place or place.partition(",")[0] in failure.detail:
        return failure
    is_refusal = isinstance(error.__cause__, UntranslatableError)
    code = ErrorCode.EXTENSION_INVALID if failure.code in _OF_EXTENSIONS and not is_refusal else failure.code
    return JobError(code, f"{place}: {failure.detail}", failure.places)


def _reach(step: Step, value: Any, context: StageContext, last: Stage) -> Reached:
    try:
        return Reached(step.stage, step.run(value, context))
    except Exception as error:
        failure = _blamed(failure_of(step.failure, error), error)
        if step.stage is last is Stage.TRANSLATE and failure.code in FINDINGS:
            return Reached(step.stage, value, failure)
        _log.error("%s: %s", step.stage.value, failure.detail, exc_info=failure is not error)
        raise StageFailedError(step.stage, failure) from error
