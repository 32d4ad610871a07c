"""A census counts what there is, on every database."""

from datetime import datetime, timedelta

import sqlalchemy as sa
from store_samples import ARTIFACTS, DIGEST, FIGURES, TARGET, a_problem, a_request, a_worker

from bessemer.contract.job import JobState
from bessemer.contract.model import ModelState
from bessemer.contract.stage import Stage
from bessemer.store.census import Kept
from bessemer.store.queue import QueueName
from bessemer.store.store import Store
from bessemer.store.tables import JOBS, WORKERS

LIVENESS_SECONDS = 600.0


def test_an_empty_store_counts_nothing(store: Store) -> None:
    census = store.census(LIVENESS_SECONDS)
    assert {waiting.count for waiting in census.waiting.values()} == {0}
    assert set(census.jobs.values()) | set(census.models.values()) == {0}
    assert (census.kept_models, census.kept_artifacts) == (Kept(0, 0), Kept(0, 0))
    assert (census.workers_live, census.workers_lost) == (0, 0)


def test_what_waits_is_counted_by_queue_with_the_age_of_the_oldest(store: Store) -> None:
    for index in range(3):
        store.jobs.submit(f"compile-{index}", a_request())
    store.jobs.submit("preflight", a_request().model_copy(update={"stop_after": Stage.TRANSLATE}))
    store.models.add(DIGEST, 1)
    _age(store, JOBS.c.id == "compile-0", JOBS.c.created_at)
    waiting = store.census(LIVENESS_SECONDS).waiting
    assert (waiting[QueueName.COMPILE].count, waiting[QueueName.QUICK].count) == (3, 2)
    assert waiting[QueueName.COMPILE].oldest_seconds >= 3600
    assert waiting[QueueName.QUICK].oldest_seconds < 3600


def test_jobs_models_and_workers_are_counted_by_state(store: Store) -> None:
    store.jobs.submit("queued-job", a_request())
    store.jobs.submit("cancelled-job", a_request())
    store.jobs.request_cancel("cancelled-job")
    store.models.add(DIGEST, 5)
    store.models.finish_inspection(DIGEST, a_problem())
    for worker_id in ("here", "gone"):
        store.workers.beat(a_worker(worker_id))
    _age(store, WORKERS.c.id == "gone", WORKERS.c.seen_at)
    census = store.census(LIVENESS_SECONDS)
    assert (census.jobs[JobState.QUEUED], census.jobs[JobState.CANCELLED]) == (1, 1)
    assert (census.models[ModelState.REJECTED], census.kept_models) == (1, Kept(1, 5))
    assert (census.workers_live, census.workers_lost) == (1, 1)


def test_the_artifacts_of_every_job_are_counted_with_their_sizes(store: Store) -> None:
    larger = (*ARTIFACTS, ARTIFACTS[0].model_copy(update={"name": "log.txt", "size_bytes": 1 << 40}))
    for job_id in ("succeeds", "fails-at-once"):
        store.jobs.submit(job_id, a_request())
        assert store.jobs.start(job_id, "w1") == 1
    store.jobs.succeed("succeeds", 1, TARGET, True, FIGURES, larger)
    store.jobs.fail("fails-at-once", 1, a_problem(), ARTIFACTS)
    assert store.census(LIVENESS_SECONDS).kept_artifacts == Kept(3, (1 << 40) + 2)


def _age(store: Store, row: sa.ColumnElement[bool], moment: sa.Column[datetime]) -> None:
    """Put a row's moment an hour back."""
    with store.database.write() as connection:
        then = connection.execute(sa.select(moment).where(row)).scalar_one() - timedelta(hours=1)
        connection.execute(sa.update(moment.table).where(row).values({moment: then}))
