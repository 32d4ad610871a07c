"""Requests that earlier jobs of the tenant answer: what the new job has, and that neither needs the other."""

from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from store_samples import FIGURES, TARGET, a_problem, a_request

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.base import now
from bessemer.contract.job import Artifact, Compilation, EventType, JobState
from bessemer.contract.report import StageTime
from bessemer.contract.stage import Stage
from bessemer.store.blobs.sweep import sweep_blobs
from bessemer.store.errors import IdempotencyConflictError
from bessemer.store.rows.tables import JOBS
from bessemer.store.store import Store
from tests.tenant_data import own, started

FIRST, SECOND, THIRD = "job-00000001", "job-00000002", "job-00000003"
IDENTITY, OTHER_IDENTITY = "a" * 64, "b" * 64
AT_ONCE = -1.0


def made(store: Store, folder: Path, job_id: str = FIRST, identity: str | None = IDENTITY) -> Compilation:
    """A job that a worker has done."""
    (folder / job_id).write_text(job_id)
    blob = own(store).artifacts.put_file(folder / job_id)
    artifact = Artifact(
        name="model.so", digest=blob.digest, size_bytes=blob.size_bytes, media_type="application/x-sharedlib"
    )
    own(store).jobs.submit(job_id, a_request())
    attempt = started(store.jobs, job_id, "worker")
    store.jobs.stage_started(job_id, attempt, Stage.CAPTURE)
    store.jobs.stage_finished(job_id, attempt, StageTime(stage=Stage.CAPTURE, seconds=0.5))
    store.jobs.succeed(job_id, attempt, TARGET, True, FIGURES, (artifact,), identity)
    return get(store, job_id)


def get(store: Store, job_id: str) -> Compilation:
    job = own(store).jobs.get(job_id)
    assert job is not None
    return job


def again(store: Store, job_id: str = SECOND, identity: str = IDENTITY) -> Compilation:
    return own(store).jobs.submit(job_id, a_request(), None, [identity, "c" * 64])


def content(store: Store, job: Compilation) -> str:
    return b"".join(own(store).artifacts.stream(job.artifacts[0].digest)).decode()


def test_an_identical_request_has_succeeded_with_the_results_of_the_first(
    store: Store, tmp_path: Path
) -> None:
    first, second = made(store, tmp_path), again(store)
    assert (second.state, second.cached, second.original) == (JobState.SUCCEEDED, True, FIRST)
    assert (first.cached, first.original) == (False, None)
    same = ("target", "stage", "stages", "sandbox", "verified", "figures", "artifacts")
    assert [getattr(second, name) for name in same] == [getattr(first, name) for name in same]
    assert (second.attempt, second.worker, second.started_at) == (0, None, None)
    assert second.finished_at is not None


def test_its_events_begin_and_end_it(store: Store, tmp_path: Path) -> None:
    first = made(store, tmp_path)
    again(store)
    queued, succeeded = own(store).jobs.events_after(SECOND, 0)
    assert (queued.seq, queued.type, succeeded.seq, succeeded.type) == (
        1,
        EventType.QUEUED,
        2,
        EventType.SUCCEEDED,
    )
    assert succeeded.data["original"] == FIRST
    assert succeeded.data["artifacts"] == [first.artifacts[0].model_dump(mode="json")]


def test_no_worker_has_anything_to_do(store: Store, tmp_path: Path) -> None:
    made(store, tmp_path)
    again(store)
    assert store.jobs.unenqueued(AT_ONCE) == ()
    assert store.jobs.start(SECOND, "worker") is None


def test_the_same_submission_again_gives_the_same_job(store: Store, tmp_path: Path) -> None:
    made(store, tmp_path)
    assert again(store) == again(store)
    with pytest.raises(IdempotencyConflictError):
        own(store).jobs.submit(SECOND, a_request(cores=1), None, [IDENTITY])


@pytest.mark.parametrize("identity", [OTHER_IDENTITY, None])
def test_another_result_does_not_answer(store: Store, tmp_path: Path, identity: str | None) -> None:
    made(store, tmp_path, identity=identity)
    assert again(store).state is JobState.QUEUED


def test_a_job_that_failed_does_not_answer(store: Store) -> None:
    own(store).jobs.submit(FIRST, a_request())
    store.jobs.fail(FIRST, started(store.jobs, FIRST, "worker"), a_problem())
    assert again(store).state is JobState.QUEUED


def test_another_tenants_job_does_not_answer(store: Store, tmp_path: Path) -> None:
    made(store, tmp_path)
    other = store.for_tenant("other").jobs.submit(SECOND, a_request(), None, [IDENTITY])
    assert (other.state, other.cached, other.artifacts) == (JobState.QUEUED, False, ())


def test_the_newest_result_answers(store: Store, tmp_path: Path) -> None:
    made(store, tmp_path)
    made(store, tmp_path, SECOND)
    assert again(store, THIRD).original == SECOND


@pytest.mark.parametrize(("deleted", "kept"), [(FIRST, SECOND), (SECOND, FIRST)])
@pytest.mark.parametrize("how", ["delete", "retention"])
def test_deleting_one_of_two_keeps_the_other_and_its_files(
    store: Store, tmp_path: Path, deleted: str, kept: str, how: str
) -> None:
    made(store, tmp_path)
    again(store)
    if how == "delete":
        assert own(store).jobs.delete(deleted)
    else:
        _end_long_ago(store, deleted)
        assert store.removal.expire_jobs(3600) == 1
    for _ in range(2):
        sweep_blobs(store.database, store.artifacts, AT_ONCE, AT_ONCE)
    assert own(store).jobs.get(deleted) is None
    assert content(store, get(store, kept)) == FIRST
    assert again(store, THIRD).original == FIRST


def test_files_go_with_the_last_that_has_them(store: Store, tmp_path: Path) -> None:
    first = made(store, tmp_path)
    again(store)
    own(store).jobs.delete(FIRST)
    own(store).jobs.delete(SECOND)
    for _ in range(2):
        sweep_blobs(store.database, store.artifacts, AT_ONCE, AT_ONCE)
    assert own(store).artifacts.size(first.artifacts[0].digest) is None


def test_shared_files_are_stored_and_counted_once(store: Store, tmp_path: Path) -> None:
    made(store, tmp_path)
    before = store.for_tenant(DEFAULT_TENANT).usage.stored_bytes()
    again(store)
    assert store.for_tenant(DEFAULT_TENANT).usage.stored_bytes() == before


def _end_long_ago(store: Store, job_id: str) -> None:
    with store.database.write() as connection:
        ended = sa.update(JOBS).where(JOBS.c.id == job_id).values(finished_at=now() - timedelta(days=1))
        connection.execute(ended)
