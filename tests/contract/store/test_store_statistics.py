"""A statistics counts what there is, on every database."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa
from store_samples import (
    ARTIFACTS,
    DIGEST,
    FIGURES,
    LATENCY,
    TARGET,
    a_problem,
    a_request,
    a_worker,
)

from bessemer.contract.job import Artifact, JobState
from bessemer.contract.model import ModelState
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.stage import Stage
from bessemer.store.queue_port import QueueName
from bessemer.store.rows.lifecycle import Attempt, Rows
from bessemer.store.rows.tables import EVENTS, INVOCATIONS, JOBS, MODELS, WORKERS
from bessemer.store.rows.totals import StoredFiles, StoredKind
from bessemer.store.store import Store
from tests.inspections import inspected
from tests.tenant_data import inspection_of, own, started

LIVENESS_SECONDS = 600.0


def test_an_empty_store_counts_nothing(store: Store) -> None:
    statistics = store.statistics(LIVENESS_SECONDS)
    assert {backlog.count for backlog in statistics.backlogs.values()} == {0}
    assert set(statistics.jobs.values()) | set(statistics.models.values()) == {0}
    assert statistics.stored == dict.fromkeys(StoredKind, StoredFiles(0, 0))
    assert statistics.workers == 0


def test_what_waits_is_counted_by_queue_with_the_age_of_the_oldest(store: Store) -> None:
    for index in range(3):
        own(store).jobs.submit(f"compile-{index}", a_request())
    own(store).jobs.submit("preflight", a_request().model_copy(update={"stop_after": Stage.TRANSLATE}))
    own(store).models.add(DIGEST, 1)
    _age(store, JOBS.c.id == "compile-0", JOBS.c.created_at)
    waiting = store.statistics(LIVENESS_SECONDS).backlogs
    assert (waiting[QueueName.COMPILE].count, waiting[QueueName.QUICK].count) == (3, 2)
    assert waiting[QueueName.COMPILE].oldest_seconds >= 3600
    assert waiting[QueueName.QUICK].oldest_seconds < 3600


def in_hand(store: Store, worker_id: str) -> Iterator[tuple[Rows, str, Attempt]]:
    """Every kind of task, in a worker's hand."""
    for job_id, stop_after in (("compilation", None), ("preflight", Stage.TRANSLATE)):
        own(store).jobs.submit(job_id, a_request().model_copy(update={"stop_after": stop_after}))
        yield store.jobs, job_id, started(store.jobs, job_id, worker_id)
    own(store).invocations.submit("invocation", "compilation", DIGEST, 1, 1)
    yield store.invocations, "invocation", started(store.invocations, "invocation", worker_id)
    own(store).models.add(DIGEST, 1)
    model_id = inspection_of(store, DIGEST).id
    yield store.models, model_id, started(store.models, model_id, worker_id)


def waiting_counts(store: Store) -> tuple[int, int]:
    waiting = store.statistics(LIVENESS_SECONDS).backlogs
    return waiting[QueueName.COMPILE].count, waiting[QueueName.QUICK].count


def test_what_a_live_worker_has_in_hand_does_not_wait(store: Store) -> None:
    store.workers.beat(a_worker("w1"))
    tuple(in_hand(store, "w1"))
    assert waiting_counts(store) == (0, 0)


@pytest.mark.parametrize("row_is_left", [True, False])
def test_what_a_lost_worker_had_in_hand_waits_again(store: Store, row_is_left: bool) -> None:
    store.workers.beat(a_worker("another"))
    if row_is_left:
        store.workers.beat(a_worker("w1"))
        _age(store, WORKERS.c.id == "w1", WORKERS.c.seen_at)
    tuple(in_hand(store, "w1"))
    assert waiting_counts(store) == (1, 3)


def test_what_a_worker_that_stops_hands_back_waits_again(store: Store) -> None:
    store.workers.beat(a_worker("w1"))
    for rows, row_id, attempt in tuple(in_hand(store, "w1")):
        rows.hand_back(row_id, attempt)
    assert waiting_counts(store) == (1, 3)


def test_what_was_begun_waits_since_the_last_that_was_heard_of_it(store: Store) -> None:
    tuple(in_hand(store, "lost"))
    for row, moment in (
        (JOBS.c.id == "compilation", JOBS.c.created_at),
        (JOBS.c.id == "compilation", JOBS.c.started_at),
    ):
        _age(store, row, moment)
    assert store.statistics(LIVENESS_SECONDS).backlogs[QueueName.COMPILE].oldest_seconds < 3600
    _age(store, sa.and_(EVENTS.c.job == "compilation", EVENTS.c.seq == 2), EVENTS.c.at)
    assert store.statistics(LIVENESS_SECONDS).backlogs[QueueName.COMPILE].oldest_seconds >= 3600


def test_an_invocation_that_was_begun_waits_since_then(store: Store) -> None:
    tuple(in_hand(store, "lost"))
    _age(store, INVOCATIONS.c.id == "invocation", INVOCATIONS.c.created_at)
    assert store.statistics(LIVENESS_SECONDS).backlogs[QueueName.QUICK].oldest_seconds < 3600
    _age(store, INVOCATIONS.c.id == "invocation", INVOCATIONS.c.started_at)
    assert store.statistics(LIVENESS_SECONDS).backlogs[QueueName.QUICK].oldest_seconds >= 3600


def test_a_model_that_is_inspected_again_waits_since_it_was_asked_for(store: Store) -> None:
    own(store).models.add(DIGEST, 1)
    _age(store, MODELS.c.digest == DIGEST, MODELS.c.created_at)
    assert store.statistics(LIVENESS_SECONDS).backlogs[QueueName.QUICK].oldest_seconds >= 3600
    inspected(store, DIGEST, make_problem(ErrorCode.WORKER_LOST, "lost"))
    assert own(store).models.inspect_again(DIGEST)
    waiting = store.statistics(LIVENESS_SECONDS).backlogs[QueueName.QUICK]
    assert (waiting.count, waiting.oldest_seconds < 3600) == (1, True)


def test_jobs_models_and_workers_are_counted_by_state(store: Store) -> None:
    own(store).jobs.submit("queued-job", a_request())
    own(store).jobs.submit("cancelled-job", a_request())
    own(store).jobs.request_cancel("cancelled-job")
    own(store).models.add(DIGEST, 5)
    inspected(store, DIGEST, a_problem())
    for worker_id in ("here", "gone"):
        store.workers.beat(a_worker(worker_id))
    _age(store, WORKERS.c.id == "gone", WORKERS.c.seen_at)
    statistics = store.statistics(LIVENESS_SECONDS)
    assert (statistics.jobs[JobState.QUEUED], statistics.jobs[JobState.CANCELLED]) == (1, 1)
    assert (statistics.models[ModelState.REJECTED], statistics.stored[StoredKind.MODEL]) == (
        1,
        StoredFiles(1, 5),
    )
    assert statistics.workers == 1


def a_file(name: str, digit: str, size_bytes: int) -> Artifact:
    return ARTIFACTS[0].model_copy(update={"name": name, "digest": digit * 64, "size_bytes": size_bytes})


def test_a_file_of_several_jobs_or_names_is_counted_once(store: Store) -> None:
    shared, copied = a_file("runtime.so", "a", 1 << 40), a_file("copy.so", "a", 1 << 40)
    for job_id in ("succeeds", "fails-at-once"):
        own(store).jobs.submit(job_id, a_request())
    first, second = (started(store.jobs, job_id) for job_id in ("succeeds", "fails-at-once"))
    store.jobs.succeed("succeeds", first, TARGET, True, FIGURES, (shared, copied, a_file("log.txt", "b", 2)))
    store.jobs.fail("fails-at-once", second, a_problem(), (shared, a_file("log.txt", "c", 3)))
    assert store.statistics(LIVENESS_SECONDS).stored[StoredKind.ARTIFACT] == StoredFiles(3, (1 << 40) + 5)


def test_inputs_and_outputs_of_invocations_are_counted_once_too(store: Store) -> None:
    own(store).jobs.submit("compilation", a_request())
    for run, inputs in (("run-on-a", "a"), ("run-on-a-again", "a"), ("run-on-b", "b")):
        own(store).invocations.submit(run, "compilation", inputs * 64, 5, 1)
    for run in ("run-on-a", "run-on-a-again"):
        attempt = started(store.invocations, run, "w1")
        store.invocations.succeed(run, attempt, 2, LATENCY, (), a_file("outputs.npz", "c", 1 << 40))
    assert store.statistics(LIVENESS_SECONDS).stored[StoredKind.INVOCATION] == StoredFiles(3, (1 << 40) + 10)


def _age(store: Store, row: sa.ColumnElement[bool], moment: sa.Column[datetime]) -> None:
    """Put a row's moment an hour back."""
    with store.database.write() as connection:
        then = connection.execute(sa.select(moment).where(row)).scalar_one() - timedelta(hours=1)
        connection.execute(sa.update(moment.table).where(row).values({moment: then}))
