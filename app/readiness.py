"""Readiness of the service, and warnings for its operator."""

from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage

from app.service import Service
from bessemer.contract.sandbox import SandboxMode
from bessemer.contract.service import LiveWorker, Readiness, Worker
from bessemer.figures.words import size
from bessemer.store.errors import StoreError

LEAST_FREE_BYTES = 1 << 30
NO_WORKER = "no live worker: compilations wait in the queue"


def readiness(service: Service) -> Readiness:
    """Check the database, the artifact store and the workers. Blocks.

    The check of the artifact store writes. Anyone may ask, so a successful write counts for a few seconds.
    A disk that is almost full is a warning: downloads, and deletions that free some space, still work.
    """
    database, workers = service.store.ping(), _workers(service)
    store = _artifacts_available(service)
    return Readiness(
        ready=database and store,
        database=database,
        store=store,
        workers=workers,
        warnings=(*_disk_warnings(service), *warnings(workers)),
    )


def brief(worker: Worker) -> LiveWorker:
    """A worker without its capability, which is a long document."""
    return LiveWorker(id=worker.id, host=worker.host, sandbox=worker.sandbox, seen_at=worker.seen_at)


def warnings(workers: tuple[LiveWorker, ...]) -> tuple[str, ...]:
    """The degraded conditions of a service with these workers."""
    if not workers:
        return (NO_WORKER,)
    return tuple(warning for worker in workers for warning in _warnings_of(worker))


def _warnings_of(worker: LiveWorker) -> tuple[str, ...]:
    mode, lost = worker.sandbox.mode, worker.sandbox.lost
    found = []
    if mode is not SandboxMode.REQUIRED:
        found.append(f"worker {worker.id}: the sandbox is {mode}: jobs may run without confinement")
    if lost:
        found.append(f"worker {worker.id}: missing sandbox layers: {', '.join(lost)}")
    return tuple(found)


def _disk_warnings(service: Service) -> Iterator[str]:
    free_bytes = min(map(_free_bytes, _folders(service)), default=LEAST_FREE_BYTES)
    if free_bytes < LEAST_FREE_BYTES:
        yield (
            f"the disk of the database or of the artifact store has {size(free_bytes)} left: uploads and "
            "compilations fail when it is full"
        )


def _folders(service: Service) -> Iterator[Path]:
    """The folders of the database and of the artifact store, unless they are elsewhere."""
    if service.store.artifacts.folder is not None:
        yield service.store.artifacts.folder
    if service.settings.database.get_backend_name() == "sqlite":
        yield service.settings.folder


def _free_bytes(folder: Path) -> int:
    try:
        return disk_usage(folder).free
    except OSError:
        return LEAST_FREE_BYTES  # it is unknown, and `store` says that the folder is away


def _workers(service: Service) -> tuple[LiveWorker, ...]:
    try:
        live = service.store.workers.live(service.settings.worker_liveness_seconds)
    except StoreError:
        return ()
    return tuple(map(brief, live))


def _artifacts_available(service: Service) -> bool:
    try:
        service.recent_store_write.ensure(service.store.artifacts.ping)
    except StoreError:
        return False
    return True
