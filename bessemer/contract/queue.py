"""What waits for a worker: kinds of tasks, the queues that they wait in, and a compilation's place in one."""

from enum import StrEnum

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage


class TaskKind(StrEnum):
    """What is to be done."""

    COMPILE = "compile"
    PREFLIGHT = "preflight"
    INSPECT = "inspect"
    INVOKE = "invoke"


class QueueName(StrEnum):
    """The queues; every worker takes one task at a time from each, so an hour's tuning starves nobody."""

    COMPILE = "compile"
    QUICK = "quick"


class Postponement(StrEnum):
    """Why an attempt is retried later, which costs the task nothing."""

    STORE_AWAY = "store-away"
    DISK_FULL = "disk-full"
    ZYGOTE_LOST = "zygote-lost"


class Loss(StrEnum):
    """Why an attempt came to nothing."""

    WORKER_LOST = "worker-lost"
    ZYGOTE_LOST = "zygote-lost"
    CHILD_KILLED = "child-killed"
    DISK_FULL = "disk-full"
    FENCED = "fenced"


QUEUES: dict[TaskKind, QueueName] = {
    TaskKind.COMPILE: QueueName.COMPILE,
    TaskKind.PREFLIGHT: QueueName.QUICK,
    TaskKind.INSPECT: QueueName.QUICK,
    TaskKind.INVOKE: QueueName.QUICK,
}


def job_kind(request: CompilationRequest) -> TaskKind:
    """A compilation that only looks at its model does not wait for those that search."""
    is_quick = request.stop_after is not None and Stage.TRANSLATE.includes(request.stop_after)
    return TaskKind.PREFLIGHT if is_quick else TaskKind.COMPILE


class QueuePlace(Document):
    """Where a queued compilation stands. It moves with the queue: what has a higher priority goes before."""

    name: QueueName = Field(description="`quick` where the request stops after `translate`, or before.")
    position: int = Field(description="1 is the next to be taken.")
    ahead: int = Field(description="Queued compilations that the same workers will take before.")
    workers: int = Field(description="Live workers that can take it.")
    estimated_start_seconds: float | None = Field(
        description="An estimate of the time until it starts; null where there is nothing to estimate from."
    )
    explanation: str = Field(description="What the estimate is made of, or why there is none, in words.")
    waiting_for: str | None = Field(
        description="What is missing before any worker can take it; null where one can."
    )
