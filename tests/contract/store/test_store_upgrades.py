"""A database of an older schema becomes one of the newest, with all that was in it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from postgresql_databases import Databases
from store_samples import DIGEST, INSPECTION, LATENCY, TARGET, a_problem, a_request, a_worker

from bessemer.contract.invocation import Invocation
from bessemer.contract.job import Artifact, JobState
from bessemer.contract.listing import CompilationFilter
from bessemer.contract.queue import TaskKind
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from bessemer.contract.tensor import TensorSpec
from bessemer.store.blobs.sweep import referenced
from bessemer.store.database import Database
from bessemer.store.rows.census import Kept, KeptKind
from bessemer.store.rows.tables import EVENTS, INVOCATIONS, JOBS, MODELS
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store

FIRST, UNCANCELLED = "0001", "0011"
"""The first schema, and the last in which invocations could not be cancelled."""

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ENDED, WAITING, PREFLIGHT = "job-ended", "job-waiting", "job-preflight"
FILE, LOG, INPUTS, OUTPUTS = (letter * 64 for letter in "abde")
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
Rows = tuple[tuple[sa.Table, dict[str, Any]], ...]
FIRST_ROWS: Rows = (
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
SUBMITTED = Invocation(
    id="run-queued",
    compilation=ENDED,
    state=JobState.QUEUED,
    inputs=INPUTS,
    inputs_bytes=7,
    runs=3,
    created_at=NOON,
)
STARTED = SUBMITTED.model_copy(
    update={
        "id": "run-running",
        "state": JobState.RUNNING,
        "attempt": 2,
        "lost_attempts": 1,
        "worker": "w1",
        "started_at": NOON,
    }
)
DONE = STARTED.model_copy(
    update={
        "id": "run-succeeded",
        "state": JobState.SUCCEEDED,
        "threads": 2,
        "latency": LATENCY,
        "outputs": (TensorSpec(name="y", shape=(1, 10)),),
        "artifact": Artifact(name="outputs.npz", digest=OUTPUTS, size_bytes=3, media_type="application/zip"),
        "finished_at": NOON,
    }
)
BROKEN = STARTED.model_copy(
    update={"id": "run-failed", "state": JobState.FAILED, "problem": a_problem(), "finished_at": NOON}
)
RUNS = (SUBMITTED, STARTED, DONE, BROKEN)


def old_run(run: Invocation) -> dict[str, Any]:
    document = run.model_dump(mode="json")
    moments = {name: getattr(run, name) for name in ("created_at", "started_at", "finished_at")}
    outputs_digest = run.artifact.digest if run.artifact else None
    return {**document, **moments, "tenant": "default", "needs": None, "outputs_digest": outputs_digest}


OLD_ROWS: dict[str, Rows] = {
    FIRST: FIRST_ROWS,
    UNCANCELLED: tuple((INVOCATIONS, old_run(run)) for run in RUNS),
}
"""What was kept by each schema."""


def make_old(database: Database) -> None:
    config = Config()
    config.set_main_option("script_location", "bessemer.store:migrations")
    config.set_main_option("path_separator", "os")
    with database.write() as connection:
        config.attributes["connection"] = connection
        for revision, rows in OLD_ROWS.items():
            command.upgrade(config, revision)
            for table, row in rows:
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


def test_a_job_that_ends_while_its_database_is_upgraded_ends_first(
    databases: Databases, tmp_path: Path
) -> None:
    """On PostgreSQL: a worker of the older release holds its job's row, then writes what it has made."""
    settings = StoreSettings(data=tmp_path, database_url=databases.new())
    database = Database(settings.database)
    make_old(database)
    waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'")
    blob = sa.table("job_blobs", sa.column("job", sa.String), sa.column("digest", sa.String))
    with ThreadPoolExecutor(1) as pool, database.read() as watching:
        with database.write() as connection:
            connection.execute(sa.update(JOBS).where(JOBS.c.id == WAITING).values({JOBS.c.last_seq: 2}))
            upgrade = pool.submit(lambda: open_store(settings).close())
            while not watching.execute(waiting).scalar_one():
                assert not upgrade.done()
            connection.execute(sa.insert(blob).values(job=WAITING, digest=LOG))
        upgrade.result(timeout=60)
    database.close()


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
    assert upgraded.census(1).kept == {
        KeptKind.MODEL: Kept(1, 7),
        KeptKind.ARTIFACT: Kept(2, 6),
        KeptKind.INVOCATION: Kept(2, 10),
    }
    blobs = {FILE, LOG, DIGEST, INPUTS, OUTPUTS}
    assert referenced(upgraded.database, {*blobs, "c" * 64}) == blobs


def test_the_invocations_of_an_older_release_are_kept_and_go_with_their_compilation(upgraded: Store) -> None:
    assert {run.id: run for run in upgraded.invocations.page(ENDED, 10).items} == {
        run.id: run for run in RUNS
    }
    assert upgraded.removal.delete_job(ENDED)
    assert [upgraded.invocations.get(run.id) for run in RUNS] == [None] * len(RUNS)


def test_the_invocations_of_an_older_release_can_be_cancelled_and_make_no_other_new_move(
    upgraded: Store,
) -> None:
    upgraded.workers.beat(a_worker("w1"))
    states = {run.id: upgraded.invocations.request_cancel(run.id).state for run in RUNS}
    assert states == {run.id: run.state for run in RUNS} | {SUBMITTED.id: JobState.CANCELLED}
    assert upgraded.invocations.cancel_requested(STARTED.id, STARTED.attempt)
    upgraded.invocations.cancel_finished(STARTED.id, STARTED.attempt)
    for values in ({"state": "running", "finished_at": None}, {"finished_at": None}):
        with pytest.raises(sa.exc.IntegrityError), upgraded.database.write() as connection:
            connection.execute(sa.update(INVOCATIONS).values(values))
