"""The life of every row that a worker handles: compilations, inspections of models, invocations.

```
 submit          start             finish
───────▶ queued ───────▶ running ─────────▶ succeeded, failed, cancelled
            │            │  ▲  │                        ▲
            │            └──┘  │                        │
            │            start │                        │
            │          (again) │                        │
            └──────────────────┴────────────────────────┘
                        request_cancel
```

A model being inspected is in one state, ``inspecting``, whether it is queued or running. It ends as ``ready``
or ``rejected``, and cannot be cancelled.

A running row is *in flight* while ``worker`` is set. ``hand_back`` clears it. Each ``start`` begins a new
attempt; an attempt that was still in flight counts as lost, and is fenced out: all its later moves raise
``FencedError``. A cancel ends a row at once unless a live worker has it in flight: then it asks the worker
to stop.

Every move is a compare-and-set in one transaction. On a compilation, it also records an event.
"""

import uuid
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import sqlalchemy as sa

from bessemer.contract.access import Tenant
from bessemer.contract.base import now
from bessemer.contract.job import EventType, JobState
from bessemer.contract.model import ModelState
from bessemer.store.database import Database
from bessemer.store.errors import FencedError
from bessemer.store.queue_port import Task, TaskKind, task_key
from bessemer.store.rows.tables import EVENTS, INVOCATIONS, JOBS, MODELS, WORKERS


@dataclass(frozen=True)
class Attempt:
    """A worker's hold on a row, until another attempt begins or the row is final.

    Attributes:
        number: counts the attempts at the row, from 1.
        tenant: the owner of the row.
        incarnation: random: a row that is deleted and submitted again under its id has other attempts of the
            same numbers.
    """

    number: int
    tenant: Tenant
    incarnation: str


@dataclass(frozen=True)
class Lifecycle:
    """What differs between the kinds of rows, and the statements that follow from it.

    Attributes:
        table: the rows.
        key: the column that identifies a row; unique over all tenants.
        queued: the state of a row that waits for a worker.
        running: the state of a row that was started; the same as ``queued`` for inspections.
        kind: the kind of a row's task.
        priority: the priority of a row's task.
        needs: what a row's task needs of a worker.
        at_start: values that a new attempt resets.
        at_end: values that a final row resets.
        has_events: whether moves record events, numbered by the row's ``last_seq``.
    """

    table: sa.Table
    key: sa.Column[str]
    queued: str
    running: str
    kind: sa.ColumnElement[str]
    priority: sa.ColumnElement[int] = field(default_factory=lambda: sa.literal_column("0"))
    needs: sa.ColumnElement[str] = field(default_factory=lambda: sa.literal_column("NULL"))
    at_start: Mapping[str, Any] = field(default_factory=dict)
    at_end: Mapping[str, Any] = field(default_factory=dict)
    has_events: bool = False

    @property
    def cancellable(self) -> bool:
        """Whether users can cancel these rows."""
        return "cancel_requested" in self.table.c

    @property
    def tasks(self) -> sa.Select[str, str, int, str, str]:
        """Select the columns that ``read_tasks`` turns into a ``Task``."""
        return sa.select(
            self.kind.label("kind"),
            self.key.label("id"),
            self.priority.label("priority"),
            self.needs.label("needs"),
            self.table.c.tenant,
        )

    @property
    def in_progress(self) -> sa.ColumnElement[bool]:
        """Whether a row is not final."""
        return self.table.c.state.in_([*{self.queued: None, self.running: None}])

    @property
    def in_flight(self) -> sa.ColumnElement[bool]:
        """Whether a worker has a row, alive or not."""
        return sa.and_(self.table.c.state == self.running, self.table.c.worker.is_not(None))

    @property
    def unattended(self) -> sa.ColumnElement[bool]:
        """Whether a row is in progress, and no known worker has it in flight."""
        worker = self.table.c.worker
        return sa.and_(self.in_progress, sa.or_(worker.is_(None), worker.not_in(sa.select(WORKERS.c.id))))

    @property
    def stop_requested(self) -> sa.ColumnElement[bool]:
        """Whether the user has cancelled a running row."""
        if not self.cancellable:
            return sa.false()
        return sa.and_(self.table.c.state == self.running, self.table.c.cancel_requested)

    def named(self, row_id: str) -> sa.ColumnElement[bool]:
        """Whether a row has this key."""
        return self.key == row_id

    def owned(self, row_id: str, attempt: Attempt) -> sa.ColumnElement[bool]:
        """Whether this attempt may still write to the row."""
        columns = self.table.c
        is_latest = columns.incarnation == attempt.incarnation
        return sa.and_(self.named(row_id), is_latest, columns.state == self.running)

    def ended(self, state: str) -> dict[str, Any]:
        """The values of a row that ends in ``state``."""
        finished = {"finished_at": now()} if "finished_at" in self.table.c else {}
        return {**self.at_end, **finished, "state": state}

    def update(
        self, connection: sa.Connection, condition: sa.ColumnElement[bool], values: Mapping[str, Any]
    ) -> sa.Row[Any] | None:
        """Change the row that meets a condition; None if none does.

        The row's lock keeps the numbers of its events without gap or repeat.
        """
        columns = self.table.c
        returned = [columns.tenant, columns.attempt, columns.lost_attempts]
        if self.has_events:
            values = {**values, "last_seq": columns.last_seq + 1}
            returned.append(columns.last_seq)
        statement = sa.update(self.table).where(condition).values(values).returning(*returned)
        return connection.execute(statement).one_or_none()

    def record(
        self, connection: sa.Connection, row_id: str, seq: int, event: str, data: Mapping[str, Any]
    ) -> None:
        """Insert an event with the number that ``update`` gave it."""
        values = {"job": row_id, "seq": seq, "type": event, "at": now(), "data": dict(data)}
        connection.execute(sa.insert(EVENTS).values(values))

    def read_tasks(
        self, connection: sa.Connection, *conditions: sa.ColumnElement[bool], besides: Container[str] = ()
    ) -> tuple[Task, ...]:
        """The tasks of the rows that meet the conditions, oldest first, without the keys in ``besides``."""
        query = self.tasks.where(*conditions).order_by(self.table.c.created_at)
        return tuple(
            Task(TaskKind(row.kind), row.id, row.priority, row.needs, row.tenant)
            for row in connection.execute(query)
            if task_key(row.kind, row.id) not in besides
        )

    def move(
        self,
        connection: sa.Connection,
        row_id: str,
        condition: sa.ColumnElement[bool],
        values: Mapping[str, Any],
        event: str,
        data: Mapping[str, Any],
    ) -> bool:
        """Change a row if a condition holds, and record the event; returns whether it held."""
        row = self.update(connection, sa.and_(self.named(row_id), condition), values)
        if row is not None and self.has_events:
            self.record(connection, row_id, row.last_seq, event, data)
        return row is not None

    def cancel(self, connection: sa.Connection, row_id: str, condition: sa.ColumnElement[bool]) -> bool:
        """End a row as cancelled if a condition holds; returns whether it did."""
        cancelled = JobState.CANCELLED.value
        return self.move(connection, row_id, condition, self.ended(cancelled), cancelled, {})


JOB_LIFECYCLE = Lifecycle(
    table=JOBS,
    key=JOBS.c.id,
    queued=JobState.QUEUED.value,
    running=JobState.RUNNING.value,
    kind=JOBS.c.kind,
    priority=JOBS.c.priority,
    needs=JOBS.c.needs,
    at_start={"stage": None, "progress": None, "sandbox": None, "stages": []},
    at_end={"progress": None},
    has_events=True,
)
INSPECTION_LIFECYCLE = Lifecycle(
    table=MODELS,
    key=MODELS.c.id,
    queued=ModelState.INSPECTING.value,
    running=ModelState.INSPECTING.value,
    kind=sa.literal_column(f"'{TaskKind.INSPECT.value}'"),
)
INVOCATION_LIFECYCLE = Lifecycle(
    table=INVOCATIONS,
    key=INVOCATIONS.c.id,
    queued=JobState.QUEUED.value,
    running=JobState.RUNNING.value,
    kind=sa.literal_column(f"'{TaskKind.INVOKE.value}'"),
    needs=INVOCATIONS.c.needs,
)


class Rows:
    """Moves rows along their lifecycle, whichever tenant they belong to.

    Each method is one transaction. It raises ``StoreUnavailableError`` if the database cannot be reached, and
    ``FencedError`` if it takes an attempt that no longer owns its row.
    """

    lifecycle: ClassVar[Lifecycle]

    def __init__(self, database: Database) -> None:
        self._database = database

    # for the app

    def mark_enqueued(self, row_id: str) -> None:
        """Note that the queue has the row's task."""
        with self._database.write() as connection:
            self._set(connection, self.lifecycle.named(row_id), {"enqueued_at": now()})

    def unenqueued(self, older_than_seconds: float) -> tuple[Task, ...]:
        """Tasks of queued rows that never reached the queue, oldest first."""
        columns = self.lifecycle.table.c
        before = now() - timedelta(seconds=older_than_seconds)
        return self._tasks(
            columns.state == self.lifecycle.queued,
            columns.enqueued_at.is_(None),
            columns.created_at <= before,
        )

    def enqueued(self, older_than_seconds: float, besides: Container[str] = ()) -> tuple[Task, ...]:
        """Tasks of rows in progress that the queue got at least this long ago, oldest first.

        Args:
            older_than_seconds: how long ago.
            besides: keys of tasks to leave out, possibly thousands.
        """
        before = now() - timedelta(seconds=older_than_seconds)
        enqueued_at = self.lifecycle.table.c.enqueued_at
        return self._tasks(self.lifecycle.in_progress, enqueued_at <= before, besides=besides)

    # for workers

    def start(self, row_id: str, worker_id: str) -> Attempt | None:
        """Begin an attempt; an earlier attempt that is still in flight counts as lost.

        Returns:
            The attempt. None if the row is final or unknown, or if it was to be cancelled: then it is
            cancelled now.
        """
        life, columns, incarnation = self.lifecycle, self.lifecycle.table.c, uuid.uuid4().hex
        values = {
            **life.at_start,
            "state": life.running,
            "attempt": columns.attempt + 1,
            "lost_attempts": columns.lost_attempts + sa.case((life.in_flight, 1), else_=0),
            "worker": worker_id,
            "incarnation": incarnation,
        }
        if "started_at" in columns:
            values["started_at"] = sa.func.coalesce(columns.started_at, now())
        takeable = sa.and_(life.named(row_id), life.in_progress, sa.not_(life.stop_requested))
        with self._database.write() as connection:
            row = life.update(connection, takeable, values)
            if row is None:
                if life.cancellable:
                    life.cancel(connection, row_id, life.stop_requested)
                return None
            if life.has_events:
                data = {"attempt": row.attempt, "worker": worker_id, "lost_attempts": row.lost_attempts}
                life.record(connection, row_id, row.last_seq, EventType.STARTED.value, data)
            return Attempt(row.attempt, row.tenant, incarnation)

    def hand_back(self, row_id: str, attempt: Attempt) -> None:
        """Let go of a row: the attempt does not count as lost. A row that was to be cancelled ends."""
        owned = self.lifecycle.owned(row_id, attempt)
        with self._database.write() as connection:
            if not self._set(connection, owned, {"worker": None}):
                raise FencedError(row_id, attempt.number)
            if self.lifecycle.cancellable:
                self.lifecycle.cancel(connection, row_id, sa.and_(owned, self.lifecycle.stop_requested))

    def lost_attempts(self, row_id: str, attempt: Attempt) -> int:
        """The number of lost attempts before this one."""
        return int(self._owned_value(row_id, attempt, "lost_attempts"))

    @contextmanager
    def _moving(
        self, row_id: str, attempt: Attempt, values: Mapping[str, Any], event: str, data: Mapping[str, Any]
    ) -> Iterator[sa.Connection]:
        """Change a row that an attempt owns; the body may add to the transaction."""
        owned = self.lifecycle.owned(row_id, attempt)
        with self._database.write() as connection:
            if not self.lifecycle.move(connection, row_id, owned, values, event, data):
                raise FencedError(row_id, attempt.number)
            yield connection

    def _finish(self, row_id: str, attempt: Attempt, state: str, values: Mapping[str, Any]) -> None:
        with self._moving(row_id, attempt, {**values, **self.lifecycle.ended(state)}, state, {}):
            pass

    def _set(
        self, connection: sa.Connection, condition: sa.ColumnElement[bool], values: Mapping[str, Any]
    ) -> bool:
        """Change columns without a move; returns whether a row met the condition."""
        statement = sa.update(self.lifecycle.table).where(condition).values(values)
        return connection.execute(statement).rowcount > 0

    def _value(self, condition: sa.ColumnElement[bool], column: str) -> Any:
        query = sa.select(self.lifecycle.table.c[column]).where(condition)
        with self._database.read() as connection:
            return connection.execute(query).scalar_one_or_none()

    def _owned_value(self, row_id: str, attempt: Attempt, column: str) -> Any:
        value = self._value(self.lifecycle.owned(row_id, attempt), column)
        if value is None:
            raise FencedError(row_id, attempt.number)
        return value

    def _tasks(self, *conditions: sa.ColumnElement[bool], besides: Container[str] = ()) -> tuple[Task, ...]:
        with self._database.read() as connection:
            return self.lifecycle.read_tasks(connection, *conditions, besides=besides)


class CancellableRows(Rows):
    """Rows that users can cancel, and that remember the trace of the request that submitted them."""

    def cancel_requested(self, row_id: str, attempt: Attempt) -> bool:
        """Whether the user wants the row stopped."""
        return bool(self._owned_value(row_id, attempt, "cancel_requested"))

    def cancel_finished(self, row_id: str, attempt: Attempt) -> None:
        """End a row as cancelled, after its processes have ended."""
        self._finish(row_id, attempt, JobState.CANCELLED.value, {})

    def traceparent(self, row_id: str) -> str | None:
        """The trace of the request that submitted the row."""
        value: str | None = self._value(self.lifecycle.named(row_id), "traceparent")
        return value


def cancel_requested_of(connection: sa.Connection, worker_id: str) -> None:
    """End the rows that a lost worker was asked to stop: no other worker would do it."""
    for life in (JOB_LIFECYCLE, INVOCATION_LIFECYCLE):
        left = sa.and_(life.table.c.worker == worker_id, life.stop_requested)
        for row_id in connection.execute(sa.select(life.key).where(left)).scalars().all():
            life.cancel(connection, row_id, left)
