"""The service object that every route uses. It also puts tasks in the queue."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from fastapi import Depends, Request

from app.event_broadcaster import EventBroadcaster
from app.identity.caller import Caller, CallerDep
from app.key_locks import KeyLocks
from app.observability.metrics import AppMetrics
from app.queue_position import QueuePositions
from app.recent_success import RecentSuccess
from app.settings import AppSettings
from bessemer.contract.access import Tenant
from bessemer.contract.base import Digest
from bessemer.contract.job import Compilation
from bessemer.contract.service import Worker
from bessemer.store.errors import StoreError
from bessemer.store.queue_port import Queue, Task
from bessemer.store.quotas import Quotas
from bessemer.store.store import Store, TenantStore

log = logging.getLogger(__name__)


class TenantTasks(Protocol):
    """Rows of a tenant that have tasks."""

    def task(self, name: str) -> Task | None:
        """A row's task; None if the tenant has no such row."""


@dataclass(frozen=True)
class Service:
    """The open store and queue of one app, for sweeps and the operator's routes.

    Attributes:
        id_secret: makes the ids of resources with an idempotency key unguessable.
        stopping: set when the server begins to stop.
        joins: lets one request at a time join the parts of a tenant's upload.
        recent_store_write: whether the artifact store took the readiness check's write a moment ago.
    """

    settings: AppSettings
    store: Store
    queue: Queue
    queue_positions: QueuePositions
    broadcaster: EventBroadcaster
    stopping: asyncio.Event
    metrics: AppMetrics
    id_secret: bytes
    quotas: Quotas
    joins: KeyLocks = field(default_factory=KeyLocks)
    recent_store_write: RecentSuccess = field(default_factory=RecentSuccess)

    def for_caller(self, caller: Caller) -> "TenantService":
        """The service as a caller's tenant sees it."""
        return TenantService(self.store.for_tenant(caller.tenant), self)

    def enqueue(self, task: Task) -> None:
        """Put a task in the queue, even if the queue has finished it before. Blocks.

        Raises:
            StoreError: the queue or the database cannot be reached.
        """
        self.queue.enqueue(task)
        self.queue.requeue((task,))  # a model is inspected again, or the id of a deleted row is used again
        self.store.rows(task.kind).mark_enqueued(task.id)


class TenantService:
    """The service as one tenant sees it: its own data, and what all tenants share.

    Attributes:
        data: the tenant's data; a route reaches no other.
    """

    def __init__(self, data: TenantStore, service: Service) -> None:
        self.data = data
        self.settings = service.settings
        self.metrics = service.metrics
        self.broadcaster = service.broadcaster
        self.stopping = service.stopping
        self.id_secret = service.id_secret
        self.quota = service.quotas.of(data.tenant)
        self._service = service

    def with_position(self, job: Compilation) -> Compilation:
        """The compilation, with its position if it is queued. Blocks. Raises as ``QueuePositions`` does."""
        return self._service.queue_positions.with_position(self.data.tenant, job)

    def joining(self, digest: Digest) -> AbstractAsyncContextManager[None]:
        """Let no other request of this process join the parts of an upload while the context lasts."""
        return self._service.joins.held(f"{self.data.tenant}/{digest}")

    def live_workers(self) -> tuple[Worker, ...]:
        """The live workers, which serve all tenants. Blocks.

        Raises:
            StoreUnavailableError: the database cannot be reached.
        """
        return self._service.store.workers.live(self.settings.worker_liveness_seconds)

    def bundle_chunks(self, owner: Tenant, digest: Digest) -> Iterator[bytes]:
        """The bytes of a bundle that a shared device of this tenant runs for another tenant. Blocks."""
        return self._service.store.for_tenant(owner).artifacts.stream(digest)

    def try_enqueue(self, rows: TenantTasks, name: str) -> None:
        """Put a row's task in the queue. If that fails, the sweeper does it later. Blocks."""
        try:
            task = rows.task(name)
            if task is not None:
                self._service.enqueue(task)
        except StoreError as error:
            log.warning("%s could not be enqueued; the sweeper will retry: %s", name, error)


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _tenant_service(request: Request, caller: CallerDep) -> TenantService:
    service: Service = request.app.state.service
    return service.for_caller(caller)


OperatorDep = Annotated[Service, Depends(_service)]
"""The whole service, for routes that return no tenant's data."""

ServiceDep = Annotated[TenantService, Depends(_tenant_service)]
"""The service as the caller's tenant sees it, for all other routes."""
