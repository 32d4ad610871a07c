"""What is read of jobs and their events."""

from collections.abc import Collection, Container
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from bessemer.contract.base import JobId, now
from bessemer.contract.job import Compilation, CompilationPage, Event, EventType, JobState
from bessemer.contract.listing import EVERYTHING, CompilationFilter
from bessemer.store.database import Database
from bessemer.store.errors import FencedError
from bessemer.store.queue_port import Task, task_key
from bessemer.store.rows.filters import conditions
from bessemer.store.rows.job_rows import EVENT_COLUMNS, SHOWN_COLUMNS, owned, to_compilation, to_event
from bessemer.store.rows.paging import read_page
from bessemer.store.rows.prefixes import starts_with
from bessemer.store.rows.queued import TASK_COLUMNS, to_task
from bessemer.store.rows.tables import EVENTS, JOBS
from bessemer.store.rows.transitions import going_on


class JobReader:
    """Every method is one transaction and raises ``StoreUnavailableError`` where the database is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, job_id: JobId) -> Compilation | None:
        """A job, or None where there is none of that id."""
        with self._database.read() as connection:
            row = connection.execute(sa.select(*SHOWN_COLUMNS).where(JOBS.c.id == job_id)).one_or_none()
        return None if row is None else to_compilation(row)

    def starting(self, prefix: str, limit: int) -> tuple[JobId, ...]:
        """The ids that start with ``prefix``, in order, at most ``limit``."""
        query = sa.select(JOBS.c.id).where(starts_with(JOBS.c.id, prefix)).order_by(JOBS.c.id).limit(limit)
        with self._database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def page(
        self, limit: int, cursor: str | None = None, wanted: CompilationFilter = EVERYTHING
    ) -> CompilationPage:
        """Jobs, newest first; jobs that arrive meanwhile neither repeat nor hide any.

        Raises:
            CursorInvalidError: ``cursor`` is not the ``next`` of an earlier page.
        """
        query = sa.select(*SHOWN_COLUMNS).where(*conditions(wanted))
        page = read_page(self._database, query, (JOBS.c.created_at, JOBS.c.id), limit, cursor)
        return CompilationPage(items=tuple(map(to_compilation, page.rows)), next=page.next)

    def events_after(self, job_id: JobId, seq: int, limit: int = 500) -> tuple[Event, ...]:
        """The events that follow number ``seq`` (0: from the first), in order, at most ``limit``."""
        query = (
            sa.select(*EVENT_COLUMNS)
            .where(EVENTS.c.job == job_id, EVENTS.c.seq > seq)
            .order_by(EVENTS.c.seq)
            .limit(limit)
        )
        with self._database.read() as connection:
            return tuple(to_event(row) for row in connection.execute(query))

    def lost_workers(self, job_id: JobId) -> tuple[str, ...]:
        """Who had the lost attempts in hand, in order: after each, the next one counted one more."""
        query = (
            sa.select(EVENTS.c.data)
            .where(EVENTS.c.job == job_id, EVENTS.c.type == EventType.STARTED.value)
            .order_by(EVENTS.c.seq)
        )
        with self._database.read() as connection:
            attempts = connection.execute(query).scalars().all()
        counts = [int(attempt["lost_attempts"]) for attempt in attempts]
        return tuple(
            str(attempt["worker"])
            for attempt, before, after in zip(attempts, counts, counts[1:], strict=False)
            if after > before
        )

    def event_counts(self, job_ids: Collection[JobId]) -> dict[JobId, tuple[int, bool]]:
        """How many events each of the jobs has, and whether it is final; unknown ids are left out."""
        query = sa.select(JOBS.c.id, JOBS.c.last_seq, JOBS.c.state).where(JOBS.c.id.in_(job_ids))
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return {row.id: (row.last_seq, JobState(row.state).final) for row in rows}

    def traceparent(self, job_id: JobId) -> str | None:
        """The trace that a job was submitted in."""
        with self._database.read() as connection:
            return connection.execute(
                sa.select(JOBS.c.traceparent).where(JOBS.c.id == job_id)
            ).scalar_one_or_none()

    def unenqueued(self, older_than_seconds: float) -> tuple[JobId, ...]:
        """Queued jobs that no queue has, oldest first: whoever inserted them stopped half-way."""
        query = (
            sa.select(JOBS.c.id)
            .where(
                JOBS.c.state == JobState.QUEUED.value,
                JOBS.c.enqueued_at.is_(None),
                JOBS.c.created_at <= now() - timedelta(seconds=older_than_seconds),
            )
            .order_by(JOBS.c.created_at)
        )
        with self._database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def enqueued(self, older_than_seconds: float, besides: Container[str] = ()) -> tuple[Task, ...]:
        """Jobs that are not final, and that the queue was given at least so long ago, oldest first.

        Args:
            older_than_seconds: how long ago.
            besides: keys of tasks to leave out, of which there may be many thousands.
        """
        query = (
            sa.select(*TASK_COLUMNS)
            .where(
                going_on(JOBS),
                JOBS.c.enqueued_at <= now() - timedelta(seconds=older_than_seconds),
            )
            .order_by(JOBS.c.created_at)
        )
        with self._database.read() as connection:
            rows = connection.execute(query)
            return tuple(to_task(row) for row in rows if task_key(row.kind, row.id) not in besides)

    def last_seq(self, job_id: JobId, attempt: int) -> int:
        """The number of the job's last event.

        Raises:
            FencedError: the attempt no longer owns the job.
        """
        return int(self._of_owned(job_id, attempt, JOBS.c.last_seq))

    def cancel_requested(self, job_id: JobId, attempt: int) -> bool:
        """Whether the job's user wants it stopped.

        Raises:
            FencedError: the attempt no longer owns the job.
        """
        return bool(self._of_owned(job_id, attempt, JOBS.c.cancel_requested))

    def _of_owned(self, job_id: JobId, attempt: int, column: sa.Column[Any]) -> Any:
        query = sa.select(column).where(JOBS.c.id == job_id, owned(attempt))
        with self._database.read() as connection:
            found = connection.execute(query).scalar_one_or_none()
        if found is None:
            raise FencedError(job_id, attempt)
        return found
