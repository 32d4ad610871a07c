"""Connections: one engine per process, readers and writers apart, foreign exceptions mapped."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL

from bessemer.store.errors import StoreUnavailableError

SQLITE = "sqlite"
BUSY_TIMEOUT_SECONDS = 30
CONNECT_TIMEOUT_SECONDS = 10
UTF8 = "UTF8"
_WRITES = "bessemer_writes"
_READ_ONLY = "25006"
"""PostgreSQL's word (SQLSTATE) for a write to a standby, or to a server that was made read-only."""
_SQLITE_CLOCK = "strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'"
"""In the form in which SQLAlchemy keeps moments there, with microseconds."""


class Database:
    """Transactions on one database.

    Raises:
        StoreUnavailableError: from every transaction, where the database cannot be reached, stays locked,
            may only be read, or does not keep text as UTF-8.
    """

    def __init__(self, url: URL) -> None:
        self.engine = _sqlite_engine(url) if url.get_backend_name() == SQLITE else _server_engine(url)
        self._writer = self.engine.execution_options(**{_WRITES: True})

    @property
    def is_sqlite(self) -> bool:
        """Whether this is the embedded database."""
        return self.engine.dialect.name == SQLITE

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that only reads."""
        with mapped_errors(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that writes; SQLite takes its write lock at once, so that nothing fails half-way."""
        with mapped_errors(), self._writer.begin() as connection:
            yield connection

    @property
    def clock(self) -> sa.ColumnElement[Any]:
        """The moment, by the database's clock: those of the hosts that use it may differ."""
        return sa.literal_column(_SQLITE_CLOCK if self.is_sqlite else "clock_timestamp()")

    def hold_still(self, connection: sa.Connection, table: sa.Table) -> None:
        """Let nobody else write a table until the transaction ends; on SQLite nobody can anyway."""
        if not self.is_sqlite:
            connection.exec_driver_sql(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE")

    def require_writable(self, connection: sa.Connection) -> None:
        """Refuse to go on, and give the connection up, where others cannot write either.

        Raises:
            StoreUnavailableError: the server is a standby, or was made read-only.
        """
        if not self.is_sqlite and connection.exec_driver_sql("SHOW transaction_read_only").scalar() == "on":
            connection.invalidate()
            raise StoreUnavailableError("the database may only be read just now")

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Turn a driver's complaint about the connection into the store's own error."""
    try:
        yield
    except (
        sa.exc.OperationalError,
        sa.exc.InterfaceError,
        sa.exc.InternalError,
        sa.exc.TimeoutError,
    ) as error:
        if isinstance(error, sa.exc.InternalError) and not _is_read_only(error.orig):
            raise
        raise StoreUnavailableError(f"the database cannot be used: {error}") from error


def _is_read_only(error: BaseException | None) -> bool:
    return getattr(error, "sqlstate", None) == _READ_ONLY


def _give_up_connection(context: sa.ExceptionContext) -> None:
    """One to a server that is no primary any more: the next one may be to its successor."""
    if _is_read_only(context.original_exception):
        context.is_disconnect = True


sa.event.listen(sa.Engine, "handle_error", _give_up_connection)  # of every engine, the job engine's too


def _to_json(value: Any) -> str:
    """JSON that every database takes: no NaN, no infinity."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _server_engine(url: URL) -> sa.Engine:
    engine = sa.create_engine(
        url,
        json_serializer=_to_json,
        pool_pre_ping=True,
        pool_size=8,
        max_overflow=8,
        connect_args={"connect_timeout": CONNECT_TIMEOUT_SECONDS, "application_name": "bessemer"},
    )
    # before SQLAlchemy's own first questions, which fail on the bytes that SQL_ASCII makes of every text
    sa.event.listen(engine, "connect", _require_utf8, insert=True)
    return engine


def _require_utf8(connection: Any, _record: object) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != UTF8:
        name = connection.info.dbname
        connection.close()
        raise StoreUnavailableError(
            f"the database '{name}' keeps text as {encoding} and must keep it as {UTF8}: make another with "
            f"`CREATE DATABASE name ENCODING '{UTF8}' TEMPLATE template0` and name it in the URL"
        )


def _sqlite_engine(url: URL) -> sa.Engine:
    engine = sa.create_engine(
        url,
        json_serializer=_to_json,
        connect_args={"timeout": BUSY_TIMEOUT_SECONDS},
        pool_size=8,
        max_overflow=8,
    )
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself: _begin_sqlite does
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
