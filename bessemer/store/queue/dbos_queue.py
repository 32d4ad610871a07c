"""The queue on DBOS: a task is a workflow whose id is the task's key."""

import logging
import time
from collections.abc import Collection, Mapping

import sqlalchemy as sa
from dbos import DBOSClient, EnqueueOptions
from dbos._error import DBOSException, DBOSNonExistentWorkflowError
from sqlalchemy.engine import URL

from bessemer.store.database import mapped_errors
from bessemer.store.queue.dbos_engine import (
    APPLICATION,
    VERSION,
    engine_priority,
    open_client,
    prepare_engine,
)
from bessemer.store.queue_port import QUEUES, Queue, QueueName, Task
from bessemer.store.settings import StoreSettings

BATCH = 500
log = logging.getLogger(__name__)

_IN_HAND = "PENDING"
_GOING_ON = (_IN_HAND, "ENQUEUED", "DELAYED")
_LITERAL_IN_HAND: sa.ColumnClause[str] = sa.literal_column(f"'{_IN_HAND}'")
_IN_FLIGHT: list[sa.ColumnClause[str]] = [sa.literal_column("'ENQUEUED'"), _LITERAL_IN_HAND]
"""As literals, and in this order: only so does SQLite see that DBOS's indexes of them will do."""


class DbosQueue:
    """Asks for tasks. Implements ``Queue``."""

    def __init__(self, url: URL) -> None:
        self._client: DBOSClient = open_client(url)

    def enqueue(self, task: Task) -> None:
        """Ask for a task; asking again changes nothing, also after it was handled, until it is forgotten.

        Raises:
            StoreUnavailableError: the engine's database cannot be reached.
        """
        with mapped_errors():
            self._enqueue(task)

    def going_on(self) -> frozenset[str]:
        """The keys of the tasks that wait or are in a worker's hand, which the database makes one text of.

        Raises:
            StoreUnavailableError: the engine's database cannot be reached.
        """
        database = self._client._sys_db
        workflows = database.tables.workflow_status.c
        keys = sa.select(sa.func.aggregate_strings(workflows.workflow_uuid, " "))
        with mapped_errors(), database.engine.connect() as connection:
            text: str | None = connection.execute(keys.where(workflows.status.in_(_IN_FLIGHT))).scalar()
        return frozenset((text or "").split())

    def revive(self, tasks: Collection[Task]) -> tuple[Task, ...]:
        """Ask anew for those of the tasks that neither wait nor are in a worker's hand.

        Of two callers at once, one revives: the other finds the workflow waiting.

        Returns:
            The tasks that wait again.

        Raises:
            StoreUnavailableError: the engine's database cannot be reached.
        """
        asked = tuple(tasks)
        revived: list[Task] = []
        with mapped_errors():
            for start in range(0, len(asked), BATCH):
                batch = asked[start : start + BATCH]
                states = self._states(batch)
                ended = [task for task in batch if states.get(task.key) not in _GOING_ON]
                for task in ended:
                    (self._rewind if task.key in states else self._enqueue)(task)
                revived += ended
        return tuple(revived)

    def forget_ended(self, older_than_seconds: float) -> int:
        """Delete some of the workflows that ended so long ago, never one that waits or is in hand.

        In one statement with its condition, which DBOS's own deletion by id is not: one that is revived
        meanwhile stays.

        Returns:
            How many there were; 0 at the end.

        Raises:
            StoreUnavailableError: the engine's database cannot be reached.
        """
        database = self._client._sys_db
        tables, workflows = database.tables, database.tables.workflow_status.c
        before_ms = int((time.time() - older_than_seconds) * 1000)
        ended = sa.and_(workflows.status.not_in(_GOING_ON), workflows.completed_at < before_ms)
        some = sa.select(workflows.workflow_uuid).where(ended, workflows.application_name == APPLICATION)
        statement = (
            sa.delete(tables.workflow_status)
            .where(workflows.workflow_uuid.in_(some.limit(BATCH)), ended)
            .returning(workflows.workflow_uuid)
        )
        with mapped_errors(), database.engine.begin() as connection:
            ids = connection.execute(statement).scalars().all()
            for table in (tables.workflow_input, tables.workflow_output, tables.operation_outputs):
                connection.execute(sa.delete(table).where(table.c.workflow_uuid.in_(ids)))
        return len(ids)

    def holders(self) -> frozenset[str]:
        """The ids of the workers that have tasks in hand, as far as the queue knows.

        Raises:
            StoreUnavailableError: the engine's database cannot be reached.
        """
        database = self._client._sys_db
        workflows = database.tables.workflow_status.c
        names = [name.value for name in QueueName]
        held = sa.and_(workflows.status == _LITERAL_IN_HAND, workflows.queue_name.in_(names))
        holders = sa.select(workflows.executor_id).where(held, workflows.executor_id.is_not(None)).distinct()
        with mapped_errors(), database.engine.connect() as connection:
            return frozenset(connection.execute(holders).scalars())

    def hand_over(self, worker_id: str) -> tuple[Task, ...]:
        """Put back what a worker has in hand, so that any worker can take it; for one that is lost.

        Returns:
            The tasks that went back, each by kind and id alone.

        Raises:
            StoreUnavailableError: the engine's database cannot be reached.
        """
        tasks: list[Task] = []
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
        )
        if task.needs is not None:
            options["queue_partition_key"] = task.needs
        self._client.enqueue(options, task.id)

    def _states(self, tasks: Collection[Task]) -> Mapping[str, str]:
        """The states of those tasks' workflows that there are. DBOS's own list would read them whole."""
        database = self._client._sys_db
        workflows = database.tables.workflow_status.c
        query = sa.select(workflows.workflow_uuid, workflows.status).where(
            workflows.workflow_uuid.in_([task.key for task in tasks])
        )
        with database.engine.connect() as connection:
            return {row.workflow_uuid: row.status for row in connection.execute(query)}

    def _rewind(self, task: Task) -> None:
        try:
            self._client.rewind_workflow(
                task.key, queue_name=QUEUES[task.kind].value, queue_partition_key=task.needs
            )
        except DBOSNonExistentWorkflowError:  # it was forgotten meanwhile
            self._enqueue(task)
        except DBOSException:
            log.debug("somebody else has revived %s", task.key)


def open_queue(settings: StoreSettings) -> Queue:
    """The queue of a store, its schema made where it is missing.

    Raises:
        StoreUnavailableError: the engine's database cannot be reached.
    """
    prepare_engine(settings.engine)
    return DbosQueue(settings.engine)
