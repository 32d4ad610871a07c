"""A job's span and those of its stages. The child sends nothing: the supervisor times what it says."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from bessemer.contract.problem import Problem
from bessemer.telemetry.traces import Span, SpanKind, Tracer
from worker.protocol.messages import Message, StageFinished, StageStarted
from worker.supervisor.usage import Usage


class JobTrace:
    """Looks on at one attempt at a job."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self.problem: Problem | None = None
        self._tracer = tracer
        self._span = span
        self._stage: Span | None = None

    def heard(self, message: Message) -> None:
        """Begin and end the spans of stages."""
        match message:
            case StageStarted(stage=stage):
                self.end_stage("the next stage began")
                self._stage = self._tracer.start(stage.value, self._span.traceparent)
            case StageFinished():
                self.end_stage(None)
            case _:
                pass

    def used(self, usage: Usage) -> None:
        """Nothing."""

    def end_stage(self, error: str | None) -> None:
        """End the span of the stage that runs, if one does."""
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
    """A span for one attempt at a job or an invocation, with one for the wait in the queue before the first.

    Args:
        tracer: where spans go.
        parent: the traceparent of the request that submitted the job.
        waited_since: when it did.
        attributes: the job's id, attempt and worker.
        name: of the attempt's span.
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
