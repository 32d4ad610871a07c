"""Keyset paging: pages of a table, newest first, and their cursors."""

import base64
import binascii
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from bessemer.contract.base import JOB_ID_PATTERN
from bessemer.store.database import Database
from bessemer.store.errors import CursorInvalidError

_ID = re.compile(JOB_ID_PATTERN)
"""Ids of jobs and invocations; digests of models match too."""


class Position(NamedTuple):
    """The last row of a page; the next page begins after it."""

    created_at: datetime
    id: str


class RowPage(NamedTuple):
    """The rows of a page, and the cursor of the next page; None on the last page."""

    rows: Sequence[sa.Row[*tuple[Any, ...]]]
    next: str | None


def read_page(
    database: Database,
    query: sa.Select[*tuple[Any, ...]],
    key: tuple[sa.Column[datetime], sa.Column[str]],
    limit: int,
    cursor: str | None,
) -> RowPage:
    """A page of rows, newest first. Rows that arrive between two pages neither repeat nor hide any.

    Args:
        database: the database of the rows.
        query: selects the rows, with the columns of ``key``.
        key: the columns of a row's creation time and its id, which breaks ties.
        limit: the maximum number of rows.
        cursor: the ``next`` of an earlier page; None for the first.

    Raises:
        CursorInvalidError: ``cursor`` is not the ``next`` of an earlier page.
        StoreUnavailableError: the database is unreachable.
    """
    query = query.order_by(*(column.desc() for column in key)).limit(limit + 1)
    if cursor is not None:
        query = query.where(sa.tuple_(*key) < sa.tuple_(*from_cursor(cursor)))
    with database.read() as connection:
        rows = connection.execute(query).all()
    if len(rows) <= limit:
        return RowPage(rows, None)
    last = rows[limit - 1]._mapping
    return RowPage(rows[:limit], to_cursor(Position(*(last[column] for column in key))))


def to_cursor(position: Position) -> str:
    """An opaque, URL-safe text."""
    text = f"{position.created_at.astimezone(UTC).isoformat()} {position.id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def from_cursor(cursor: str) -> Position:
    """The position that ``to_cursor`` wrote.

    Raises:
        CursorInvalidError: ``to_cursor`` did not write it.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        moment, row_id = text.split(" ")
        created_at = datetime.fromisoformat(moment)
    except (binascii.Error, ValueError) as error:
        raise CursorInvalidError(cursor) from error
    if created_at.tzinfo is not UTC or not _ID.fullmatch(row_id):
        raise CursorInvalidError(cursor)
    return Position(created_at, row_id)
