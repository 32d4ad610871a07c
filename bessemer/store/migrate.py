"""Migrates a database to the newest schema. App and workers may do so at the same time."""

import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from bessemer.store.database import BUSY_TIMEOUT_SECONDS, Database
from bessemer.store.errors import StoreUnavailableError

ADVISORY_LOCK = 0x6265_7373  # any constant that nothing else uses


def migrate(database: Database) -> None:
    """Run the missing migrations in one transaction.

    Raises:
        StoreUnavailableError: the database cannot be reached, or a newer release has migrated it.
    """
    if not database.is_sqlite:
        with database.write() as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = 0")  # another process may migrate for long
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
            _upgrade(connection)
        return
    path = Path(str(database.engine.url.database))
    with sqlite_starter_lock(path):
        set_wal(path)
        with database.write() as connection:
            _upgrade(connection)


@contextmanager
def sqlite_starter_lock(path: Path) -> Iterator[None]:
    """Hold a lock file beside a SQLite file: switching to WAL does not wait for other processes.

    Raises:
        StoreUnavailableError: the folder cannot be created or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(path.name + ".lock").open("w")
    except OSError as error:
        raise StoreUnavailableError(f"the folder of {path} cannot be used: {error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def set_wal(path: Path) -> None:
    """Switch a SQLite file to WAL, so that readers do not block the writer.

    Raises:
        StoreUnavailableError: the file is not a database, or cannot be written.
    """
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
    except sqlite3.Error as error:
        raise StoreUnavailableError(f"{path} cannot be used: {error}") from error


def _upgrade(connection: sa.Connection) -> None:
    revision = MigrationContext.configure(connection).get_current_revision()
    scripts = _scripts()
    if revision == scripts.get_current_head():
        return
    if revision is not None and revision not in {script.revision for script in scripts.walk_revisions()}:
        raise StoreUnavailableError(
            f"the database has schema revision {revision}, which this release does not know: "
            "run the release that created it, or name another database in BESSEMER_DATABASE_URL"
        )
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "bessemer.store:migrations")
    config.set_main_option("path_separator", "os")
    return config
