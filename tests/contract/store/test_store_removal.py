"""Deletion: rows by their rules, blobs by mark and sweep; nothing that is needed is ever lost."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from store_samples import INSPECTION, LATENCY, TARGET, a_problem, a_request

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.base import now
from bessemer.contract.job import Artifact
from bessemer.contract.request import Entry
from bessemer.store.blobs.artifacts import Artifacts
from bessemer.store.blobs.hashing import BlobKey
from bessemer.store.blobs.sweep import SweepResult, sweep_blobs
from bessemer.store.database import Database
from bessemer.store.errors import JobNotFinalError, ModelInUseError
from bessemer.store.rows.tables import EVENTS, INVOCATIONS, JOB_BLOBS, JOBS, MODELS
from bessemer.store.store import Store
from tests.inspections import inspected
from tests.tenant_data import own, started

JOB = "job-00000001"
MODEL = a_request().model
HOUR, LONG_AGO, AT_ONCE = 3600.0, 7200.0, -1.0
ROUNDS = 50
OTHER = "e" * 64


def artifact(digest: str) -> Artifact:
    return Artifact(name="model.so", digest=digest, size_bytes=1, media_type="application/x-sharedlib")


def succeeded(store: Store, digest: str = "f" * 64, job_id: str = JOB) -> str:
    own(store).jobs.submit(job_id, a_request())
    attempt = started(store.jobs, job_id, "w1")
    store.jobs.succeed(job_id, attempt, TARGET, True, None, (artifact(digest),))
    return job_id


def count(store: Store, table: sa.Table) -> int:
    with store.database.read() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def move_back(store: Store, column: sa.Column[object], seconds: float) -> None:
    with store.database.write() as connection:
        connection.execute(sa.update(column.table).values({column: now() - timedelta(seconds=seconds)}))


def test_a_final_job_goes_with_all_that_hangs_on_it(store: Store) -> None:
    succeeded(store)
    own(store).invocations.submit("invocation-1", JOB, "0" * 64, 1, 1)
    assert (own(store).jobs.delete(JOB), own(store).jobs.delete(JOB)) == (True, False)
    assert (count(store, EVENTS), count(store, JOB_BLOBS), own(store).invocations.get("invocation-1")) == (
        0,
        0,
        None,
    )


@pytest.mark.parametrize("starts", [False, True])
def test_a_job_that_has_not_ended_is_not_deleted(store: Store, starts: bool) -> None:
    own(store).jobs.submit(JOB, a_request())
    if starts:
        started(store.jobs, JOB, "w1")
    with pytest.raises(JobNotFinalError):
        own(store).jobs.delete(JOB)
    assert own(store).jobs.get(JOB) is not None


def test_a_model_is_kept_while_a_job_that_has_not_ended_needs_it(store: Store) -> None:
    own(store).models.add(MODEL, 1)
    own(store).jobs.submit(JOB, a_request())
    with pytest.raises(ModelInUseError, match=JOB):
        own(store).models.delete(MODEL)
    own(store).jobs.request_cancel(JOB)
    assert (own(store).models.delete(MODEL), own(store).models.delete(MODEL)) == (True, False)
    assert own(store).jobs.get(JOB) is not None


def test_the_model_of_an_entry_is_kept_while_a_job_needs_it(store: Store) -> None:
    other = "f" * 64
    wanted = a_request().model_copy(update={"entries": {"decode": Entry(model=other)}})
    own(store).models.add(other, 1)
    own(store).jobs.submit(JOB, wanted)
    assert store.removal.expire_uploads(AT_ONCE) == 0
    with pytest.raises(ModelInUseError, match=JOB):
        own(store).models.delete(other)
    own(store).jobs.request_cancel(JOB)
    assert own(store).models.delete(other)


def test_what_is_added_while_it_is_deleted_is_added_all_the_same(store: Store) -> None:
    def delete_often() -> None:
        for _ in range(ROUNDS):
            own(store).models.delete(OTHER)
            own(store).jobs.request_cancel(JOB)
            with suppress(JobNotFinalError):
                own(store).jobs.delete(JOB)

    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(delete_often)
        while not deleting.done():
            assert own(store).models.add(OTHER, 1).digest == OTHER
            assert own(store).jobs.submit(JOB, a_request()).id == JOB
        deleting.result()


def test_only_jobs_that_ended_long_ago_expire(store: Store) -> None:
    succeeded(store)
    own(store).jobs.submit("job-00000002", a_request())
    assert store.removal.expire_jobs(HOUR) == 0
    with store.database.write() as connection:
        connection.execute(
            sa.update(JOBS).where(JOBS.c.id == JOB).values(finished_at=now() - timedelta(seconds=LONG_AGO))
        )
    assert (store.removal.expire_jobs(HOUR), store.removal.expire_jobs(HOUR)) == (1, 0)
    assert own(store).jobs.get("job-00000002") is not None


def test_invocations_expire_before_their_compilation_does(store: Store) -> None:
    succeeded(store)
    own(store).invocations.submit("invocation-1", JOB, "0" * 64, 1, 1)
    attempt = started(store.invocations, "invocation-1", "w1")
    store.invocations.fail("invocation-1", attempt, a_problem())
    assert store.removal.expire_jobs(HOUR) == 0
    move_back(store, INVOCATIONS.c.finished_at, LONG_AGO)
    assert (store.removal.expire_jobs(HOUR), own(store).invocations.get("invocation-1")) == (1, None)
    assert own(store).jobs.get(JOB) is not None


def test_models_expire_that_nobody_used_and_no_job_needs(store: Store) -> None:
    own(store).models.add(MODEL, 1)
    inspected(store, MODEL, INSPECTION)
    move_back(store, MODELS.c.used_at, LONG_AGO)
    own(store).jobs.submit(JOB, a_request())
    assert store.removal.expire_uploads(HOUR) == 0
    own(store).jobs.request_cancel(JOB)
    assert own(store).models.touch(MODEL)
    assert store.removal.expire_uploads(HOUR) == 0
    move_back(store, MODELS.c.used_at, LONG_AGO)
    assert (store.removal.expire_uploads(HOUR), own(store).models.get(MODEL)) == (1, None)
    assert not own(store).models.touch(MODEL)


class Blobs:
    """A store's artifacts, of which each is old enough to be swept unless a sweep is told otherwise."""

    def __init__(self, store: Store, artifacts: Artifacts, folder: Path) -> None:
        self.artifacts = artifacts
        self._store, self._folder = store, folder

    def put(self, content: bytes) -> str:
        (self._folder / "file").write_bytes(content)
        return self.artifacts.for_tenant(DEFAULT_TENANT).put_file(self._folder / "file").digest

    def holds(self, digest: str) -> bool:
        return self.artifacts.for_tenant(DEFAULT_TENANT).size(digest) is not None

    def sweep(self, grace_seconds: float = AT_ONCE, trash_seconds: float = HOUR) -> SweepResult:
        return sweep_blobs(self._store.database, self.artifacts, grace_seconds, trash_seconds)


@pytest.fixture
def blobs(store: Store, artifacts: Artifacts, tmp_path: Path) -> Blobs:
    return Blobs(store, artifacts, tmp_path)


def test_what_a_row_refers_to_is_kept_and_the_rest_goes_by_way_of_the_trash(
    store: Store, blobs: Blobs
) -> None:
    kept = [blobs.put(name) for name in (b"model", b"artifact", b"inputs", b"outputs")]
    forgotten = blobs.put(b"forgotten")
    own(store).models.add(kept[0], 1)
    succeeded(store, kept[1])
    own(store).invocations.submit("invocation-1", JOB, kept[2], 1, 1)
    attempt = started(store.invocations, "invocation-1", "w1")
    store.invocations.succeed("invocation-1", attempt, 1, LATENCY, (), artifact(kept[3]))
    assert blobs.sweep() == SweepResult(trashed=1)
    assert blobs.sweep() == SweepResult()
    assert [blobs.holds(digest) for digest in (*kept, forgotten)] == [True] * 4 + [False]
    assert blobs.sweep(trash_seconds=AT_ONCE) == SweepResult(deleted=1)
    assert not any(blobs.artifacts.trashed())


def test_the_trash_is_emptied_though_somebody_else_empties_it_too(blobs: Blobs) -> None:
    for number in range(6):
        blobs.put(b"%d" % number)
    assert blobs.sweep() == SweepResult(trashed=6)
    lying = [entry for entries in blobs.artifacts.trashed() for entry in entries]
    blobs.artifacts.delete_trashed(lying[:2])
    blobs.artifacts.delete_trashed(lying)
    while blobs.sweep(trash_seconds=AT_ONCE).deleted:
        pass
    assert not any(blobs.artifacts.trashed())


def test_a_blob_that_was_just_written_is_left_alone(blobs: Blobs) -> None:
    digest = blobs.put(b"being uploaded")
    assert blobs.sweep(HOUR) == SweepResult()
    assert not blobs.artifacts.move_to_trash(BlobKey("default", digest), HOUR)
    assert blobs.holds(digest)
    assert blobs.sweep() == SweepResult(trashed=1)


def test_a_blob_goes_when_the_last_row_that_refers_to_it_goes(store: Store, blobs: Blobs) -> None:
    digest = blobs.put(b"shared")
    for job_id in (JOB, "job-00000002"):
        succeeded(store, digest, job_id)
    own(store).jobs.delete(JOB)
    assert blobs.sweep() == SweepResult()
    own(store).jobs.delete("job-00000002")
    assert blobs.sweep() == SweepResult(trashed=1)


def test_what_is_uploaded_again_while_it_lies_in_the_trash_is_there(store: Store, blobs: Blobs) -> None:
    digest = blobs.put(b"model")
    blobs.sweep()
    blobs.put(b"model")
    own(store).models.add(digest, 5)
    assert blobs.holds(digest)
    blobs.sweep()
    assert b"".join(blobs.artifacts.for_tenant(DEFAULT_TENANT).stream(digest)) == b"model"
    assert not any(blobs.artifacts.trashed())


class Latecomer(Database):
    """A database in which a row appears at the very moment after the sweep has looked for it."""

    def __init__(self, store: Store, digest: str) -> None:
        self.engine, self._store, self._digest, self._looks = store.database.engine, store, digest, 0
        self._writer = store.database._writer

    def read(self):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self._looks += 1
        if self._looks == 2:
            own(self._store).models.add(self._digest, 1)
        return super().read()


def test_a_row_that_appears_after_the_look_brings_its_blob_back(store: Store, blobs: Blobs) -> None:
    digest = blobs.put(b"model")
    assert sweep_blobs(Latecomer(store, digest), blobs.artifacts, AT_ONCE, HOUR) == SweepResult()
    assert blobs.holds(digest)


def test_a_blob_that_was_swept_while_its_row_was_written_is_put_back_by_its_first_reader(
    store: Store, blobs: Blobs
) -> None:
    digest = blobs.put(b"artifact")
    assert blobs.sweep() == SweepResult(trashed=1)
    succeeded(store, digest)
    assert b"".join(blobs.artifacts.for_tenant(DEFAULT_TENANT).stream(digest)) == b"artifact"
    assert (blobs.sweep(), blobs.holds(digest)) == (SweepResult(), True)


def test_the_next_sweep_restores_what_is_referred_to(store: Store, blobs: Blobs) -> None:
    digest = blobs.put(b"artifact")
    blobs.sweep()
    succeeded(store, digest)
    assert blobs.sweep() == SweepResult(restored=1)
    assert blobs.holds(digest)
