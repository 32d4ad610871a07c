"""A cancel is never lost: whoever could be told of it is told, and without such a one the row ends."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from store_samples import DIGEST, a_request, a_worker

from bessemer.contract.invocation import Invocation
from bessemer.contract.job import Compilation, EventType, JobState
from bessemer.store.errors import FencedError
from bessemer.store.rows.invocations import Invocations
from bessemer.store.rows.jobs import Jobs
from bessemer.store.store import Store

JOB, INVOCATION, WORKER = "job-00000001", "invocation-1", "worker-1"


@pytest.fixture(params=["compilation", "invocation"])
def moves(request: pytest.FixtureRequest, store: Store) -> Jobs | Invocations:
    """The moves of what is cancelled; its first attempt is in the hand of a worker that is alive."""
    store.jobs.submit(JOB, a_request())
    store.invocations.submit(INVOCATION, JOB, DIGEST, 10, 3)
    store.workers.beat(a_worker(WORKER))
    chosen: Jobs | Invocations = store.jobs if request.param == "compilation" else store.invocations
    chosen.start(row_id(chosen), WORKER)
    return chosen


def row_id(moves: Jobs | Invocations) -> str:
    return JOB if isinstance(moves, Jobs) else INVOCATION


def cancelled(moves: Jobs | Invocations) -> Compilation | Invocation:
    found = moves.request_cancel(row_id(moves))
    assert found is not None
    return found


def require_cancelled(moves: Jobs | Invocations) -> None:
    """It has ended so, once, and nobody takes it any more."""
    found = moves.get(row_id(moves))
    assert found is not None
    assert (found.state, found.finished_at is None) == (JobState.CANCELLED, False)
    if isinstance(moves, Jobs):
        types = [event.type for event in moves.events_after(JOB, 0)]
        assert types == [EventType.QUEUED, EventType.STARTED, EventType.CANCELLED]
    assert moves.start(row_id(moves), "another") is None
    with pytest.raises(FencedError):
        moves.cancel_requested(row_id(moves), 1)


def forget(store: Store) -> None:
    """As whoever finds the worker lost."""
    with store.workers.removing(WORKER, store.workers.beats()[WORKER]) as is_ours:
        assert is_ours


def test_what_a_live_worker_has_in_hand_is_asked_to_stop(moves: Jobs | Invocations) -> None:
    assert cancelled(moves).state is JobState.RUNNING
    assert moves.cancel_requested(row_id(moves), 1)


def test_what_a_lost_worker_had_in_hand_is_cancelled_at_once(moves: Jobs | Invocations, store: Store) -> None:
    forget(store)
    assert cancelled(moves).state is JobState.CANCELLED
    require_cancelled(moves)


def test_what_was_to_be_cancelled_ends_when_its_worker_is_forgotten(
    moves: Jobs | Invocations, store: Store
) -> None:
    cancelled(moves)
    forget(store)
    require_cancelled(moves)


def test_only_what_was_to_be_cancelled_ends_when_its_worker_is_forgotten(
    moves: Jobs | Invocations, store: Store
) -> None:
    forget(store)
    assert moves.start(row_id(moves), "another") == 2


def test_a_cancel_while_its_worker_is_being_forgotten_is_not_lost(
    moves: Jobs | Invocations, store: Store
) -> None:
    seen_at = store.workers.beats()[WORKER]
    with ThreadPoolExecutor(1) as pool:
        with store.workers.removing(WORKER, seen_at):
            asked = pool.submit(cancelled, moves)
            time.sleep(0.2)
        asked.result()
    require_cancelled(moves)


def test_what_was_to_be_cancelled_ends_when_it_is_handed_back(moves: Jobs | Invocations) -> None:
    cancelled(moves)
    moves.hand_back(row_id(moves), 1)
    require_cancelled(moves)


def test_what_was_to_be_cancelled_is_not_begun_again(moves: Jobs | Invocations) -> None:
    cancelled(moves)
    assert moves.start(row_id(moves), "another") is None
    require_cancelled(moves)
