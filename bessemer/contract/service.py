"""The service itself: readiness, workers, targets."""

from datetime import datetime

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.capability import Capability
from bessemer.contract.queue import QueueName, TaskKind
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import Preset


class RunningTask(Document):
    """What a worker has in hand."""

    kind: TaskKind
    id: str = Field(description="A compilation's id, or the digest of a model that is inspected.")
    began_at: datetime
    stage: Stage | None = Field(
        default=None, description="The stage that runs, or ran last; null before the first."
    )
    stage_began_at: datetime | None = None


class Worker(Document):
    """A worker that is alive."""

    id: str
    host: str
    processor: str
    mcpu: str
    cores: int
    versions: dict[str, str]
    sandbox: SandboxStatus
    queues: tuple[QueueName, ...] = Field(
        default=tuple(QueueName), description="It takes one task at a time from each."
    )
    running: tuple[RunningTask, ...] = Field(default=(), description="As of `seen_at`.")
    capability: Capability = Field(
        default=Capability(), description="What its processor cannot run, and hence not measure."
    )
    seen_at: datetime


class Readiness(Document):
    """``ready`` says that requests are taken; without a live worker they wait.

    ``database`` and ``store`` say whether each can be reached; where one cannot, the status is 503.
    """

    ready: bool
    database: bool
    store: bool
    workers: tuple[Worker, ...]
    warnings: tuple[str, ...] = ()


class WorkerList(Document):
    """The workers that are alive."""

    items: tuple[Worker, ...]


class TargetList(Document):
    """The presets that a request may name."""

    items: tuple[Preset, ...]
