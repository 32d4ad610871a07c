"""The metrics of a worker."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from bessemer.contract.options import MAX_TRIALS
from bessemer.contract.problem import ErrorCode, Problem
from bessemer.contract.report import ModelEstimate
from bessemer.contract.stage import Stage
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.queue_port import PostponedError, Postponement, TaskKind
from bessemer.telemetry import metrics
from bessemer.telemetry.metrics import LossMetrics
from worker.protocol.observer import JobObserver
from worker.supervisor.usage import Usage

LIMITS = frozenset(code for code in ErrorCode if code.value.startswith("limit-")) | {ErrorCode.TIMEOUT}
OWN_FAULTS = (
    ErrorCode.INTERNAL,
    ErrorCode.WORKER_LOST,
    ErrorCode.WORKER_DISK_FULL,
    ErrorCode.CHILD_KILLED,
    ErrorCode.SANDBOX_INCOMPLETE,
)
"""Failures that neither the request nor the model caused; alerts use them."""
SUCCEEDED, FAILED, CANCELLED = "succeeded", "failed", "cancelled"
CACHED, MISSING = "cached", "missing"


class WorkerMetrics:
    """The metrics of one worker, in their own registry."""

    def __init__(self) -> None:
        self.registry = metrics.new_registry()
        self.zygote_restarts = metrics.ZYGOTE_RESTARTS.counter(self.registry)
        self.losses = LossMetrics(self.registry)
        self.candidates = metrics.CANDIDATES.counter(self.registry)
        self.stages = metrics.STAGE_DURATION.histogram(self.registry)
        self._objects = metrics.OBJECTS.counter(self.registry)
        self._tasks = metrics.TASKS.counter(self.registry)
        self._durations = metrics.TASK_DURATION.histogram(self.registry)
        self._in_progress = metrics.TASKS_IN_PROGRESS.gauge(self.registry)
        self._peak_memory = metrics.PEAK_MEMORY.histogram(self.registry)
        self._kills = metrics.SANDBOX_KILLS.counter(self.registry)
        self._postponed = metrics.ATTEMPTS_POSTPONED.counter(self.registry)
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Start at zero: Prometheus sees no increase in a counter that appears with its first event."""
        for kind in TaskKind:
            for why in Postponement:
                self._postponed.labels(kind, why)
            self._in_progress.labels(kind)
            self._tasks.labels(kind, SUCCEEDED, "")
            for code in OWN_FAULTS:
                self._tasks.labels(kind, FAILED, code)
        for limit in LIMITS:
            self._kills.labels(limit)
        for found in (CACHED, MISSING):
            self._objects.labels(found)

    @contextmanager
    def task(self, kind: TaskKind) -> Iterator[None]:
        """Count a task as in progress while the context lasts, time it, and count it if it is postponed."""
        with self._in_progress.labels(kind).track_inprogress(), self._durations.labels(kind).time():
            try:
                yield
            except PostponedError as error:
                self._postponed.labels(kind, error.why).inc()
                raise
            except StoreUnavailableError:
                self._postponed.labels(kind, Postponement.STORE_AWAY).inc()
                raise

    @contextmanager
    def job(self, records_memory: bool = True) -> Iterator["JobMeter"]:
        """Measure one run of a job, and record its peak memory at the end if ``records_memory``."""
        meter = JobMeter(self)
        try:
            yield meter
        finally:
            if records_memory and meter.peak_memory_bytes:
                self._peak_memory.observe(meter.peak_memory_bytes)

    def asked(self, cached: int, missing: int) -> None:
        """Count the objects that a compilation has asked the cache for."""
        self._objects.labels(CACHED).inc(cached)
        self._objects.labels(MISSING).inc(missing)

    def ended(self, kind: TaskKind, problem: Problem | None) -> None:
        """Count a task whose result was written; ``problem`` is None if it succeeded."""
        code = "" if problem is None else problem.code.value
        self._tasks.labels(kind, outcome(problem), code).inc()
        if problem is not None and problem.code in LIMITS:
            self._kills.labels(code).inc()


class JobMeter(JobObserver):
    """Measures one job by the supervisor's own clock: the times that a job reports cannot be trusted."""

    def __init__(self, counted: WorkerMetrics) -> None:
        self.peak_memory_bytes = 0
        self._counted = counted
        self._stage_began = time.monotonic()
        self._trials = 0

    def stage_started(self, stage: Stage) -> None:
        """Start the stage's clock."""
        self._stage_began = time.monotonic()

    def stage_finished(self, stage: Stage, seconds: float) -> None:
        """Record the stage's time."""
        self._counted.stages.labels(stage).observe(time.monotonic() - self._stage_began)

    def progress(
        self, stage: Stage, done: int, total: int, detail: str, estimate: ModelEstimate | None = None
    ) -> None:
        """Count the trials of tune."""
        if stage is Stage.TUNE and done > self._trials:
            trials = min(done, MAX_TRIALS)
            self._counted.candidates.inc(max(0, trials - self._trials))
            self._trials = trials

    def used(self, usage: Usage) -> None:
        """Track the peak memory."""
        self.peak_memory_bytes = max(self.peak_memory_bytes, usage.memory_bytes)


def outcome(problem: Problem | None) -> str:
    """The label for how a task ended."""
    if problem is None:
        return SUCCEEDED
    return CANCELLED if problem.code is ErrorCode.CANCELLED else FAILED
