"""The queue on DBOS: a task is a workflow whose id is the task's key."""

import logging
from collections.abc import Collection

from dbos import DBOSClient, EnqueueOptions, WorkflowStatus, error
from sqlalchemy.engine import URL

from bessemer.contract.tenant_turns import Turns
from bessemer.store.database import mapped_errors
from bessemer.store.queue import dbos_private
from bessemer.store.queue.dbos_engine import (
    APPLICATION,
    VERSION,
    engine_priority,
    open_client,
    prepare_engine,
)
from bessemer.store.queue.dbos_private import DELAYED, ENQUEUED, PENDING
from bessemer.store.queue_port import QUEUES, Queue, QueueName, Task
from bessemer.store.settings import StoreSettings

BATCH = 500
log = logging.getLogger(__name__)


class DbosQueue:
    """Implements ``Queue``, which documents the methods."""

    def __init__(self, url: URL) -> None:
        self._client: DBOSClient = open_client(url)

    def enqueue(self, task: Task) -> None:
        """Put a task in the queue."""
        with mapped_errors():
            self._enqueue(task)

    def in_progress(self) -> frozenset[str]:
        """The keys of the tasks that are queued or in flight."""
        with mapped_errors():
            return dbos_private.in_progress_keys(self._client)

    def requeue(self, tasks: Collection[Task]) -> tuple[Task, ...]:
        """Queue again the tasks that are neither queued nor in flight.

        If two callers do this at once, one of them finds the workflow queued.
        """
        all_tasks = tuple(tasks)
        requeued: list[Task] = []
        with mapped_errors():
            for start in range(0, len(all_tasks), BATCH):
                batch = all_tasks[start : start + BATCH]
                statuses = self._statuses([task.key for task in batch])
                for task in batch:
                    status = statuses.get(task.key)
                    if status in (PENDING, ENQUEUED, DELAYED):
                        continue
                    if status is None:
                        self._enqueue(task)
                    else:
                        self._rewind(task)
                    requeued.append(task)
        return tuple(requeued)

    def turns(self, name: QueueName) -> Turns:
        """The turns of the tenants in a queue."""
        with mapped_errors():
            return dbos_private.read_turns(self._client, name.value)

    def delete_ended(self, older_than_seconds: float) -> int:
        """Delete some of the tasks that ended at least this long ago; returns how many."""
        with mapped_errors():
            return dbos_private.delete_ended(self._client, APPLICATION, older_than_seconds, BATCH)

    def workers_with_tasks(self) -> frozenset[str]:
        """The ids of the workers with tasks in flight."""
        with mapped_errors():
            in_flight = self._list(status=PENDING, queue_name=[name.value for name in QueueName])
        return frozenset(workflow.executor_id for workflow in in_flight if workflow.executor_id is not None)

    def hand_back(self, worker_id: str) -> tuple[Task, ...]:
        """Queue a worker's tasks in flight again, for any worker."""
        tasks: list[Task] = []
        with mapped_errors():
            for name in QueueName:
                in_flight = self._list(status=PENDING, executor_id=worker_id, queue_name=name.value)
                ids = [workflow.workflow_id for workflow in in_flight]
                if ids:
                    self._client.resume_workflows(ids, queue_name=name.value)
                tasks += map(Task.of_key, ids)
        return tuple(tasks)

    def close(self) -> None:
        """Close every connection."""
        self._client.destroy()

    def _enqueue(self, task: Task) -> None:
        options = EnqueueOptions(
            workflow_name=task.kind.value,
            queue_name=QUEUES[task.kind].value,
            workflow_id=task.key,
            app_version=VERSION,
            priority=engine_priority(task.priority),
            queue_partition_key=task.partition,
        )
        self._client.enqueue(options, task.id)

    def _statuses(self, keys: list[str]) -> dict[str, str]:
        """The statuses of the workflows that exist."""
        return {workflow.workflow_id: workflow.status for workflow in self._list(workflow_ids=keys)}

    def _list(
        self,
        *,
        workflow_ids: list[str] | None = None,
        status: str | None = None,
        executor_id: str | None = None,
        queue_name: str | list[str] | None = None,
    ) -> list[WorkflowStatus]:
        return self._client.list_workflows(
            workflow_ids=workflow_ids,
            status=status,
            executor_id=executor_id,
            queue_name=queue_name,
            load_input=False,
            load_output=False,
        )

    def _rewind(self, task: Task) -> None:
        try:
            self._client.rewind_workflow(
                task.key, queue_name=QUEUES[task.kind].value, queue_partition_key=task.partition
            )
        except error.DBOSNonExistentWorkflowError:  # it was deleted in between
            self._enqueue(task)
        except error.DBOSException:
            log.debug("another process has requeued %s", task.key)


def open_queue(settings: StoreSettings) -> Queue:
    """The queue of a store; creates its schema if missing.

    Raises:
        StoreUnavailableError: the engine's database cannot be reached.
    """
    prepare_engine(settings.engine)
    return DbosQueue(settings.engine)
