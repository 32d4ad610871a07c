"""A worker takes only what it can do: its condition on the rows among which DBOS claims the next task.

A task's needs lie in its ``queue_partition_key``, which DBOS keeps through recovery and resumption and, on a
queue without limits per partition, does not look at. All tasks stay in one queue, so priority and order hold
across needs, and a worker's one slot per queue is one slot, whatever it can do.

DBOS has no public way to narrow a claim; ``_claim_gate`` and ``dequeue_scopes`` are the methods by which its
own subclasses do. The version is pinned, and the tests of the queue fail where the methods are gone.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from dbos._sys_db import SystemDatabase, WorkflowStatusString

from bessemer.store.queue_port import CanTake


@contextmanager
def claiming_only(can_take: CanTake) -> Iterator[None]:
    """While the context lasts, this process claims what needs nothing, and what ``can_take`` allows.

    Where nothing waits it claims nothing: ten looks a second in each queue cost an idle worker far less.
    """

    def gate(
        self: SystemDatabase, queue_name: str, partition_key: str | None
    ) -> list[sa.ColumnElement[bool]]:
        needs = self.tables.workflow_status.c.queue_partition_key
        able = [waiting for waiting in self.get_queue_partitions(queue_name) if can_take(waiting)]
        return [sa.or_(needs.is_(None), needs.in_(able))]

    def scopes(self: SystemDatabase, queue_name: str) -> list[str | None]:
        return plain_scopes(self, queue_name) if _anything_waits(self, queue_name) else []

    plain_gate, plain_scopes = SystemDatabase._claim_gate, SystemDatabase.dequeue_scopes
    SystemDatabase._claim_gate = gate  # type: ignore[method-assign]
    SystemDatabase.dequeue_scopes = scopes  # type: ignore[method-assign]
    try:
        yield
    finally:
        SystemDatabase._claim_gate = plain_gate  # type: ignore[method-assign]
        SystemDatabase.dequeue_scopes = plain_scopes  # type: ignore[method-assign]


def _anything_waits(database: SystemDatabase, queue_name: str) -> bool:
    tasks = database.tables.workflow_status
    waiting = sa.select(tasks.c.queue_name).where(
        tasks.c.queue_name == queue_name,
        tasks.c.status == WorkflowStatusString.ENQUEUED.value,
        database._in_flight_status_prover(),
    )
    with database.engine.connect() as connection:
        return connection.execute(waiting.limit(1)).first() is not None
