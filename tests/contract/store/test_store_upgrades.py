"""A database of the first schema becomes one of the newest, with all that was in it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from store_samples import DIGEST, INSPECTION, TARGET, a_request

from bessemer.contract.job import JobState
from bessemer.contract.listing import CompilationFilter
from bessemer.contract.queue import TaskKind
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from bessemer.store.database import Database
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
from bessemer.store.sweep import referenced
from bessemer.store.tables import EVENTS, JOBS, MODELS

FIRST = "0001"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ENDED, WAITING, PREFLIGHT = "job-ended", "job-waiting", "job-preflight"
FILE, LOG = "a" * 64, "b" * 64
ARTIFACTS = [
    {"name": name, "digest": digest, "size_bytes": 3, "media_type": "text/plain"}
    for name, digest in (("model.so", FILE), ("copy.so", FILE), ("log.txt", LOG))
]


def old_job(job_id: str, state: JobState, request: CompilationRequest, **columns: Any) -> dict[str, Any]:
    return {
        "id": job_id,
        "tenant": "default",
        "state": state.value,
        "attempt": 0,
        "last_seq": 1,
        "request": request.model_dump(mode="json", exclude={"labels", "priority"}),
        "cancel_requested": False,
        "stages": [],
        "artifacts": [],
        "created_at": NOON,
        **columns,
    }


ON_HOST = a_request().model_copy(update={"target": PresetTarget(preset="host")})
TRANSLATED = ON_HOST.model_copy(update={"stop_after": Stage.TRANSLATE})
RESULT = {"artifacts": ARTIFACTS, "target": TARGET.model_dump(mode="json"), "finished_at": NOON}
OLD_ROWS: tuple[tuple[sa.Table, dict[str, Any]], ...] = (
    (JOBS, old_job(ENDED, JobState.SUCCEEDED, ON_HOST, **RESULT)),
    (JOBS, old_job(WAITING, JobState.QUEUED, a_request())),
    (JOBS, old_job(PREFLIGHT, JobState.QUEUED, TRANSLATED)),
    (EVENTS, {"job": ENDED, "seq": 1, "type": "queued", "at": NOON, "data": {}}),
    (
        MODELS,
        {
            "tenant": "default",
            "digest": DIGEST,
            "size_bytes": 7,
            "state": "ready",
            "inspection": INSPECTION.model_dump(mode="json"),
            "created_at": NOON,
        },
    ),
)


def make_old(database: Database) -> None:
    config = Config()
    config.set_main_option("script_location", "bessemer.store:migrations")
    config.set_main_option("path_separator", "os")
    with database.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, FIRST)
        for table, row in OLD_ROWS:
            known = sa.table(table.name, *(sa.column(name, table.c[name].type) for name in row))
            connection.execute(sa.insert(known).values(row))


@pytest.fixture
def upgraded(settings: StoreSettings) -> Iterator[Store]:
    settings.data.mkdir()
    database = Database(settings.database)
    make_old(database)
    database.close()
    opened = open_store(settings)
    yield opened
    opened.close()


def test_what_an_older_release_kept_is_found_by_what_a_newer_one_looks_for(upgraded: Store) -> None:
    def listed(**wanted: str) -> set[str]:
        return {job.id for job in upgraded.jobs.page(10, wanted=CompilationFilter(**wanted)).items}  # type: ignore[arg-type]

    assert listed(target="host") == {ENDED, PREFLIGHT}
    assert listed(target="znver4") == {WAITING}
    assert listed(model=DIGEST) == listed() == {ENDED, PREFLIGHT, WAITING}
    assert {(group.kind, *group.turns) for group in upgraded.waiting.groups()} == {
        (TaskKind.COMPILE, WAITING),
        (TaskKind.PREFLIGHT, PREFLIGHT),
    }
    assert [event.seq for event in upgraded.jobs.events_after(ENDED, 0)] == [1]


def test_what_an_older_release_kept_is_counted_and_not_swept(upgraded: Store) -> None:
    kept = upgraded.census(1).kept_artifacts
    assert (kept.count, kept.size_bytes) == (3, 9)
    assert referenced(upgraded.database, {FILE, LOG, DIGEST, "c" * 64}) == {FILE, LOG, DIGEST}
