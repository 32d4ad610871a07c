"""Rows of jobs and events as the contract's documents, and the statements that several moves share."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from bessemer.contract.base import now
from bessemer.contract.job import Compilation, Event, EventType, JobState
from bessemer.store.rows.tables import EVENTS, JOBS

SHOWN_COLUMNS = tuple(JOBS.c[name] for name in Compilation.model_fields if name != "queue")
"""Where a job stands in its queue is no row's to say."""

EVENT_COLUMNS = tuple(EVENTS.c[name] for name in Event.model_fields)


def to_compilation(row: sa.Row[Any]) -> Compilation:
    """The document of a row with ``SHOWN_COLUMNS``."""
    return Compilation.read(dict(row._mapping))


def to_event(row: sa.Row[Any]) -> Event:
    """The document of a row with ``EVENT_COLUMNS``."""
    return Event.read(dict(row._mapping))


def owned(attempt: int) -> sa.ColumnElement[bool]:
    """Whether an attempt still has its job in hand."""
    return sa.and_(JOBS.c.attempt == attempt, JOBS.c.state == JobState.RUNNING.value)


def update_with_event(
    connection: sa.Connection,
    job_id: str,
    condition: sa.ColumnElement[bool],
    values: Mapping[str, Any],
    event: EventType,
    data: Mapping[str, Any],
) -> bool:
    """Change a job's row where a condition still holds, and record the event in the same transaction.

    The row's own counter gives the event's number: its lock keeps the numbers without gap or repeat.

    Returns:
        Whether the condition held; nothing was written where it did not.
    """
    statement = (
        sa.update(JOBS)
        .where(JOBS.c.id == job_id, condition)
        .values({**values, "last_seq": JOBS.c.last_seq + 1})
        .returning(JOBS.c.last_seq)
    )
    seq = connection.execute(statement).scalar_one_or_none()
    if seq is None:
        return False
    record_event(connection, job_id, seq, event, data)
    return True


def record_event(
    connection: sa.Connection, job_id: str, seq: int, event: EventType, data: Mapping[str, Any]
) -> None:
    """Insert one event under the number that the job's row gave."""
    connection.execute(
        sa.insert(EVENTS).values(job=job_id, seq=seq, type=event.value, at=now(), data=dict(data))
    )
