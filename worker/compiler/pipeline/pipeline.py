"""The pipeline: which stages there are, in which order, and what happens around each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bessemer.contract.problem import ErrorCode, Problem
from bessemer.contract.stage import Stage
from worker.compiler.pipeline.benchmark import benchmark
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.capture import capture
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.package import package
from worker.compiler.pipeline.translate import translate
from worker.compiler.pipeline.tune import tune
from worker.compiler.pipeline.verify import verify
from worker.compiler.values import StageContext, Translated, Tuned, Upload
from worker.errors import JobError, failure_of
from worker.protocol.observer import JobObserver

PIPELINE: tuple[tuple[Stage, Callable[[Any, StageContext], Any]], ...] = (
    (Stage.CAPTURE, capture),
    (Stage.TRANSLATE, translate),
    (Stage.OPTIMIZE, optimize),
    (Stage.TUNE, tune),
    (Stage.BUILD, build),
    (Stage.VERIFY, verify),
    (Stage.BENCHMARK, benchmark),
    (Stage.PACKAGE, package),
)

FAILURES = MappingProxyType(
    {
        Stage.CAPTURE: ErrorCode.CAPTURE_FAILED,
        Stage.TRANSLATE: ErrorCode.TRANSLATE_FAILED,
        Stage.OPTIMIZE: ErrorCode.OPTIMIZE_FAILED,
        Stage.TUNE: ErrorCode.TUNE_FAILED,
        Stage.BUILD: ErrorCode.BUILD_FAILED,
        Stage.VERIFY: ErrorCode.VERIFY_CRASHED,
        Stage.BENCHMARK: ErrorCode.BENCHMARK_FAILED,
        Stage.PACKAGE: ErrorCode.PACKAGE_FAILED,
    }
)
"""What an exception that no stage expected becomes."""

FINDINGS = frozenset(
    {
        ErrorCode.OPERATOR_UNSUPPORTED,
        ErrorCode.TRANSLATE_FAILED,
        ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED,
    }
)
"""What a preflight is asked for: a model that does not translate answers it, and is no failure of it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reached:
    """How far a run came: the last stage, what it returned, and what a preflight found in its way.

    Where there is a ``finding``, the stage gave nothing, and ``value`` is its predecessor's.
    """

    stage: Stage
    value: Any
    finding: JobError | None = None


class StageFailedError(JobError):
    """A job ended in a stage."""

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
        StageFailedError: a stage failed; whatever it raised is mapped to a stable code.
    """
    last = upload.request.stop_after or Stage.PACKAGE
    reached = Reached(Stage.CAPTURE, upload)
    for stage, run in PIPELINE:
        if not last.includes(stage):
            break
        context.observer.stage_started(stage)
        start = time.perf_counter()
        reached = _reach(stage, run, reached.value, context, last)
        finish_stage(stage, time.perf_counter() - start, reached.value, context.observer)
    return reached


def finish_stage(stage: Stage, seconds: float, value: object, observer: JobObserver) -> None:
    """Tell an observer that a stage has finished, and show it the module; optimize shows its own."""
    observer.stage_finished(stage, seconds)
    if isinstance(value, Translated | Tuned):
        observer.snapshot(stage, stage.value, stage.value, seconds, value.module)


def _reach(
    stage: Stage, run: Callable[[Any, StageContext], Any], value: Any, context: StageContext, last: Stage
) -> Reached:
    try:
        return Reached(stage, run(value, context))
    except Exception as error:
        failure = failure_of(FAILURES[stage], error)
        if stage is last is Stage.TRANSLATE and failure.code in FINDINGS:
            return Reached(stage, value, failure)
        _log.error("%s: %s", stage.value, failure.detail, exc_info=failure is not error)
        raise StageFailedError(stage, failure) from error
