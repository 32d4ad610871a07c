"""A cancel is never lost: a live worker learns of it, and without one the row ends."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from store_samples import DIGEST, a_request, a_worker

from bessemer.contract.invocation import Invocation
from bessemer.contract.job import Compilation, EventType, JobState
from bessemer.store.errors import FencedError
from bessemer.store.rows.invocations import Invocations
from bessemer.store.rows.jobs import Jobs
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.rows.tenant_invocations import TenantInvocations
from bessemer.store.rows.tenant_jobs import TenantJobs
from bessemer.store.store import Store
from tests.tenant_data import own, started

JOB, INVOCATION, WORKER = "job-00000001", "invocation-1", "worker-1"


@dataclass(frozen=True)
class Case:
    """What is cancelled; its first attempt is in flight on a live worker."""

    rows: Jobs | Invocations
    seen: TenantJobs | TenantInvocations
    row_id: str
    attempt: Attempt


@pytest.fixture(params=["compilation", "invocation"])
def case(request: pytest.FixtureRequest, store: Store) -> Case:
    own(store).jobs.submit(JOB, a_request())
    own(store).invocations.submit(INVOCATION, JOB, DIGEST, 10, 3)
    store.workers.beat(a_worker(WORKER))
    if request.param == "compilation":
        return Case(store.jobs, own(store).jobs, JOB, started(store.jobs, JOB, WORKER))
    attempt = started(store.invocations, INVOCATION, WORKER)
    return Case(store.invocations, own(store).invocations, INVOCATION, attempt)


def cancelled(case: Case) -> Compilation | Invocation:
    found = case.seen.request_cancel(case.row_id)
    assert found is not None
    return found


def require_cancelled(case: Case) -> None:
    """It has ended so, once, and no worker takes it again."""
    found = case.seen.get(case.row_id)
    assert found is not None
    assert (found.state, found.finished_at is None) == (JobState.CANCELLED, False)
    if isinstance(case.seen, TenantJobs):
        types = [event.type for event in case.seen.events_after(JOB, 0)]
        assert types == [EventType.QUEUED, EventType.STARTED, EventType.CANCELLED]
    assert case.rows.start(case.row_id, "another") is None
    with pytest.raises(FencedError):
        case.rows.cancel_requested(case.row_id, case.attempt)


def forget(store: Store) -> None:
    """As the process that finds the worker lost."""
    with store.workers.removing(WORKER, store.workers.beats()[WORKER]) as is_ours:
        assert is_ours


def test_what_a_live_worker_has_in_hand_is_asked_to_stop(case: Case) -> None:
    assert cancelled(case).state is JobState.RUNNING
    assert case.rows.cancel_requested(case.row_id, case.attempt)


def test_what_a_lost_worker_had_in_hand_is_cancelled_at_once(case: Case, store: Store) -> None:
    forget(store)
    assert cancelled(case).state is JobState.CANCELLED
    require_cancelled(case)


def test_what_was_to_be_cancelled_ends_when_its_worker_is_forgotten(case: Case, store: Store) -> None:
    cancelled(case)
    forget(store)
    require_cancelled(case)


def test_only_what_was_to_be_cancelled_ends_when_its_worker_is_forgotten(case: Case, store: Store) -> None:
    forget(store)
    assert started(case.rows, case.row_id, "another").number == 2


def test_a_cancel_while_its_worker_is_being_forgotten_is_not_lost(case: Case, store: Store) -> None:
    seen_at = store.workers.beats()[WORKER]
    with ThreadPoolExecutor(1) as pool:
        with store.workers.removing(WORKER, seen_at):
            asked = pool.submit(cancelled, case)
            time.sleep(0.2)
        asked.result()
    require_cancelled(case)


def test_what_was_to_be_cancelled_ends_when_it_is_handed_back(case: Case) -> None:
    cancelled(case)
    case.rows.hand_back(case.row_id, case.attempt)
    require_cancelled(case)


def test_what_was_to_be_cancelled_is_not_begun_again(case: Case) -> None:
    cancelled(case)
    assert case.rows.start(case.row_id, "another") is None
    require_cancelled(case)
