"""Whether the service can take requests, and what its operator should know."""

from app.service import Service
from bessemer.contract.sandbox import SandboxMode
from bessemer.contract.service import LiveWorker, Readiness, Worker
from bessemer.store.errors import StoreError

NO_WORKER = "no worker is alive: compilations wait in the queue"


def readiness(service: Service) -> Readiness:
    """Ask the database, the artifact store and the table of workers. Blocks."""
    database, workers = service.store.ping(), _workers(service)
    store = _artifacts_answer(service)
    return Readiness(
        ready=database and store, database=database, store=store, workers=workers, warnings=warnings(workers)
    )


def brief(worker: Worker) -> LiveWorker:
    """Without what it can do, which is long."""
    return LiveWorker(id=worker.id, host=worker.host, sandbox=worker.sandbox, seen_at=worker.seen_at)


def warnings(workers: tuple[LiveWorker, ...]) -> tuple[str, ...]:
    """What is short of the service's promises, in words."""
    if not workers:
        return (NO_WORKER,)
    return tuple(warning for worker in workers for warning in _warnings_of(worker))


def _warnings_of(worker: LiveWorker) -> tuple[str, ...]:
    mode, lost = worker.sandbox.mode, worker.sandbox.lost
    found = []
    if mode is not SandboxMode.REQUIRED:
        found.append(f"worker {worker.id}: the sandbox is {mode}: jobs may run without confinement")
    if lost:
        found.append(f"worker {worker.id}: sandbox layers that do not hold: {', '.join(lost)}")
    return tuple(found)


def _workers(service: Service) -> tuple[LiveWorker, ...]:
    try:
        live = service.store.workers.live(service.settings.worker_liveness_seconds)
    except StoreError:
        return ()
    return tuple(map(brief, live))


def _artifacts_answer(service: Service) -> bool:
    try:
        service.store.artifacts.ping()
    except StoreError:
        return False
    return True
