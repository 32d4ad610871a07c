"""The spans of a job and its stages. The supervisor times them itself, by the messages of the child."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from bessemer.contract.problem import Problem
from bessemer.contract.stage import Stage
from bessemer.telemetry.traces import Span, SpanKind, Tracer
from worker.protocol.observer import JobObserver


class JobTrace(JobObserver):
    """Traces one attempt at a job."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self.problem: Problem | None = None
        self._tracer = tracer
        self._span = span
        self._stage: Span | None = None

    def stage_started(self, stage: Stage) -> None:
        """Start the span of a stage."""
        self.end_stage("the next stage began")
        self._stage = self._tracer.start(stage.value, self._span.traceparent)

    def stage_finished(self, stage: Stage, seconds: float) -> None:
        """End the span of a stage."""
        self.end_stage(None)

    def end_stage(self, error: str | None) -> None:
        """End the span of the current stage, if any."""
        if self._stage is not None:
            self._stage.end(error)
        self._stage = None


@contextmanager
def traced_job(
    tracer: Tracer,
    parent: str | None,
    waited_since: datetime,
    attributes: dict[str, str | int],
    name: str = "job",
) -> Iterator[JobTrace]:
    """A span for one attempt at a job or an invocation; before the first, also one for the wait in the queue.

    Args:
        tracer: where spans go.
        parent: the traceparent of the request that submitted the job.
        waited_since: when that request arrived.
        attributes: the job's id, attempt and worker.
        name: the name of the attempt's span.
    """
    if attributes["bessemer.attempt"] == 1:
        tracer.start("queue", parent, attributes=attributes, began_at=waited_since).end()
    span = tracer.start(name, parent, SpanKind.CONSUMER, attributes)
    job = JobTrace(tracer, span)
    error: str | None = "interrupted"
    try:
        yield job
        error = job.problem.code.value if job.problem else None
    finally:
        job.end_stage(error)
        span.end(error)
