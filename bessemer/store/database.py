"""Database connections: one engine per process, separate readers and writers, mapped exceptions."""

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
LOCK_TIMEOUT_SECONDS = 10
"""How long a statement waits for a lock on PostgreSQL, so that requests do not wait without end."""

SILENCE_SECONDS = 60
"""How long PostgreSQL keeps the transaction of a silent client. A frozen process would keep its locks."""

UTF8 = "UTF8"
_WRITES = "bessemer_writes"
_LOST = frozenset({"25006", "25P03"})
"""PostgreSQL's SQLSTATEs for a write to a standby or a read-only server, and for a transaction that it ended
because the client was silent: the connection is useless after it."""
_SQLITE_CLOCK = "strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'"
"""In SQLAlchemy's format for SQLite, with microseconds."""


class Database:
    """Transactions on one database.

    Raises:
        StoreUnavailableError: from every transaction, if the database cannot be reached, stays locked, is
            read-only, or does not use UTF-8.
    """

    def __init__(self, url: URL) -> None:
        self.engine = _sqlite_engine(url) if url.get_backend_name() == SQLITE else _server_engine(url)
        self._writer = self.engine.execution_options(**{_WRITES: True})

    @property
    def is_sqlite(self) -> bool:
        """Whether this is SQLite."""
        return self.engine.dialect.name == SQLITE

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A read transaction."""
        with mapped_errors(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A write transaction. SQLite takes its write lock at once, so it cannot fail half-way."""
        with mapped_errors(), self._writer.begin() as connection:
            yield connection

    @property
    def clock(self) -> sa.ColumnElement[Any]:
        """The current time by the database's clock; the hosts' clocks may differ."""
        return sa.literal_column(_SQLITE_CLOCK if self.is_sqlite else "clock_timestamp()")

    def lock_table(self, connection: sa.Connection, table: sa.Table) -> None:
        """Block other writers of a table until the transaction ends; SQLite does so anyway."""
        if not self.is_sqlite:
            connection.exec_driver_sql(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE")

    def require_writable(self, connection: sa.Connection) -> None:
        """Raise and drop the connection if the database is read-only.

        Raises:
            StoreUnavailableError: the server is a standby or read-only.
        """
        if not self.is_sqlite and connection.exec_driver_sql("SHOW transaction_read_only").scalar() == "on":
            connection.invalidate()
            raise StoreUnavailableError("the database is read-only now")

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Turn a driver's connection errors into ``StoreUnavailableError``."""
    try:
        yield
    except (
        sa.exc.OperationalError,
        sa.exc.InterfaceError,
        sa.exc.InternalError,
        sa.exc.TimeoutError,
    ) as error:
        if isinstance(error, sa.exc.InternalError) and not _is_lost(error.orig):
            raise
        raise StoreUnavailableError(f"the database cannot be used: {error}") from error


def _is_lost(error: BaseException | None) -> bool:
    return getattr(error, "sqlstate", None) in _LOST


def _give_up_connection(context: sa.ExceptionContext) -> None:
    """Drop a connection that is useless now: the next one may reach a former primary's successor."""
    if _is_lost(context.original_exception):
        context.is_disconnect = True


sa.event.listen(sa.Engine, "handle_error", _give_up_connection)  # on every engine, DBOS's included


def _to_json(value: Any) -> str:
    """JSON without NaN and infinity, which not every database accepts."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


_IDLE_SECONDS = 10
"""After this, the system probes a silent server. Without an answer, calls fail."""


def _server_engine(url: URL) -> sa.Engine:
    engine = sa.create_engine(
        url,
        json_serializer=_to_json,
        pool_pre_ping=True,
        pool_size=8,
        max_overflow=8,
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_SECONDS,
            "application_name": "bessemer",
            "keepalives_idle": _IDLE_SECONDS,
            "keepalives_interval": _IDLE_SECONDS,
            "keepalives_count": 3,
            "tcp_user_timeout": round(SILENCE_SECONDS * 1000),
        },
    )
    # before SQLAlchemy's first queries, which fail on the bytes that SQL_ASCII returns for text
    sa.event.listen(engine, "connect", _require_utf8, insert=True)
    sa.event.listen(engine, "connect", _limit_waits)
    return engine


def _require_utf8(connection: Any, _record: object) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != UTF8:
        name = connection.info.dbname
        connection.close()
        raise StoreUnavailableError(
            f"the database '{name}' stores text as {encoding} but must use {UTF8}: create another with "
            f"`CREATE DATABASE name ENCODING '{UTF8}' TEMPLATE template0` and use it in the URL"
        )


def _limit_waits(connection: Any, _record: object) -> None:
    connection.execute(f"SET lock_timeout = {round(LOCK_TIMEOUT_SECONDS * 1000)}")
    connection.execute(f"SET idle_in_transaction_session_timeout = {round(SILENCE_SECONDS * 1000)}")
    connection.commit()


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
    connection.isolation_level = None  # _begin_sqlite begins transactions, not the driver
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
