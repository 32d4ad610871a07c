"""The service: readiness, workers, and which workers can run a compilation."""

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime

from pydantic import Field

from bessemer.contract.base import Digest, Document
from bessemer.contract.capability import NO_CUDA, Capability, Needs, lacks, no_gpu
from bessemer.contract.identity import WorkerKind
from bessemer.contract.offers import Offers
from bessemer.contract.queue import QueueName, TaskKind
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage

A_LIVE_WORKER = "a live worker: none has sent a heartbeat lately"


class RunningTask(Document):
    """A task that a worker runs."""

    kind: TaskKind = Field(description="The kind of the task.")
    id: str = Field(description="The id of the compilation, the invocation or the inspection.")
    began_at: datetime = Field(description="When the worker started it, by the worker's clock.")
    stage: Stage | None = Field(
        default=None,
        description="The running stage, or the last one that ran; null before the first, and for all but "
        "compilations.",
    )
    stage_began_at: datetime | None = Field(
        default=None, description="When the stage began, by the worker's clock; null if `stage` is null."
    )


class LiveWorker(Document):
    """The part of a live worker's description that matters for readiness."""

    id: str = Field(description="The worker's id. It survives a restart in the same work directory.")
    host: str = Field(description="The host name of the machine or container.")
    sandbox: SandboxStatus = Field(description="The sandbox, as a test job found it when the worker started.")
    seen_at: datetime = Field(description="Time of its last heartbeat, by the database's clock.")


class Worker(LiveWorker):
    """A live worker and its abilities."""

    processor: str = Field(description="The model of the processor, such as `AMD EPYC 9R14`.")
    mcpu: str = Field(
        description="LLVM's name of the processor, such as `znver4`. The target `host` means this."
    )
    cores: int = Field(description="Default number of threads for jobs.")
    limit_seconds: float | None = Field(
        default=None, description="Time limit for a compilation; null if the worker reports none."
    )
    versions: dict[str, str] = Field(
        description="Versions of Python and of the packages that libraries depend on."
    )
    compiler: Digest | None = Field(
        default=None,
        description="The SHA-256 of the compiler's code and of all installed packages with their versions; "
        "null if the worker reports none.",
    )
    queues: tuple[QueueName, ...] = Field(
        default=tuple(QueueName), description="The queues that it serves, one task at a time from each."
    )
    running: tuple[RunningTask, ...] = Field(
        default=(), description="The tasks that it was running at `seen_at`."
    )
    capability: Capability = Field(
        default=Capability(),
        description="What its processor cannot run, and therefore cannot verify or measure.",
    )
    offers: Offers | None = Field(
        default=None, description="What requests can name on it; null if the worker reports none."
    )

    @property
    def kind(self) -> WorkerKind | None:
        """What makes it interchangeable with other workers; None if it reports too little."""
        if self.compiler is None:
            return None
        gpus = tuple(gpu.name for gpu in self.capability.gpus)
        return WorkerKind(self.compiler, self.mcpu, self.processor, self.cores, gpus)


class Readiness(Document):
    """Whether the server accepts requests. Without a live worker, they wait in the queue.

    The status is 503 if the database or the artifact store is unreachable.
    """

    ready: bool = Field(description="Whether the database and the artifact store are both reachable.")
    database: bool = Field(description="Whether the database answers.")
    store: bool = Field(description="Whether the server can write to the artifact store.")
    workers: tuple[LiveWorker, ...] = Field(
        description="The live workers; empty if the database is unreachable. `/v1/workers` has the details."
    )
    warnings: tuple[str, ...] = Field(
        default=(), description="Warnings for the operator, in words. The server accepts requests anyway."
    )


class WorkerList(Document):
    """The live workers."""

    items: tuple[Worker, ...] = Field(description="The live workers, sorted by id.")


def takers_of(
    needs: Needs | None, queue: QueueName, workers: Iterable[Worker], on_devices: Container[str] = ()
) -> tuple[Worker, ...]:
    """The workers that can do a job, given the platforms of the devices that it may use."""
    platforms = usable_platforms(queue, on_devices)
    return tuple(
        worker
        for worker in workers
        if queue in worker.queues and not lacks(worker.capability, needs, platforms)
    )


def usable_platforms(queue: QueueName, on_devices: Container[str]) -> Container[str]:
    """The platforms of devices that help with a queue's jobs, by verifying what a worker compiles."""
    return on_devices if queue is QueueName.COMPILE else ()


def missing(
    needs: Needs | None, queue: QueueName, workers: Sequence[Worker], on_devices: Container[str] = ()
) -> str | None:
    """What live workers and devices lack to do a job; None if one can do it."""
    if not workers:
        return A_LIVE_WORKER
    platforms = usable_platforms(queue, on_devices)
    lacking = {
        f"{worker.id} ({worker.mcpu})": lacks(worker.capability, needs, platforms)
        for worker in workers
        if queue in worker.queues
    }
    if not lacking:
        return f"a worker that takes tasks of the queue '{queue}': no live worker does"
    if any(not each for each in lacking.values()):
        return None
    device = f", or a device of the platform {needs.platform}" if needs and _by_device(needs, lacking) else ""
    return f"{_wanted(needs)}{device}: {_grouped(lacking)}"


def _wanted(needs: Needs | None) -> str:
    if needs is None or not needs.gpus:
        return f"a worker whose processor can run code for {needs}"
    gpu = f" and {no_gpu(needs.gpus)}" if needs.runs else ""
    return f"a worker with {NO_CUDA}{gpu}"


def _by_device(needs: Needs, lacking: Mapping[str, Sequence[str]]) -> bool:
    """Whether all that a worker lacks is the platform."""
    return any(tuple(each) == (needs.platform,) for each in lacking.values())


def _grouped(lacking: Mapping[str, Sequence[str]]) -> str:
    """What each worker lacks, with one clause for workers that lack the same."""
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
