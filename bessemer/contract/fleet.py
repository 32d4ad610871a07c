"""Which live workers can take a compilation, and what they lack if none can."""

from collections.abc import Iterable, Mapping, Sequence

from bessemer.contract.capability import Needs, lacks
from bessemer.contract.queue import QueueName
from bessemer.contract.service import Worker

A_LIVE_WORKER = "a live worker: none has been heard of lately"


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
