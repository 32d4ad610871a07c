"""The queue on DBOS: a task is a workflow whose id is the task's key."""

from dbos import DBOSClient, EnqueueOptions
from sqlalchemy.engine import URL

from bessemer.store.database import mapped_errors
from bessemer.store.dbos_engine import VERSION, open_client, prepare_engine
from bessemer.store.queue import QUEUES, Queue, QueueName, Task
from bessemer.store.settings import StoreSettings

_IN_HAND = "PENDING"


class DbosQueue:
    """Asks for tasks. Implements ``Queue``."""

    def __init__(self, url: URL) -> None:
        self._client: DBOSClient = open_client(url)

    def enqueue(self, task: Task) -> None:
        """Ask for a task; asking again, also after it was handled, changes nothing.

        Raises:
            StoreUnavailableError: the engine's database cannot be reached.
        """
        options = EnqueueOptions(
            workflow_name=task.kind.value,
            queue_name=QUEUES[task.kind].value,
            workflow_id=task.key,
            app_version=VERSION,
        )
        with mapped_errors():
            self._client.enqueue(options, task.id)

    def hand_over(self, worker_id: str) -> int:
        """Put back what a worker had in hand, so that any worker can take it; only for one that runs no more.

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


def open_queue(settings: StoreSettings) -> Queue:
    """The queue of a store, its schema made where it is missing.

    Raises:
        StoreUnavailableError: the engine's database cannot be reached.
    """
    prepare_engine(settings.engine)
    return DbosQueue(settings.engine)
