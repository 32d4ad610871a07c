"""Tasks, their queues, and a compilation's position in a queue."""

from enum import StrEnum

from pydantic import Field

from bessemer.contract.base import Document, GrowingEnum
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage


class TaskKind(StrEnum):
    """The kind of a task."""

    COMPILE = "compile"
    PREFLIGHT = "preflight"
    INSPECT = "inspect"
    INVOKE = "invoke"


class QueueName(GrowingEnum):
    """The queues. A worker takes one task at a time from each, so long tuning never blocks quick tasks."""

    COMPILE = "compile"
    QUICK = "quick"


class Postponement(StrEnum):
    """Why an attempt is retried later, which costs the task nothing."""

    STORE_AWAY = "store-away"
    DISK_FULL = "disk-full"
    ZYGOTE_LOST = "zygote-lost"


class Loss(StrEnum):
    """Why an attempt was lost."""

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
    """The task kind of a request: a short preflight does not wait behind long compilations."""
    is_quick = request.stop_after is not None and Stage.TRANSLATE.includes(request.stop_after)
    return TaskKind.PREFLIGHT if is_quick else TaskKind.COMPILE


class QueuePlace(Document):
    """The position of a queued compilation among its tenant's. Higher priorities can still overtake it."""

    name: QueueName = Field(
        description="The queue: `quick` if the request stops after `translate` or earlier."
    )
    position: int = Field(description="Position among your tenant's queued compilations; 1 is next.")
    ahead: int = Field(description="Your tenant's queued compilations that the same workers will take first.")
    workers: int = Field(description="Number of live workers that can run it.")
    estimated_start_seconds: float | None = Field(
        description="Estimated time until it starts, given that workers take turns among the tenants "
        "that wait; null if nothing is known to estimate it from."
    )
    explanation: str = Field(description="The basis of the estimate, or why it is null, in words.")
    waiting_for: str | None = Field(
        description="What a worker would need to run it; null if a live worker can."
    )
