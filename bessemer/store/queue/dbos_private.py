"""Every use of DBOS's private interface. The DBOS version is pinned; a test names each attribute used here.

Private names are used where the public interface has no equivalent:

* listing keys alone: ``DBOSClient.list_workflows`` reads whole rows, and thousands of tasks may wait;
* deleting with a condition: ``DBOSClient.delete_workflows`` would also delete a task requeued just before;
* claiming only some tasks of a queue, which DBOS's own subclasses do by overriding the methods used here:
  DBOS orders a queue by priority and age, not by tenant.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from dbos import DBOSClient, WorkflowStatusString
from dbos._sys_db import SystemDatabase

from bessemer.contract.access import Tenant
from bessemer.contract.tenant_turns import Turns, next_tenant
from bessemer.store.queue_port import CanTake, QueueName, split_partition

POLLING_SECONDS = 0.1
RETRY_SECONDS = 1.0
STOP_SECONDS = 10.0
LOOKS_PER_CONNECTION = 100
"""After this many looks, the pool replaces a connection whose server has stopped being the primary."""

log = logging.getLogger(__name__)

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


TURNS = sa.Table(
    "tenant_turns",
    sa.MetaData(),
    sa.Column("queue", sa.String(64), primary_key=True),
    sa.Column("tenant", sa.String(64), primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
)
"""The number of each tenant's last turn in a queue. The row without a tenant counts the queue's turns."""

_TAKE_TURN = sa.text(
    "INSERT INTO tenant_turns (queue, tenant, number) VALUES (:queue, '', 1) "
    "ON CONFLICT (queue, tenant) DO UPDATE SET number = tenant_turns.number + 1 RETURNING number"
)
_NOTE_TURN = sa.text(
    "INSERT INTO tenant_turns (queue, tenant, number) VALUES (:queue, :tenant, :number) "
    "ON CONFLICT (queue, tenant) DO UPDATE SET number = excluded.number"
)
END_IF_IDLE = "SET LOCAL idle_in_transaction_session_timeout = '10s'"


def read_turns(client: DBOSClient, queue_name: str) -> Turns:
    """The turns in a queue."""
    with client._sys_db.engine.connect() as connection:
        return _read_turns(client._sys_db, connection, queue_name)


class QueueWatch:
    """Checks ten times a second which queues have queued tasks: one query for all, on one connection.

    On SQLite, a check reads only the file's version while no other connection has changed the file.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._with_tasks: frozenset[str] = frozenset()
        self._thread: threading.Thread | None = None

    def wait(self, database: SystemDatabase, queue_name: str) -> bool:
        """Wait until a queue has queued tasks; False if ``stop`` was called. The first call starts it."""
        with self._changed:
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(
                    target=self._run, args=(database,), name="queue-watch", daemon=True
                )
                self._thread.start()
            self._changed.wait_for(lambda: queue_name in self._with_tasks or self._stopping.is_set())
            return not self._stopping.is_set()

    def stop(self) -> None:
        """End every ``wait``, now and later, and close the connection. Blocks."""
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def _run(self, database: SystemDatabase) -> None:
        while not self._stopping.is_set():
            try:
                with database.engine.connect() as connection:
                    self._look(database, connection)
            except Exception as error:
                log.warning("cannot look for queued tasks: %s", str(error).partition("\n")[0])
                self._stopping.wait(RETRY_SECONDS)

    def _look(self, database: SystemDatabase, connection: sa.Connection) -> None:
        query = sa.select(*(_has_queued(database, name).label(name) for name in QueueName))
        file = connection.connection.driver_connection if connection.dialect.name == "sqlite" else None
        if file is None:
            connection.execution_options(isolation_level="AUTOCOMMIT")
        seen = None
        for _ in range(LOOKS_PER_CONNECTION):
            version = None if file is None else file.execute("PRAGMA data_version").fetchone()
            if version is None or version != seen:
                found = connection.execute(query).one()._mapping
                with self._changed:
                    self._with_tasks = frozenset(name for name in QueueName if found[name])
                    self._changed.notify_all()
                seen = version
            if self._stopping.wait(POLLING_SECONDS):
                return


@contextmanager
def claiming_in_turn(can_take: CanTake, most_running: Callable[[Tenant], int | None]) -> Iterator[QueueWatch]:
    """Inside the context, this process claims the first task of the tenant whose turn it is.

    Only tasks without needs count, and tasks whose needs the process can meet. ``turns`` has the order.

    A task's tenant and needs are its ``queue_partition_key``, which DBOS keeps when it recovers or resumes a
    workflow, and ignores on a queue without limits per partition. All tasks stay in one queue, so a worker's
    one slot per queue stays one slot.

    The claims of one queue run one after the other, so that each sees what the others have claimed: each
    begins by counting the queue's turns in its own transaction, which locks that row on PostgreSQL and the
    file on SQLite.

    DBOS's thread of a queue waits while no task is queued, and polls while it cannot take a queued one.

    Yields:
        The watch that these threads wait for. ``stop`` it before DBOS, which waits for the threads.
    """
    claim = threading.local()
    watch = QueueWatch()

    @contextmanager
    def begin(self: SystemDatabase, isolation: str | None) -> Iterator[sa.Connection]:
        with plain_begin(self, isolation) as claim.connection:
            yield claim.connection

    def gate(
        self: SystemDatabase, queue_name: str, partition_key: str | None
    ) -> list[sa.ColumnElement[bool]]:
        connection: sa.Connection = claim.connection
        if _choose(self, connection, queue_name, can_take, most_running) is None:
            return [sa.false()]
        if connection.dialect.name == "postgresql":  # a suspended process must not block the others' claims
            connection.exec_driver_sql(END_IF_IDLE)
        number = connection.execute(_TAKE_TURN, {"queue": queue_name}).scalar_one()
        chosen = _choose(self, connection, queue_name, can_take, most_running)
        if chosen is None:
            return [sa.false()]
        tenant, partitions = chosen
        connection.execute(_NOTE_TURN, {"queue": queue_name, "tenant": tenant, "number": number})
        first = _first_task(self, connection, queue_name, partitions)
        return [self.tables.workflow_status.c.workflow_uuid == first]

    def scopes(self: SystemDatabase, queue_name: str) -> list[str | None]:
        is_ours = queue_name in tuple(QueueName)  # DBOS also polls a queue of its own, which stays empty
        return plain_scopes(self, queue_name) if is_ours and watch.wait(self, queue_name) else []

    plain_begin = SystemDatabase._begin
    plain_gate, plain_scopes = SystemDatabase._claim_gate, SystemDatabase.dequeue_scopes
    SystemDatabase._begin = begin  # type: ignore[method-assign]
    SystemDatabase._claim_gate = gate  # type: ignore[method-assign]
    SystemDatabase.dequeue_scopes = scopes  # type: ignore[method-assign]
    try:
        yield watch
    finally:
        SystemDatabase._begin = plain_begin  # type: ignore[method-assign]
        SystemDatabase._claim_gate = plain_gate  # type: ignore[method-assign]
        SystemDatabase.dequeue_scopes = plain_scopes  # type: ignore[method-assign]


def _choose(
    database: SystemDatabase,
    connection: sa.Connection,
    queue_name: str,
    can_take: CanTake,
    most_running: Callable[[Tenant], int | None],
) -> tuple[Tenant, list[str]] | None:
    """The tenant whose turn it is, and the partitions of its tasks that this process can do."""
    waiting: dict[Tenant, list[str]] = {}
    for key in database.get_queue_partitions(queue_name):
        tenant, needs = split_partition(key)
        if needs is None or can_take(QueueName(queue_name), tenant, needs):
            waiting.setdefault(tenant, []).append(key)
    turns = _read_turns(database, connection, queue_name)
    chosen = next_tenant(turns.standing(tenant, most_running(tenant)) for tenant in waiting)
    return None if chosen is None else (chosen, waiting[chosen])


def _read_turns(database: SystemDatabase, connection: sa.Connection, queue_name: str) -> Turns:
    columns = database.tables.workflow_status.c
    in_flight = sa.select(columns.queue_partition_key).where(*_with_status(database, queue_name, PENDING))
    running = Counter(split_partition(key)[0] for key in connection.execute(in_flight).scalars())
    served = sa.select(TURNS.c.tenant, TURNS.c.number).where(TURNS.c.queue == queue_name)
    return Turns(running, {row.tenant: row.number for row in connection.execute(served)})


def _first_task(
    database: SystemDatabase, connection: sa.Connection, queue_name: str, partitions: Sequence[str]
) -> str | None:
    """The key of the first queued task of the partitions: one index lookup for each, whatever its length.

    Tasks of equal priority are taken in the order of their rows. DBOS's ``created_at`` has whole seconds on
    SQLite, so the row's number breaks ties there.
    """
    columns = database.tables.workflow_status.c
    order: list[sa.ColumnElement[Any]] = [columns.priority, columns.created_at]
    if connection.dialect.name == "sqlite":
        order.append(sa.literal_column("workflow_status.rowid"))
    heads = []
    for key in partitions:
        queued = sa.select(*order, columns.workflow_uuid).where(
            *_with_status(database, queue_name, ENQUEUED), columns.queue_partition_key == key
        )
        head = connection.execute(queued.order_by(*order).limit(1)).first()
        if head is not None:
            heads.append(tuple(head))
    return min(heads)[-1] if heads else None


def _with_status(
    database: SystemDatabase, queue_name: str, status: str
) -> tuple[sa.ColumnElement[bool], ...]:
    tasks = database.tables.workflow_status.c
    return (tasks.queue_name == queue_name, tasks.status == status, database._in_flight_status_prover())


def _has_queued(database: SystemDatabase, queue_name: str) -> sa.ColumnElement[bool]:
    return sa.exists().where(*_with_status(database, queue_name, ENQUEUED))
