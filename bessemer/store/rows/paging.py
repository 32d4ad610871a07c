"""Pages of a table, newest first, and the cursors between them: keyset paging."""

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
"""Of a job or an invocation; a model's digest is of this form too."""


class Position(NamedTuple):
    """Where a page ended; the next one begins after it."""

    created_at: datetime
    id: str


class RowPage(NamedTuple):
    """Rows of one page, and the cursor of the next; None where these are the last."""

    rows: Sequence[sa.Row[*tuple[Any, ...]]]
    next: str | None


def read_page(
    database: Database,
    query: sa.Select[*tuple[Any, ...]],
    key: tuple[sa.Column[datetime], sa.Column[str]],
    limit: int,
    cursor: str | None,
) -> RowPage:
    """Rows, newest first; rows that arrive meanwhile neither repeat nor hide any.

    Args:
        database: where the rows are.
        query: which rows; it selects the columns of ``key`` too.
        key: when a row was made, and its id, which tells apart those of one moment.
        limit: the most rows of the page.
        cursor: the ``next`` of an earlier page; None for the first.

    Raises:
        CursorInvalidError: ``cursor`` is not the ``next`` of an earlier page.
        StoreUnavailableError: the database is away.
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
        moment, row_id = text.split(" ")
        created_at = datetime.fromisoformat(moment)
    except (binascii.Error, ValueError) as error:
        raise CursorInvalidError(cursor) from error
    if created_at.tzinfo is not UTC or not _ID.fullmatch(row_id):
        raise CursorInvalidError(cursor)
    return Position(created_at, row_id)
