"""Invocations: one row each, owned by one attempt at a time, gone with their compilation."""

import pytest
import sqlalchemy as sa
from store_samples import ARTIFACTS, DIGEST, LATENCY, a_problem, a_request, a_worker

from bessemer.contract.invocation import Invocation
from bessemer.contract.job import JobState
from bessemer.contract.tensor import TensorSpec
from bessemer.store.errors import FencedError, IdempotencyConflictError
from bessemer.store.queue_port import Task, TaskKind
from bessemer.store.rows.tables import INVOCATIONS, JOBS
from bessemer.store.store import Store

JOB = "job-00000001"
OUTPUTS = (TensorSpec(name="y", shape=(1, 10)),)


@pytest.fixture
def job(store: Store) -> str:
    return store.jobs.submit(JOB, a_request()).id


def submitted(store: Store, number: int = 1, runs: int = 3) -> Invocation:
    invocation = store.invocations.submit(f"invocation-{number}", JOB, DIGEST, 10, runs)
    assert invocation is not None
    return invocation


def read(store: Store, invocation_id: str) -> Invocation:
    invocation = store.invocations.get(invocation_id)
    assert invocation is not None
    return invocation


def test_an_invocation_is_queued_once_under_its_id(store: Store, job: str) -> None:
    first = submitted(store)
    assert (first.state, first.compilation, first.runs) == (JobState.QUEUED, JOB, 3)
    assert submitted(store) == first
    with pytest.raises(IdempotencyConflictError):
        submitted(store, runs=4)


def test_there_is_no_invocation_of_a_compilation_that_is_not_there(store: Store) -> None:
    assert store.invocations.submit("invocation-1", JOB, DIGEST, 10, 3) is None


def test_what_an_attempt_finds_is_kept(store: Store, job: str) -> None:
    submitted(store)
    attempt = store.invocations.start("invocation-1", "w1")
    assert attempt == 1
    store.invocations.succeed("invocation-1", attempt, 2, LATENCY, OUTPUTS, ARTIFACTS[0])
    done = read(store, "invocation-1")
    assert (done.state, done.latency, done.outputs, done.artifact, done.threads) == (
        JobState.SUCCEEDED,
        LATENCY,
        OUTPUTS,
        ARTIFACTS[0],
        2,
    )
    assert done.finished_at is not None
    assert store.invocations.start("invocation-1", "w2") is None


def test_a_worker_that_was_thought_lost_is_fenced_out(store: Store, job: str) -> None:
    submitted(store)
    first = store.invocations.start("invocation-1", "w1")
    second = store.invocations.start("invocation-1", "w2")
    assert (first, second) == (1, 2)
    with pytest.raises(FencedError):
        store.invocations.fail("invocation-1", 1, a_problem())
    store.invocations.fail("invocation-1", 2, a_problem())
    assert read(store, "invocation-1").problem == a_problem()


def test_an_attempt_that_was_not_handed_back_counts_as_lost(store: Store, job: str) -> None:
    submitted(store)
    for worker in ("w1", "w2"):
        last = store.invocations.start("invocation-1", worker)
    assert read(store, "invocation-1").lost_attempts == 1
    store.invocations.hand_back("invocation-1", last)
    store.invocations.start("invocation-1", "w3")
    assert (read(store, "invocation-1").attempt, read(store, "invocation-1").lost_attempts) == (3, 1)
    with pytest.raises(FencedError):
        store.invocations.hand_back("invocation-1", last)


def test_a_queued_invocation_is_cancelled_at_once_and_is_not_taken(store: Store, job: str) -> None:
    submitted(store)
    cancelled = store.invocations.request_cancel("invocation-1")
    assert cancelled is not None
    assert (cancelled.state, cancelled.finished_at is None) == (JobState.CANCELLED, False)
    assert store.invocations.start("invocation-1", "w1") is None
    assert store.invocations.request_cancel("invocation-1") == cancelled
    assert store.invocations.request_cancel("another") is None


def test_a_running_invocation_is_asked_to_stop_and_ends_as_cancelled(store: Store, job: str) -> None:
    submitted(store)
    store.workers.beat(a_worker("w1"))
    store.invocations.start("invocation-1", "w1")
    assert not store.invocations.cancel_requested("invocation-1", 1)
    asked = store.invocations.request_cancel("invocation-1")
    assert asked is not None and asked.state is JobState.RUNNING
    assert store.invocations.cancel_requested("invocation-1", 1)
    store.invocations.cancel_finished("invocation-1", 1)
    assert read(store, "invocation-1").state is JobState.CANCELLED
    with pytest.raises(FencedError):
        store.invocations.cancel_requested("invocation-1", 1)


def test_an_invocation_that_was_handed_back_is_cancelled_at_once(store: Store, job: str) -> None:
    submitted(store)
    store.invocations.start("invocation-1", "w1")
    store.invocations.hand_back("invocation-1", 1)
    cancelled = store.invocations.request_cancel("invocation-1")
    assert cancelled is not None and cancelled.state is JobState.CANCELLED
    assert store.invocations.start("invocation-1", "w2") is None


def test_an_invocation_keeps_the_trace_of_its_first_submission(store: Store, job: str) -> None:
    for trace in ("first", "second"):
        store.invocations.submit("invocation-1", JOB, DIGEST, 10, 3, traceparent=trace)
    assert store.invocations.traceparent("invocation-1") == "first"


def test_a_final_invocation_does_not_move_again(store: Store, job: str) -> None:
    submitted(store)
    store.invocations.start("invocation-1", "w1")
    store.invocations.fail("invocation-1", 1, a_problem())
    with pytest.raises(sa.exc.DBAPIError), store.database.write() as connection:
        connection.execute(sa.update(INVOCATIONS).values(state="running", finished_at=None))


def test_the_sweeper_sees_what_no_queue_has_and_what_goes_on(store: Store, job: str) -> None:
    submitted(store)
    task = Task(TaskKind.INVOKE, "invocation-1")
    assert (store.invocations.unenqueued(0), store.invocations.enqueued(0)) == ((task,), ())
    store.invocations.mark_enqueued("invocation-1")
    assert (store.invocations.unenqueued(0), store.invocations.enqueued(0)) == ((), (task,))
    assert store.invocations.enqueued(0, {task.key}) == ()
    store.invocations.start("invocation-1", "w1")
    store.invocations.fail("invocation-1", 1, a_problem())
    assert store.invocations.enqueued(0) == ()


def test_pages_show_every_invocation_once_newest_first(store: Store, job: str) -> None:
    ids = [submitted(store, number).id for number in range(5)]
    first = store.invocations.page(JOB, 3)
    second = store.invocations.page(JOB, 3, first.next)
    assert [item.id for item in (*first.items, *second.items)] == ids[::-1]
    assert second.next is None
    assert store.invocations.page("another-job", 3).items == ()


def test_invocations_go_with_their_compilation(store: Store, job: str) -> None:
    submitted(store)
    with store.database.write() as connection:
        connection.execute(sa.delete(JOBS))
    assert store.invocations.get("invocation-1") is None
