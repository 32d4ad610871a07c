"""Which ends of an attempt another attempt can help: pure policies."""

import errno
from typing import TypeVar

from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.queue import Loss
from worker.errors import AttemptLostError

MAX_LOST_ATTEMPTS = 3
"""A task that cost so many workers, zygotes or children their lives is taken from the queue for good."""

NOT_THE_JOBS_FAULT = {ErrorCode.CHILD_KILLED: Loss.CHILD_KILLED, ErrorCode.WORKER_DISK_FULL: Loss.DISK_FULL}
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

Result = TypeVar("Result")


def retry_helps(problem: Problem, lost_attempts: int) -> bool:
    """Whether an attempt that ended with a problem is to be counted as lost, and another one made.

    A model that is wrong stays wrong, and what passed a limit will pass it again; a process that somebody
    killed from outside, or a disk that others filled, may fare better.

    Args:
        problem: how the attempt ended.
        lost_attempts: how many were lost before it.
    """
    return problem.code in NOT_THE_JOBS_FAULT and lost_attempts + 1 < MAX_LOST_ATTEMPTS


def unless_lost(result: Result, lost_attempts: int) -> Result:
    """How an attempt ended, where no other attempt can help.

    Raises:
        AttemptLostError: another one may.
    """
    if isinstance(result, Problem) and retry_helps(result, lost_attempts):
        raise AttemptLostError(result.detail, NOT_THE_JOBS_FAULT[result.code])
    return result


def is_given_up(lost_attempts: int) -> bool:
    """Whether a task is not to be tried again."""
    return lost_attempts >= MAX_LOST_ATTEMPTS


def lost(lost_attempts: int, workers: tuple[str, ...] = ()) -> Problem:
    """The problem of a task that is given up.

    Args:
        lost_attempts: how many attempts ended without a word.
        workers: who had them in hand, as far as this is known.
    """
    names = f" ({', '.join(workers)})" if workers else ""
    return make_problem(
        ErrorCode.WORKER_LOST, f"{lost_attempts} attempts were lost with their workers{names}"
    )


def is_full(error: OSError) -> bool:
    """Whether a call failed because a disk is full."""
    return error.errno in FULL
