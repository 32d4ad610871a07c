"""One look for all queues tells which have tasks, on both databases."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from dbos import DBOSClient
from postgresql_databases import Databases

from bessemer.contract.queue import QueueName
from bessemer.store.queue.dbos_engine import open_client
from bessemer.store.queue.dbos_private import POLLING_SECONDS, QueueWatch
from bessemer.store.queue.dbos_queue import open_queue
from bessemer.store.queue_port import Queue, Task, TaskKind
from bessemer.store.settings import StoreSettings

LOOKS = 10
TERMINATE = sa.text(
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = :database AND query LIKE 'SELECT EXISTS%'"
)


@pytest.fixture
def client(settings: StoreSettings, queue: Queue) -> Iterator[DBOSClient]:
    opened = open_client(settings.engine)
    yield opened
    opened.destroy()


@pytest.fixture
def watch() -> QueueWatch:
    return QueueWatch()


@pytest.fixture
def threads(watch: QueueWatch) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(len(QueueName)) as opened:
        yield opened
        watch.stop()


def test_a_thread_waits_for_a_task_of_its_queue(
    queue: Queue, client: DBOSClient, watch: QueueWatch, threads: ThreadPoolExecutor
) -> None:
    quick, compiling = (
        threads.submit(watch.wait, client._sys_db, name) for name in (QueueName.QUICK, QueueName.COMPILE)
    )
    queue.enqueue(Task(TaskKind.INSPECT, "a"))
    assert quick.result(60)
    assert not compiling.done()
    watch.stop()
    assert not compiling.result(60)
    assert not watch.wait(client._sys_db, QueueName.QUICK)


def test_an_idle_watch_asks_the_database_little(
    client: DBOSClient, watch: QueueWatch, threads: ThreadPoolExecutor
) -> None:
    """On SQLite once, however often it looks; on PostgreSQL once for all queues."""
    statements: list[str] = []
    engine = client._sys_db.engine
    sa.event.listen(engine, "after_cursor_execute", lambda *event: statements.append(event[2]))
    for name in QueueName:
        threads.submit(watch.wait, client._sys_db, name)
    time.sleep(LOOKS * POLLING_SECONDS)
    watch.stop()
    most = 1 if engine.dialect.name == "sqlite" else LOOKS * len(QueueName) - 1
    assert 1 <= len(statements) <= most


def test_a_watch_outlasts_its_connection(
    databases: Databases,
    queue_template: str,
    tmp_path: Path,
    watch: QueueWatch,
    threads: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = databases.new(f"TEMPLATE {queue_template}")
    settings = StoreSettings(data=tmp_path, database_url=database)
    with closing(open_queue(settings)) as queue, ExitStack() as stack:
        client = open_client(settings.engine)
        stack.callback(client.destroy)
        stack.callback(watch.stop)
        waiting = threads.submit(watch.wait, client._sys_db, QueueName.QUICK)
        with databases.connection() as connection:
            while not connection.execute(TERMINATE, {"database": settings.engine.database}).scalar_one():
                time.sleep(0.01)
        queue.enqueue(Task(TaskKind.INSPECT, "a"))
        assert waiting.result(60)
    assert "cannot look for queued tasks" in caplog.text
