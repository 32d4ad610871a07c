"""When to attempt a task again, and how long to wait for the store."""

import asyncio
import errno
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.queue import Loss
from bessemer.store.errors import StoreUnavailableError
from worker.errors import AttemptLostError

MAX_LOST_ATTEMPTS = 3
"""After this many lost attempts, a task leaves the queue for good."""

NOT_THE_JOBS_FAULT = {ErrorCode.CHILD_KILLED: Loss.CHILD_KILLED, ErrorCode.WORKER_DISK_FULL: Loss.DISK_FULL}
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 2.0

Result = TypeVar("Result")

log = logging.getLogger(__name__)


def retry_helps(problem: Problem, lost_attempts: int) -> bool:
    """Whether to count an attempt that ended with a problem as lost, and make another.

    A wrong model stays wrong, and a job that exceeded a limit will exceed it again. But a killed process or a
    full disk may be gone next time.

    Args:
        problem: how the attempt ended.
        lost_attempts: how many attempts were lost before it.
    """
    return problem.code in NOT_THE_JOBS_FAULT and lost_attempts + 1 < MAX_LOST_ATTEMPTS


def unless_lost(result: Result, lost_attempts: int) -> Result:
    """The result of an attempt, unless another attempt may help.

    Raises:
        AttemptLostError: another attempt may help.
    """
    if isinstance(result, Problem) and retry_helps(result, lost_attempts):
        raise AttemptLostError(result.detail, NOT_THE_JOBS_FAULT[result.code])
    return result


def is_given_up(lost_attempts: int) -> bool:
    """Whether a task has lost too many attempts."""
    return lost_attempts >= MAX_LOST_ATTEMPTS


def worker_lost(lost_attempts: int, workers: tuple[str, ...] = ()) -> Problem:
    """The problem of a task that is given up.

    Args:
        lost_attempts: how many attempts were lost.
        workers: the workers that made them, as far as they are known.
    """
    names = f" ({', '.join(workers)})" if workers else ""
    return make_problem(
        ErrorCode.WORKER_LOST, f"{lost_attempts} attempts were lost with their workers{names}"
    )


def is_full(error: OSError) -> bool:
    """Whether a call failed because a disk is full."""
    return error.errno in FULL


@dataclass(frozen=True)
class StoreRetry:
    """Repeats calls to the store for up to ``seconds`` while it is unavailable."""

    seconds: float

    async def call(self, action: Callable[[], Result]) -> Result:
        """Run a blocking call in a thread, and repeat it while the store is unavailable.

        Raises:
            StoreUnavailableError: the store was unavailable for longer than ``seconds``.
        """
        deadline = time.monotonic() + self.seconds
        for wait_seconds in waits():
            try:
                return await asyncio.to_thread(action)
            except StoreUnavailableError as error:
                if time.monotonic() + wait_seconds > deadline:
                    raise
                log.warning("waiting for the store: %s", str(error).splitlines()[0])
            await asyncio.sleep(wait_seconds)
        raise AssertionError("the waits are endless")


def waits() -> Iterator[float]:
    """Seconds between calls: they double each time, up to two seconds."""
    return (min(FIRST_WAIT_SECONDS * 2**number, LONGEST_WAIT_SECONDS) for number in itertools.count())
