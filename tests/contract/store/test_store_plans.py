"""What is asked again and again is found by indexes, however much the tables hold."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from store_samples import DIGEST, a_request

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.listing import CompilationFilter
from bessemer.contract.queue import TaskKind
from bessemer.store.blobs.hashing import BlobKey
from bessemer.store.blobs.sweep import referenced
from bessemer.store.rows.tables import METADATA, WORKERS
from bessemer.store.store import Store
from tests.tenant_data import own

HOUR = 3600.0

ASKED_OFTEN: dict[str, Callable[[Store], object]] = {
    "jobs that were never enqueued": lambda store: store.jobs.unenqueued(5),
    "models that were never enqueued": lambda store: store.models.unenqueued(5),
    "invocations that were never enqueued": lambda store: store.invocations.unenqueued(5),
    "jobs that are going on": lambda store: store.jobs.enqueued(5),
    "models that are inspected": lambda store: store.models.enqueued(5),
    "invocations that are going on": lambda store: store.invocations.enqueued(5),
    "jobs that wait": lambda store: store.queued_jobs.groups(),
    "jobs that ended last": lambda store: store.queued_jobs.recent_seconds(
        DEFAULT_TENANT, TaskKind.COMPILE, 20
    ),
    "the news of some jobs": lambda store: store.jobs.event_counts(["job-00000001", "job-00000002"]),
    "a job by the start of its id": lambda store: own(store).jobs.starting("2c26", 6),
    "a model by the start of its digest": lambda store: own(store).models.starting("2c26", 6),
    "a group": lambda store: own(store).jobs.group("2c26b46b68ffc68ff99b453c1d304134"),
    "a group by the start of its id": lambda store: own(store).jobs.groups_starting("2c26", 6),
    "jobs of a name": lambda store: own(store).jobs.page(20, None, CompilationFilter(name="mlp")),
    "a job with an identical result": lambda store: own(store).jobs.submit(
        "job-00000001", a_request(), None, [DIGEST]
    ),
    "the jobs that a tenant runs": lambda store: own(store).usage.running_jobs(),
    "what of a tenant waits": lambda store: own(store).usage.queued_jobs(),
    "what a tenant stores": lambda store: own(store).usage.stored_bytes(),
    "what a tenant's records take": lambda store: own(store).usage.record_bytes(),
    "the worker time of a tenant": lambda store: own(store).usage.worker_seconds(),
    "rows that refer to blobs": lambda store: referenced(store.database, {BlobKey(DEFAULT_TENANT, DIGEST)}),
    "jobs and invocations past their time": lambda store: store.removal.expire_jobs(HOUR),
    "models past their time": lambda store: store.removal.expire_uploads(HOUR),
}

Statement = tuple[str, Any]


@contextmanager
def statements_of(store: Store) -> Iterator[list[Statement]]:
    heard: list[Statement] = []

    def hear(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        if statement.startswith(("SELECT", "WITH", "DELETE")):
            heard.append((statement, parameters))

    sa.event.listen(store.database.engine, "before_cursor_execute", hear)
    try:
        yield heard
    finally:
        sa.event.remove(store.database.engine, "before_cursor_execute", hear)


def scans(store: Store, statement: Statement, sqlite_scan: str) -> set[str]:
    """The tables that a statement reads from end to end; workers are few."""
    text, parameters = statement
    with store.database.read() as connection:
        if store.database.is_sqlite:
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters)
            plan, scan = "\n".join(row[3] for row in rows), sqlite_scan
        else:
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")  # small tables are read whole else
            rows = connection.exec_driver_sql(f"EXPLAIN {text}", parameters)
            plan, scan = "\n".join(row[0] for row in rows), r"Seq Scan on (\w+)"
    return set(re.findall(scan, plan, re.MULTILINE)) & set(METADATA.tables) - {WORKERS.name}


def assert_no_scans(store: Store, action: Callable[[Store], object], sqlite_scan: str) -> None:
    with statements_of(store) as statements:
        action(store)
    assert statements
    assert {table for statement in statements for table in scans(store, statement, sqlite_scan)} == set()


@pytest.mark.parametrize("asked", ASKED_OFTEN)
def test_neither_table_nor_index_is_read_from_end_to_end(store: Store, asked: str) -> None:
    assert_no_scans(store, ASKED_OFTEN[asked], r"^SCAN (\w+)")


def test_what_there_is_is_counted_from_indexes(store: Store) -> None:
    assert_no_scans(store, lambda store: store.statistics(HOUR), r"^SCAN (\w+)\b(?! USING COVERING INDEX)")
