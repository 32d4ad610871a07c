"""What every route needs, and how tasks reach the queue."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from app.event_broadcaster import EventBroadcaster
from app.observability.metrics import AppMetrics
from app.queue_position import QueuePositions
from app.settings import AppSettings
from bessemer.contract.base import Digest, JobId
from bessemer.store.errors import StoreError
from bessemer.store.queue_port import Queue, Task, TaskKind
from bessemer.store.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Service:
    """The open store and queue of one app. ``stopping`` is set when the server begins to stop."""

    settings: AppSettings
    store: Store
    queue: Queue
    line: QueuePositions
    broadcaster: EventBroadcaster
    stopping: asyncio.Event
    metrics: AppMetrics

    def enqueue_compilation(self, job_id: JobId) -> None:
        """Hand a job to the workers. Blocks.

        Raises:
            StoreError: the queue or the database cannot be reached; the sweeper tries again.
        """
        task = self.store.waiting.task(job_id)
        if task is not None:
            self._ask_for(task)
            self.store.jobs.mark_enqueued(job_id)

    def enqueue_inspection(self, digest: Digest) -> None:
        """Hand a model's inspection, the first or another one, to the workers. Blocks.

        Raises:
            StoreError: the queue or the database cannot be reached; the sweeper tries again.
        """
        self._ask_for(Task(TaskKind.INSPECT, digest))
        self.store.models.mark_enqueued(digest)

    def enqueue_invocation(self, invocation_id: JobId) -> None:
        """Hand an invocation to the workers. Blocks.

        Raises:
            StoreError: the queue or the database cannot be reached; the sweeper tries again.
        """
        task = self.store.invocations.task(invocation_id)
        if task is not None:
            self._ask_for(task)
            self.store.invocations.mark_enqueued(invocation_id)

    def try_enqueue_invocation(self, invocation_id: JobId) -> None:
        """Like ``enqueue_invocation``; a failure is left to the sweeper, since the row is already kept."""
        try:
            self.enqueue_invocation(invocation_id)
        except StoreError as error:
            log.warning("invocation %s is not in the queue yet: %s", invocation_id, error)

    def try_enqueue_compilation(self, job_id: JobId) -> None:
        """Like ``enqueue_compilation``; a failure is left to the sweeper, since the row is already kept."""
        try:
            self.enqueue_compilation(job_id)
        except StoreError as error:
            log.warning("job %s is not in the queue yet: %s", job_id, error)

    def try_enqueue_inspection(self, digest: Digest) -> None:
        """Like ``enqueue_inspection``; a failure is left to the sweeper, since the row is already kept."""
        try:
            self.enqueue_inspection(digest)
        except StoreError as error:
            log.warning("the inspection of model %s is not in the queue yet: %s", digest, error)

    def _ask_for(self, task: Task) -> None:
        """The queue may be done with it: an inspection is made anew, a deleted row's id is used again."""
        self.queue.enqueue(task)
        self.queue.revive((task,))


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(_service)]
