"""A worker takes only what it can do: its condition on the rows among which DBOS claims the next task.

A task's needs lie in its ``queue_partition_key``, which DBOS keeps through recovery and resumption and, on a
queue without limits per partition, does not look at. All tasks stay in one queue, so priority and order hold
across needs, and a worker's one slot per queue is one slot, whatever it can do.

DBOS has no public way to narrow a claim; ``_claim_gate`` is the method by which its own subclasses do. The
version is pinned, and the tests of the queue fail where the method is gone.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from dbos._sys_db import SystemDatabase

from bessemer.store.queue import CanTake


@contextmanager
def claiming_only(can_take: CanTake) -> Iterator[None]:
    """While the context lasts, this process claims what needs nothing, and what ``can_take`` allows."""

    def gate(
        self: SystemDatabase, queue_name: str, partition_key: str | None
    ) -> list[sa.ColumnElement[bool]]:
        needs = self.tables.workflow_status.c.queue_partition_key
        able = [waiting for waiting in self.get_queue_partitions(queue_name) if can_take(waiting)]
        return [sa.or_(needs.is_(None), needs.in_(able))]

    plain = SystemDatabase._claim_gate
    SystemDatabase._claim_gate = gate  # type: ignore[method-assign]
    try:
        yield
    finally:
        SystemDatabase._claim_gate = plain  # type: ignore[method-assign]
