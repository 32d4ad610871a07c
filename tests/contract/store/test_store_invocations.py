"""Invocations: one row each, owned by one attempt at a time, gone with their compilation."""

import pytest
import sqlalchemy as sa
from store_samples import ARTIFACTS, DIGEST, LATENCY, a_request

from bessemer.contract.invocation import Invocation
from bessemer.contract.job import JobState
from bessemer.contract.tensor import TensorSpec
from bessemer.store.errors import IdempotencyConflictError
from bessemer.store.rows.tables import JOBS
from bessemer.store.store import Store
from tests.tenant_data import own, started

JOB = "job-00000001"
OUTPUTS = (TensorSpec(name="y", shape=(1, 10)),)


@pytest.fixture
def job(store: Store) -> str:
    return own(store).jobs.submit(JOB, a_request()).id


def submitted(store: Store, number: int = 1, runs: int = 3) -> Invocation:
    invocation = own(store).invocations.submit(f"invocation-{number}", JOB, DIGEST, 10, runs)
    assert invocation is not None
    return invocation


def read(store: Store, invocation_id: str) -> Invocation:
    invocation = own(store).invocations.get(invocation_id)
    assert invocation is not None
    return invocation


def test_an_invocation_is_queued_once_under_its_id(store: Store, job: str) -> None:
    first = submitted(store)
    assert (first.state, first.compilation, first.runs) == (JobState.QUEUED, JOB, 3)
    assert submitted(store) == first
    with pytest.raises(IdempotencyConflictError):
        submitted(store, runs=4)


def test_there_is_no_invocation_of_a_compilation_that_is_not_there(store: Store) -> None:
    assert own(store).invocations.submit("invocation-1", JOB, DIGEST, 10, 3) is None


def test_what_an_attempt_finds_is_kept(store: Store, job: str) -> None:
    submitted(store)
    attempt = started(store.invocations, "invocation-1")
    assert attempt.number == 1
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


def test_a_queued_invocation_is_cancelled_at_once_and_is_not_taken(store: Store, job: str) -> None:
    submitted(store)
    cancelled = own(store).invocations.request_cancel("invocation-1")
    assert cancelled is not None
    assert (cancelled.state, cancelled.finished_at is None) == (JobState.CANCELLED, False)
    assert store.invocations.start("invocation-1", "w1") is None
    assert own(store).invocations.request_cancel("invocation-1") == cancelled
    assert own(store).invocations.request_cancel("another") is None


def test_an_invocation_keeps_the_trace_of_its_first_submission(store: Store, job: str) -> None:
    for trace in ("first", "second"):
        own(store).invocations.submit("invocation-1", JOB, DIGEST, 10, 3, traceparent=trace)
    assert store.invocations.traceparent("invocation-1") == "first"


def test_pages_show_every_invocation_once_newest_first(store: Store, job: str) -> None:
    ids = [submitted(store, number).id for number in range(5)]
    first = own(store).invocations.page(JOB, 3)
    second = own(store).invocations.page(JOB, 3, first.next)
    assert [item.id for item in (*first.items, *second.items)] == ids[::-1]
    assert second.next is None
    assert own(store).invocations.page("another-job", 3).items == ()


def test_invocations_go_with_their_compilation(store: Store, job: str) -> None:
    submitted(store)
    with store.database.write() as connection:
        connection.execute(sa.delete(JOBS))
    assert own(store).invocations.get("invocation-1") is None
