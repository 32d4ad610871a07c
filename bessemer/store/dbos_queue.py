"""The queue on DBOS: a task is a workflow whose id is the task's key, ``key:2`` where it was revived, …"""

from collections.abc import Collection, Sequence

import sqlalchemy as sa
from dbos import DBOSClient, EnqueueOptions
from sqlalchemy.engine import URL

from bessemer.store.database import mapped_errors
from bessemer.store.dbos_engine import VERSION, engine_priority, open_client, prepare_engine
from bessemer.store.queue import QUEUES, Queue, QueueName, Task
from bessemer.store.settings import StoreSettings

_IN_HAND = "PENDING"
_WAITING = ("ENQUEUED", "DELAYED")


class DbosQueue:
    """Asks for tasks. Implements ``Queue``."""

    def __init__(self, url: URL) -> None:
        self._client: DBOSClient = open_client(url)

    def enqueue(self, task: Task) -> None:
        """Ask for a task; asking again, also after it was handled, changes nothing.

        Raises:
            StoreUnavailableError: the engine's database cannot be reached.
        """
        with mapped_errors():
            self._enqueue(task, task.key)

    def revive(self, tasks: Collection[Task]) -> tuple[Task, ...]:
        """Ask anew for those of the tasks that neither wait nor are in a worker's hand.

        Two callers at once make one workflow: both count the same ones that have ended.

        Returns:
            The tasks that wait again.

        Raises:
            StoreUnavailableError: the engine's database cannot be reached.
        """
        if not tasks:
            return ()
        with mapped_errors():
            keys = {_key_of(workflow_id) for workflow_id in self._going_on()}
            ended = tuple(task for task in tasks if task.key not in keys)
            for task in ended:
                self._enqueue(task, self._next_id(task))
        return ended

    def hand_over(self, worker_id: str) -> int:
        """Put back what a worker has in hand, so that any worker can take it; for one that is lost.

        Returns:
            How many tasks went back.

        Raises:
            StoreUnavailableError: the engine's database cannot be reached.
        """
        count = 0
        with mapped_errors():
            for name in QueueName:
                stranded = self._client.list_workflows(
                    status=_IN_HAND,
                    executor_id=worker_id,
                    queue_name=name.value,
                    load_input=False,
                    load_output=False,
                )
                ids = [workflow.workflow_id for workflow in stranded]
                if ids:
                    self._client.resume_workflows(ids, queue_name=name.value)
                count += len(ids)
        return count

    def close(self) -> None:
        """Close every connection."""
        self._client.destroy()

    def _enqueue(self, task: Task, workflow_id: str) -> None:
        options = EnqueueOptions(
            workflow_name=task.kind.value,
            queue_name=QUEUES[task.kind].value,
            workflow_id=workflow_id,
            app_version=VERSION,
            priority=engine_priority(task.priority),
        )
        if task.needs is not None:
            options["queue_partition_key"] = task.needs
        self._client.enqueue(options, task.id)

    def _going_on(self) -> Sequence[str]:
        """The ids of what waits or is in hand. DBOS's own list would read whole workflows."""
        database = self._client._sys_db
        workflows = database.tables.workflow_status.c
        query = sa.select(workflows.workflow_uuid).where(
            workflows.queue_name.in_([name.value for name in QueueName]),
            workflows.status.in_([_IN_HAND, *_WAITING]),
        )
        with database.engine.connect() as connection:
            return connection.execute(query).scalars().all()

    def _next_id(self, task: Task) -> str:
        found = self._client.list_workflows(workflow_id_prefix=task.key, load_input=False, load_output=False)
        earlier = sum(_key_of(workflow.workflow_id) == task.key for workflow in found)
        return f"{task.key}:{earlier + 1}" if earlier else task.key


def _key_of(workflow_id: str) -> str:
    return ":".join(workflow_id.split(":")[:2])


def open_queue(settings: StoreSettings) -> Queue:
    """The queue of a store, its schema made where it is missing.

    Raises:
        StoreUnavailableError: the engine's database cannot be reached.
    """
    prepare_engine(settings.engine)
    return DbosQueue(settings.engine)
