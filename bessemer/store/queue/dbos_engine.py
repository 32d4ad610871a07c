"""The job engine, DBOS: what its two sides, queue and consumer, must agree upon.

DBOS is used for durable queues and for recovery, and for nothing else: it holds kinds and ids of tasks, never
a result. It opens no server, exports no traces and reaches nothing but its database.
"""

import logging
from contextlib import closing
from pathlib import Path

from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer
from dbos._error import DBOSMaxStepRetriesExceeded
from sqlalchemy.engine import URL

from bessemer.contract.request import MAX_PRIORITY
from bessemer.store.database import SQLITE, Database, mapped_errors
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.migrate import set_wal, sqlite_starter_lock
from bessemer.store.queue_port import PostponedError, QueueName

APPLICATION = "bessemer"
VERSION = "1"
"""Constant: DBOS recovers a task only where the version is the same. It names the shape of a task."""
SCHEMA = "dbos"
POLLING_SECONDS = 0.1
SLOTS_PER_WORKER = 1


class QuietFilter(logging.Filter):
    """Keeps DBOS from printing a traceback of what its consumer has told in one line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log."""
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, StoreUnavailableError | PostponedError | DBOSMaxStepRetriesExceeded)


logging.getLogger("dbos").setLevel(logging.WARNING)
logging.getLogger("dbos").addFilter(QuietFilter())


def url_text(url: URL) -> str:
    """The address with its password, as DBOS takes it."""
    return url.render_as_string(hide_password=False)


def prepare_engine(url: URL) -> None:
    """Make the engine's schema and queues; safe when app and workers start at the same moment.

    Raises:
        StoreUnavailableError: the database cannot be reached.
    """
    with mapped_errors():
        if url.get_backend_name() != SQLITE:
            with closing(Database(url)) as database, database.read():
                pass  # the engine itself would not say what is wrong with a database that will not do
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
    """How a worker runs the engine."""
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
        notification_listener_polling_interval_sec=0.1,  # idle, but stopping waits for it
    )


def engine_priority(priority: int) -> int:
    """A priority as DBOS takes it: from 1 on, the lowest first."""
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
