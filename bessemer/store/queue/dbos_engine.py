"""The settings of DBOS that the queue and its consumers share.

DBOS provides durable queues and recovery, nothing else. It stores the kinds and ids of tasks, never a result.
It opens no port, exports no traces and connects only to its database.
"""

import logging
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer, error
from sqlalchemy.engine import URL

from bessemer.contract.request import MAX_PRIORITY
from bessemer.store.database import SQLITE, Database, mapped_errors
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.migrate import ADVISORY_LOCK, set_wal, sqlite_starter_lock
from bessemer.store.queue.dbos_private import POLLING_SECONDS, TURNS
from bessemer.store.queue_port import PostponedError, QueueName

APPLICATION = "bessemer"
VERSION = "1"
"""The version of the task format. DBOS recovers a task only if its version is the same."""
SCHEMA = "dbos"
SLOTS_PER_WORKER = 1


class QuietFilter(logging.Filter):
    """Drops the tracebacks of errors that the consumer logs in one line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a record."""
        raised = record.exc_info[1] if record.exc_info else None
        quiet = (StoreUnavailableError, PostponedError, error.DBOSMaxStepRetriesExceeded)
        return not isinstance(raised, quiet)


logging.getLogger("dbos").setLevel(logging.WARNING)
logging.getLogger("dbos").addFilter(QuietFilter())


def url_text(url: URL) -> str:
    """The URL with its password."""
    return url.render_as_string(hide_password=False)


def prepare_engine(url: URL) -> None:
    """Create the engine's schema and queues. App and workers may do so at the same time.

    Raises:
        StoreUnavailableError: the database cannot be reached.
    """
    with mapped_errors():
        if url.get_backend_name() != SQLITE:
            with closing(Database(url)) as database, database.read():
                pass  # our own error says what is wrong with the database
            _migrate(url)
            return
        path = Path(str(url.database))
        with sqlite_starter_lock(path):
            set_wal(path)
            _migrate(url)


def open_client(url: URL) -> DBOSClient:
    """A client of a prepared engine.

    Raises:
        StoreUnavailableError: the database cannot be reached.
    """
    with mapped_errors():
        return DBOSClient(
            system_database_url=url_text(url),
            dbos_system_schema=SCHEMA,
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
            retry_connection_errors=False,
        )


def consumer_config(url: URL, worker_id: str) -> DBOSConfig:
    """A worker's engine configuration."""
    return DBOSConfig(
        name=APPLICATION,
        system_database_url=url_text(url),
        dbos_system_schema=SCHEMA,
        serializer=DBOSPortableJSONSerializer(),
        application_version=VERSION,
        executor_id=worker_id,
        run_migrations=False,
        enable_otlp=False,
        log_level="WARNING",
        sys_db_pool_size=6,
        max_executor_threads=16,
        notification_listener_polling_interval_sec=0.1,  # unused, but stopping waits for it
    )


def engine_priority(priority: int) -> int:
    """A priority for DBOS: 1 or more, the lowest first."""
    return MAX_PRIORITY + 1 - priority


def _migrate(url: URL) -> None:
    DBOS.migrate(url_text(url), schema=SCHEMA)
    client = open_client(url)
    try:
        for name in QueueName:
            client.register_queue(
                name.value, worker_concurrency=SLOTS_PER_WORKER, polling_interval_sec=POLLING_SECONDS
            )
    finally:
        client.destroy()
    with closing(Database(url)) as database, database.write() as connection:
        if not database.is_sqlite:  # two processes cannot create a table at the same time
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
        TURNS.create(connection, checkfirst=True)
