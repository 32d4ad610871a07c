"""Every use of DBOS's private interface. The DBOS version is pinned; a test names each attribute used here.

Private names are used where the public interface has no equivalent:

* listing keys alone: ``DBOSClient.list_workflows`` reads whole rows, and thousands of tasks may wait;
* deleting with a condition: ``DBOSClient.delete_workflows`` would also delete a task requeued just before;
* claiming only some tasks of a queue, which DBOS's own subclasses do by overriding the methods used here.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from dbos import DBOSClient, WorkflowStatusString
from dbos._sys_db import SystemDatabase

PENDING, ENQUEUED, DELAYED = (
    status.value
    for status in (
        WorkflowStatusString.PENDING,
        WorkflowStatusString.ENQUEUED,
        WorkflowStatusString.DELAYED,
    )
)


def in_progress_keys(client: DBOSClient) -> frozenset[str]:
    """The keys of the tasks that are queued or in flight, which the database joins to one text."""
    database = client._sys_db
    workflows = database.tables.workflow_status.c
    statuses: list[sa.ColumnElement[Any]] = [
        sa.literal_column(f"'{status}'") for status in (ENQUEUED, PENDING)
    ]
    # with literals in this order, SQLite sees that DBOS's partial index applies
    keys = sa.select(sa.func.aggregate_strings(workflows.workflow_uuid, " ")).where(
        workflows.status.in_(statuses)
    )
    with database.engine.connect() as connection:
        text: str | None = connection.execute(keys).scalar()
    return frozenset((text or "").split())


def delete_ended(client: DBOSClient, application: str, older_than_seconds: float, limit: int) -> int:
    """Delete up to ``limit`` workflows of an application that ended before; returns how many."""
    database = client._sys_db
    tables, workflows = database.tables, database.tables.workflow_status.c
    before_ms = int((time.time() - older_than_seconds) * 1000)
    ended = sa.and_(workflows.status.not_in((PENDING, ENQUEUED, DELAYED)), workflows.completed_at < before_ms)
    some = sa.select(workflows.workflow_uuid).where(ended, workflows.application_name == application)
    statement = (
        sa.delete(tables.workflow_status)
        .where(workflows.workflow_uuid.in_(some.limit(limit)), ended)
        .returning(workflows.workflow_uuid)
    )
    with database.engine.begin() as connection:
        ids = connection.execute(statement).scalars().all()
        for table in (tables.workflow_input, tables.workflow_output, tables.operation_outputs):
            connection.execute(sa.delete(table).where(table.c.workflow_uuid.in_(ids)))
    return len(ids)


@contextmanager
def claiming_only(can_take: Callable[[str], bool]) -> Iterator[None]:
    """Inside the context, this process claims tasks without needs, and tasks whose needs it can meet.

    A task's needs are its ``queue_partition_key``, which DBOS keeps when it recovers or resumes a workflow,
    and ignores on a queue without limits per partition. All tasks stay in one queue, so priority and order
    hold across needs, and a worker's one slot per queue stays one slot.

    If no task is queued, nothing is claimed: an idle worker polls each queue ten times a second.
    """

    def gate(
        self: SystemDatabase, queue_name: str, partition_key: str | None
    ) -> list[sa.ColumnElement[bool]]:
        needs = self.tables.workflow_status.c.queue_partition_key
        able = [queued for queued in self.get_queue_partitions(queue_name) if can_take(queued)]
        return [sa.or_(needs.is_(None), needs.in_(able))]

    def scopes(self: SystemDatabase, queue_name: str) -> list[str | None]:
        return plain_scopes(self, queue_name) if _has_queued(self, queue_name) else []

    plain_gate, plain_scopes = SystemDatabase._claim_gate, SystemDatabase.dequeue_scopes
    SystemDatabase._claim_gate = gate  # type: ignore[method-assign]
    SystemDatabase.dequeue_scopes = scopes  # type: ignore[method-assign]
    try:
        yield
    finally:
        SystemDatabase._claim_gate = plain_gate  # type: ignore[method-assign]
        SystemDatabase.dequeue_scopes = plain_scopes  # type: ignore[method-assign]


def _has_queued(database: SystemDatabase, queue_name: str) -> bool:
    tasks = database.tables.workflow_status
    queued = sa.select(tasks.c.queue_name).where(
        tasks.c.queue_name == queue_name,
        tasks.c.status == ENQUEUED,
        database._in_flight_status_prover(),
    )
    with database.engine.connect() as connection:
        return connection.execute(queued.limit(1)).first() is not None
