"""The service itself: readiness, workers, targets."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.capability import Capability, Needs, lacks
from bessemer.contract.queue import QueueName, TaskKind
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import Preset

A_LIVE_WORKER = "a live worker: none has been heard of lately"


class RunningTask(Document):
    """What a worker has in hand."""

    kind: TaskKind = Field(description="What `id` is of.")
    id: str = Field(description="A compilation's or an invocation's, or the digest of a model to inspect.")
    began_at: datetime = Field(description="When the worker took it, by the worker's clock.")
    stage: Stage | None = Field(
        default=None,
        description="The stage that runs, or ran last; null before the first, and of all but compilations.",
    )
    stage_began_at: datetime | None = Field(
        default=None, description="By the worker's clock; null where `stage` is."
    )


class LiveWorker(Document):
    """A worker that is alive, as far as it makes the service ready."""

    id: str = Field(description="The same after a restart in the same work folder.")
    host: str = Field(description="The machine's own name, or the container's.")
    sandbox: SandboxStatus = Field(description="As a job at its start found it.")
    seen_at: datetime = Field(description="When it last said so, by the database's clock.")


class Worker(LiveWorker):
    """A worker that is alive, and what it can do."""

    processor: str = Field(description="The model of the processor, such as `AMD EPYC 9R14`.")
    mcpu: str = Field(description="LLVM's name of the processor, such as `znver4`: what `host` stands for.")
    cores: int = Field(description="Threads that jobs use where their request names none.")
    limit_seconds: float | None = Field(
        default=None, description="How long a compilation may run; null where the worker does not say."
    )
    versions: dict[str, str] = Field(description="Of Python and the packages on which libraries depend.")
    queues: tuple[QueueName, ...] = Field(
        default=tuple(QueueName), description="It takes one task at a time from each."
    )
    running: tuple[RunningTask, ...] = Field(default=(), description="As of `seen_at`.")
    capability: Capability = Field(
        default=Capability(), description="What its processor cannot run, and hence not measure."
    )


class Readiness(Document):
    """``ready`` says that requests are taken; without a live worker they wait.

    ``database`` and ``store`` say whether each can be reached; where one cannot, the status is 503.
    """

    ready: bool = Field(description="Whether both can be reached.")
    database: bool = Field(description="Whether it answers.")
    store: bool = Field(description="Whether the artifact store can be written.")
    workers: tuple[LiveWorker, ...] = Field(
        description="Those that are alive; none where the database is away. `/v1/workers` says more of each."
    )
    warnings: tuple[str, ...] = Field(
        default=(), description="What its operator should know, in words; requests are taken all the same."
    )


class WorkerList(Document):
    """The workers that are alive."""

    items: tuple[Worker, ...] = Field(description="In the order of their ids.")


class TargetList(Document):
    """The targets that a request may name, whether or not a live worker runs their code."""

    items: tuple[Preset, ...] = Field(description="The presets.")
    processors: dict[str, tuple[str, ...]] = Field(
        default={},
        description="LLVM's names of processors, by the level of x86-64 that they reach. Each is a name for "
        "a target.",
    )


def takers_of(needs: Needs | None, queue: QueueName, workers: Iterable[Worker]) -> tuple[Worker, ...]:
    """The workers that can take a job."""
    return tuple(
        worker for worker in workers if queue in worker.queues and not lacks(worker.capability, needs)
    )


def missing(needs: Needs | None, queue: QueueName, workers: Sequence[Worker]) -> str | None:
    """What keeps live workers from taking a job; None if one can."""
    if not workers:
        return A_LIVE_WORKER
    lacking = {
        f"{worker.id} ({worker.mcpu})": lacks(worker.capability, needs)
        for worker in workers
        if queue in worker.queues
    }
    if any(not each for each in lacking.values()):
        return None
    return f"a worker whose processor runs code for {needs}: {_grouped(lacking)}"


def _grouped(lacking: Mapping[str, Sequence[str]]) -> str:
    """What each worker lacks; workers that lack the same share one clause."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, instructions in lacking.items():
        names.setdefault(tuple(instructions), []).append(name)
    return "; ".join(
        f"{_shown(alike)} {'lack' if len(alike) > 1 else 'lacks'} {_shown(instructions)}"
        for instructions, alike in names.items()
    )


def _shown(words: Sequence[str], most: int = 6) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more
