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
from bessemer.store.errors import StoreError
from bessemer.store.queue_port import Queue, Task
from bessemer.store.rows.lifecycle import Rows
from bessemer.store.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Service:
    """The open store and queue of one app. ``stopping`` is set when the server begins to stop."""

    settings: AppSettings
    store: Store
    queue: Queue
    queue_positions: QueuePositions
    broadcaster: EventBroadcaster
    stopping: asyncio.Event
    metrics: AppMetrics

    def enqueue(self, task: Task) -> None:
        """Put a task in the queue, even if the queue has finished it before. Blocks.

        Raises:
            StoreError: the queue or the database cannot be reached.
        """
        self.queue.enqueue(task)
        self.queue.requeue((task,))  # a model is inspected again, or the id of a deleted row is used again
        self.store.rows(task.kind).mark_enqueued(task.id)

    def try_enqueue(self, rows: Rows, row_id: str) -> None:
        """Put a row's task in the queue. If that fails, the sweeper does it later. Blocks."""
        try:
            task = rows.task(row_id)
            if task is not None:
                self.enqueue(task)
        except StoreError as error:
            log.warning("%s is not in the queue yet: %s", row_id, error)


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(_service)]
