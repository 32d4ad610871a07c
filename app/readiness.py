"""Readiness of the service, and warnings for its operator."""

from app.service import Service
from bessemer.contract.sandbox import SandboxMode
from bessemer.contract.service import LiveWorker, Readiness, Worker
from bessemer.store.errors import StoreError

NO_WORKER = "no live worker: compilations wait in the queue"


def readiness(service: Service) -> Readiness:
    """Check the database, the artifact store and the workers. Blocks."""
    database, workers = service.store.ping(), _workers(service)
    store = _artifacts_available(service)
    return Readiness(
        ready=database and store, database=database, store=store, workers=workers, warnings=warnings(workers)
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


def _workers(service: Service) -> tuple[LiveWorker, ...]:
    try:
        live = service.store.workers.live(service.settings.worker_liveness_seconds)
    except StoreError:
        return ()
    return tuple(map(brief, live))


def _artifacts_available(service: Service) -> bool:
    try:
        service.store.artifacts.ping()
    except StoreError:
        return False
    return True
