"""Rows of jobs and events as the contract's documents, and the statements that several moves share."""

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from bessemer.contract.base import JOB_ID_PATTERN, now
from bessemer.contract.job import Compilation, Event, EventType, JobState
from bessemer.store.errors import CursorInvalidError
from bessemer.store.tables import EVENTS, JOBS

SHOWN_COLUMNS = tuple(JOBS.c[name] for name in Compilation.model_fields if name != "queue")
"""Where a job stands in its queue is no row's to say."""

EVENT_COLUMNS = tuple(EVENTS.c[name] for name in Event.model_fields)


_ID = re.compile(JOB_ID_PATTERN)


class Position(NamedTuple):
    """Where a page ended; the next one begins after it."""

    created_at: datetime
    id: str


def to_compilation(row: sa.Row[Any]) -> Compilation:
    """The document of a row with ``SHOWN_COLUMNS``."""
    return Compilation.model_validate(dict(row._mapping))


def to_event(row: sa.Row[Any]) -> Event:
    """The document of a row with ``EVENT_COLUMNS``."""
    return Event.model_validate(dict(row._mapping))


def to_cursor(position: Position) -> str:
    """An opaque text that is safe in an address."""
    text = f"{position.created_at.astimezone(UTC).isoformat()} {position.id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def from_cursor(cursor: str) -> Position:
    """The position that ``to_cursor`` wrote.

    Raises:
        CursorInvalidError: it is none of ours.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        moment, job_id = text.split(" ")
        created_at = datetime.fromisoformat(moment)
    except (binascii.Error, ValueError) as error:
        raise CursorInvalidError(cursor) from error
    if created_at.tzinfo is not UTC or not _ID.fullmatch(job_id):
        raise CursorInvalidError(cursor)
    return Position(created_at, job_id)


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
