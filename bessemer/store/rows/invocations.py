"""Invocations: rows of their own, moved as jobs are, by a compare-and-set on ``(id, attempt)``."""

from collections.abc import Container, Mapping
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from bessemer.contract.base import DEFAULT_TENANT, Digest, JobId, now
from bessemer.contract.invocation import Invocation, InvocationPage
from bessemer.contract.job import Artifact, JobState
from bessemer.contract.problem import Problem
from bessemer.contract.report import Latency
from bessemer.contract.tensor import TensorSpec
from bessemer.store.database import Database
from bessemer.store.errors import FencedError, IdempotencyConflictError
from bessemer.store.queue_port import Task, TaskKind
from bessemer.store.rows.cancelling import asked_to_stop, cancel_invocations, ended, hold_worker, unattended
from bessemer.store.rows.paging import read_page
from bessemer.store.rows.prefixes import starts_with
from bessemer.store.rows.tables import INVOCATIONS
from bessemer.store.rows.transitions import counting_lost, going_on

_SHOWN_COLUMNS = tuple(INVOCATIONS.c[name] for name in Invocation.model_fields)


class Invocations:
    """Every method is one transaction and raises ``StoreUnavailableError`` where the database is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # what clients do

    def submit(
        self,
        invocation_id: JobId,
        compilation: JobId,
        inputs: Digest,
        inputs_bytes: int,
        runs: int,
        needs: str | None = None,
        tenant: str = DEFAULT_TENANT,
        traceparent: str | None = None,
    ) -> Invocation | None:
        """Insert a queued invocation; the same id with the same inputs gives the one that is there.

        Args:
            invocation_id: the invocation's.
            compilation: the compilation's, of which the library is to run.
            inputs: the stored inputs.
            inputs_bytes: their size.
            runs: how often to time the library.
            needs: what the library needs of a worker's processor, as ``contract.capability`` writes it.
            tenant: whose it is.
            traceparent: the trace to which it belongs, in W3C's form; that of the first submission stays.

        Returns:
            The invocation; None where there is no such compilation (any more).

        Raises:
            IdempotencyConflictError: the id is taken by another invocation.
        """
        wanted = {"compilation": compilation, "inputs": inputs, "runs": runs, "tenant": tenant}
        values = {
            **wanted,
            "id": invocation_id,
            "inputs_bytes": inputs_bytes,
            "needs": needs,
            "state": JobState.QUEUED.value,
            "attempt": 0,
            "outputs": [],
            "traceparent": traceparent,
            "created_at": now(),
        }
        try:
            with self._database.write() as connection:
                connection.execute(sa.insert(INVOCATIONS).values(values))
        except sa.exc.IntegrityError:
            self._require_same(invocation_id, wanted)
        return self.get(invocation_id)

    def get(self, invocation_id: JobId) -> Invocation | None:
        """An invocation, or None where there is none of that id."""
        query = sa.select(*_SHOWN_COLUMNS).where(INVOCATIONS.c.id == invocation_id)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _to_invocation(row)

    def starting(self, compilation: JobId, prefix: str, limit: int) -> tuple[JobId, ...]:
        """The ids of a compilation's invocations that start with ``prefix``, in order, at most ``limit``."""
        named = sa.and_(INVOCATIONS.c.compilation == compilation, starts_with(INVOCATIONS.c.id, prefix))
        query = sa.select(INVOCATIONS.c.id).where(named).order_by(INVOCATIONS.c.id).limit(limit)
        with self._database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def page(self, compilation: JobId, limit: int, cursor: str | None = None) -> InvocationPage:
        """A compilation's invocations, newest first.

        Raises:
            CursorInvalidError: ``cursor`` is not the ``next`` of an earlier page.
        """
        query = sa.select(*_SHOWN_COLUMNS).where(INVOCATIONS.c.compilation == compilation)
        key = (INVOCATIONS.c.created_at, INVOCATIONS.c.id)
        page = read_page(self._database, query, key, limit, cursor)
        return InvocationPage(items=tuple(map(_to_invocation, page.rows)), next=page.next)

    def request_cancel(self, invocation_id: JobId) -> Invocation | None:
        """Cancel an invocation at once that no live worker has in hand, ask others to stop, leave final ones.

        Returns:
            The invocation afterwards; None where there is none of that id.
        """
        named = INVOCATIONS.c.id == invocation_id
        with self._database.write() as connection:
            hold_worker(connection, INVOCATIONS, invocation_id)
            if not cancel_invocations(connection, sa.and_(named, unattended(INVOCATIONS))):
                asked = sa.update(INVOCATIONS).where(named, _RUNNING).values(cancel_requested=True)
                connection.execute(asked)
        return self.get(invocation_id)

    # what the queue is told

    def task(self, invocation_id: JobId) -> Task | None:
        """An invocation as the queue knows it; None where there is none of that id."""
        tasks = self._tasks(INVOCATIONS.c.id == invocation_id)
        return tasks[0] if tasks else None

    def mark_enqueued(self, invocation_id: JobId) -> None:
        """Note that the queue has the invocation."""
        with self._database.write() as connection:
            connection.execute(
                sa.update(INVOCATIONS).where(INVOCATIONS.c.id == invocation_id).values(enqueued_at=now())
            )

    def unenqueued(self, older_than_seconds: float) -> tuple[Task, ...]:
        """Queued invocations that no queue has, oldest first."""
        before = now() - timedelta(seconds=older_than_seconds)
        return self._tasks(
            INVOCATIONS.c.state == JobState.QUEUED.value,
            INVOCATIONS.c.enqueued_at.is_(None),
            INVOCATIONS.c.created_at <= before,
        )

    def enqueued(self, older_than_seconds: float, besides: Container[str] = ()) -> tuple[Task, ...]:
        """Invocations that are not final, and that the queue was given at least so long ago, oldest first.

        Args:
            older_than_seconds: how long ago.
            besides: keys of tasks to leave out.
        """
        before = now() - timedelta(seconds=older_than_seconds)
        tasks = self._tasks(going_on(INVOCATIONS), INVOCATIONS.c.enqueued_at <= before)
        return tuple(task for task in tasks if task.key not in besides)

    # what the worker that owns an attempt does

    def start(self, invocation_id: JobId, worker_id: str) -> int | None:
        """Take an invocation; a worker that has it in hand is fenced out, and its attempt counts as lost.

        Returns:
            The attempt, counted from 1; None where it is final or unknown, or was to be cancelled: it is now.
        """
        named = INVOCATIONS.c.id == invocation_id
        statement = (
            sa.update(INVOCATIONS)
            .where(named, going_on(INVOCATIONS), sa.not_(asked_to_stop(INVOCATIONS)))
            .values(
                state=JobState.RUNNING.value,
                attempt=INVOCATIONS.c.attempt + 1,
                lost_attempts=counting_lost(INVOCATIONS, _IN_HAND),
                worker=worker_id,
                started_at=sa.func.coalesce(INVOCATIONS.c.started_at, now()),
            )
            .returning(INVOCATIONS.c.attempt)
        )
        with self._database.write() as connection:
            attempt: int | None = connection.execute(statement).scalar_one_or_none()
            if attempt is None:
                cancel_invocations(connection, sa.and_(named, asked_to_stop(INVOCATIONS)))
        return attempt

    def hand_back(self, invocation_id: JobId, attempt: int) -> None:
        """Let go of an invocation that could not be done just now: the attempt does not count as lost.

        One that was to be cancelled ends so.

        Raises:
            FencedError: the attempt no longer owns it.
        """
        mine = _owned(invocation_id, attempt)
        with self._database.write() as connection:
            let_go = sa.update(INVOCATIONS).where(mine).values(worker=None)
            if connection.execute(let_go).rowcount == 0:
                raise FencedError(invocation_id, attempt)
            cancel_invocations(connection, sa.and_(mine, asked_to_stop(INVOCATIONS)))

    def traceparent(self, invocation_id: JobId) -> str | None:
        """The trace that an invocation was submitted in."""
        query = sa.select(INVOCATIONS.c.traceparent).where(INVOCATIONS.c.id == invocation_id)
        with self._database.read() as connection:
            return connection.execute(query).scalar_one_or_none()

    def cancel_requested(self, invocation_id: JobId, attempt: int) -> bool:
        """Whether its user wants it stopped.

        Raises:
            FencedError: the attempt no longer owns it.
        """
        query = sa.select(INVOCATIONS.c.cancel_requested).where(_owned(invocation_id, attempt))
        with self._database.read() as connection:
            requested: bool | None = connection.execute(query).scalar_one_or_none()
        if requested is None:
            raise FencedError(invocation_id, attempt)
        return requested

    def succeed(
        self,
        invocation_id: JobId,
        attempt: int,
        threads: int,
        latency: Latency | None,
        outputs: tuple[TensorSpec, ...],
        artifact: Artifact,
    ) -> None:
        """End it well; its outputs are stored already. Raises ``FencedError``, as do those that follow."""
        values = {
            "threads": threads,
            "latency": latency.model_dump(mode="json") if latency else None,
            "outputs": [spec.model_dump(mode="json") for spec in outputs],
            "artifact": artifact.model_dump(mode="json"),
            "outputs_digest": artifact.digest,
            "outputs_bytes": artifact.size_bytes,
        }
        self._end(invocation_id, attempt, JobState.SUCCEEDED, values)

    def fail(self, invocation_id: JobId, attempt: int, problem: Problem) -> None:
        """End it with a problem."""
        self._end(invocation_id, attempt, JobState.FAILED, {"problem": problem.model_dump(mode="json")})

    def cancel_finished(self, invocation_id: JobId, attempt: int) -> None:
        """End it as cancelled, once its processes are gone."""
        self._end(invocation_id, attempt, JobState.CANCELLED, {})

    def _end(self, invocation_id: JobId, attempt: int, state: JobState, values: Mapping[str, Any]) -> None:
        end = {**values, **ended(state)}
        statement = sa.update(INVOCATIONS).where(_owned(invocation_id, attempt)).values(end)
        with self._database.write() as connection:
            if connection.execute(statement).rowcount == 0:
                raise FencedError(invocation_id, attempt)

    def _tasks(self, *conditions: sa.ColumnElement[bool]) -> tuple[Task, ...]:
        columns = INVOCATIONS.c
        query = sa.select(columns.id, columns.needs).where(*conditions).order_by(columns.created_at)
        with self._database.read() as connection:
            return tuple(Task(TaskKind.INVOKE, row.id, needs=row.needs) for row in connection.execute(query))

    def _require_same(self, invocation_id: JobId, wanted: Mapping[str, Any]) -> None:
        query = sa.select(*(INVOCATIONS.c[name] for name in wanted)).where(INVOCATIONS.c.id == invocation_id)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is not None and dict(row._mapping) != wanted:
            raise IdempotencyConflictError(invocation_id)


_RUNNING = INVOCATIONS.c.state == JobState.RUNNING.value
_IN_HAND = sa.and_(_RUNNING, INVOCATIONS.c.worker.is_not(None))


def _owned(invocation_id: JobId, attempt: int) -> sa.ColumnElement[bool]:
    return sa.and_(INVOCATIONS.c.id == invocation_id, INVOCATIONS.c.attempt == attempt, _RUNNING)


def _to_invocation(row: sa.Row[Any]) -> Invocation:
    return Invocation.read(dict(row._mapping))
