"""``bessemer workers``: list live workers and their tasks."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from bessemer.cli.output import JsonOption, UrlOption, connected, print_result, table
from bessemer.cli.timeline import shown_ago, shown_duration
from bessemer.contract.base import now
from bessemer.contract.service import RunningTask, Worker, WorkerList

HEADINGS = ("worker", "host", "processor", "mcpu", "cores", "GPUs", "queues", "runs", "versions", "seen")
SHOWN_VERSIONS = {"bessemer": "bessemer", "torch": "torch", "apache-tvm": "tvm"}


def workers(json: JsonOption = False, url: UrlOption = None) -> None:
    """List live workers and their tasks."""
    with connected(url) as client:
        found = client.workers()
        print_result(found, table([*worker_rows(found, now())], HEADINGS, "no workers"), json)


def worker_rows(found: WorkerList, at: datetime) -> Iterator[tuple[str, ...]]:
    """The rows of the table; a worker with two running tasks has two."""
    for worker in found.items:
        first, *others = worker.running or (None,)
        yield (*_facts(worker), _running(first, at), _versions(worker), shown_ago(worker.seen_at, at))
        for task in others:
            yield (*("" for _ in _facts(worker)), _running(task, at), "", "")


def _facts(worker: Worker) -> tuple[str, ...]:
    queues = ", ".join(worker.queues)
    return worker.id, worker.host, worker.processor, worker.mcpu, str(worker.cores), _gpus(worker), queues


def _gpus(worker: Worker) -> str:
    """The GPUs, with how many there are of each kind."""
    kinds = Counter((gpu.name, gpu.arch, gpu.cuda) for gpu in worker.capability.gpus)
    return ", ".join(
        f"{'' if count == 1 else f'{count} x '}{name} ({arch}, CUDA {cuda})"
        for (name, arch, cuda), count in kinds.items()
    )


def _running(task: RunningTask | None, at: datetime) -> str:
    if task is None:
        return "idle"
    stage = f" {task.stage}" if task.stage else ""
    since = task.stage_began_at or task.began_at
    return f"{task.kind} {task.id[:32]}{stage} for {shown_duration((at - since).total_seconds())}"


def _versions(worker: Worker) -> str:
    return ", ".join(
        f"{shown} {worker.versions[name]}"
        for name, shown in SHOWN_VERSIONS.items()
        if name in worker.versions
    )
