"""Which attempts are retried, and how long an unavailable store is retried."""

import errno

import pytest

from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.queue import Loss
from bessemer.store.errors import FencedError, StoreUnavailableError
from worker.errors import AttemptLostError, failure_of
from worker.supervisor.retry import StoreRetry, is_given_up, retry_helps, unless_lost, waits, worker_lost


@pytest.mark.parametrize(
    ("code", "lost_attempts", "helps"),
    [
        (ErrorCode.CHILD_KILLED, 0, True),
        (ErrorCode.CHILD_KILLED, 1, True),
        (ErrorCode.CHILD_KILLED, 2, False),
        (ErrorCode.WORKER_DISK_FULL, 0, True),
        (ErrorCode.CHILD_CRASHED, 0, False),
        (ErrorCode.LIMIT_MEMORY, 0, False),
        (ErrorCode.TIMEOUT, 0, False),
        (ErrorCode.CANCELLED, 0, False),
        (ErrorCode.VERIFY_MISMATCH, 0, False),
    ],
)
def test_an_attempt_is_retried_only_where_a_retry_can_help(
    code: ErrorCode, lost_attempts: int, helps: bool
) -> None:
    assert retry_helps(make_problem(code, ""), lost_attempts) is helps


@pytest.mark.parametrize(
    ("code", "why"),
    [(ErrorCode.CHILD_KILLED, Loss.CHILD_KILLED), (ErrorCode.WORKER_DISK_FULL, Loss.DISK_FULL)],
)
def test_a_lost_attempt_names_its_cause(code: ErrorCode, why: Loss) -> None:
    with pytest.raises(AttemptLostError) as lost_attempt:
        unless_lost(make_problem(code, "gone"), 0)
    assert lost_attempt.value.why is why


@pytest.mark.parametrize(("lost_attempts", "expected"), [(0, False), (2, False), (3, True), (4, True)])
def test_a_task_is_given_up_after_three_lost_attempts(lost_attempts: int, expected: bool) -> None:
    assert is_given_up(lost_attempts) is expected


def test_a_task_given_up_names_the_lost_workers() -> None:
    problem = worker_lost(3, ("a", "b", "a"))
    assert problem.code is ErrorCode.WORKER_LOST
    assert problem.detail == "3 attempts were lost with their workers (a, b, a)"


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("write: No space left on device")],
    ids=["an errno", "another library's message"],
)
def test_a_full_disk_is_not_the_stages_fault(error: Exception) -> None:
    assert failure_of(ErrorCode.PACKAGE_FAILED, error).code is ErrorCode.WORKER_DISK_FULL


class Away:
    """A store that answers from the third call on."""

    calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls < 3:
            raise StoreUnavailableError("away")
        return "here"


async def test_the_retry_waits_for_a_store_that_comes_back() -> None:
    store = Away()
    assert await StoreRetry(60).call(store) == "here"
    assert store.calls == 3


async def test_the_retry_gives_up() -> None:
    store = Away()
    with pytest.raises(StoreUnavailableError):
        await StoreRetry(0).call(store)
    assert store.calls == 1


async def test_only_an_unavailable_store_is_retried() -> None:
    def fenced() -> None:
        raise FencedError("job", 1)

    with pytest.raises(FencedError):
        await StoreRetry(60).call(fenced)


def test_the_waits_grow_up_to_two_seconds() -> None:
    first = [next_ for next_, _ in zip(waits(), range(7), strict=False)]
    assert first == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
