"""Runs a task to its end: attempts it until one attempt ends it, and counts the lost attempts."""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.store.errors import FencedError, StoreUnavailableError
from bessemer.store.queue_port import Loss, PostponedError, Postponement, TaskKind
from worker.errors import AttemptLostError
from worker.supervisor.job_runner import JobRunner
from worker.supervisor.retry import is_full, is_given_up, worker_lost

log = logging.getLogger(__name__)


class TaskHandler(ABC):
    """A task of this worker: how to move its row, and how to attempt it.

    The methods that are not ``async`` block, and raise ``FencedError`` if the attempt no longer owns the
    task. A ``claim`` is the row's number for the attempt.
    """

    kind: TaskKind

    @abstractmethod
    def describe(self, claim: int) -> str:
        """The name of an attempt in the log and in problems."""

    @abstractmethod
    def take(self) -> int | None:
        """Claim the task for this worker; None if it is already done."""

    @abstractmethod
    def lost_attempts(self, claim: int) -> int:
        """How many attempts were lost before this one."""

    @abstractmethod
    def hand_back(self, claim: int) -> None:
        """Release the task. This attempt does not count as lost."""

    @abstractmethod
    async def attempt(self, claim: int, lost_attempts: int) -> Problem | None:
        """Do the task, write its result, and return its problem, if any.

        Raises:
            AttemptLostError: the attempt failed, the task is not to blame, and another attempt may help.
            StoreUnavailableError: the store was unavailable for too long.
            OSError: the worker's disk is full.
        """

    @abstractmethod
    def fail(self, claim: int, problem: Problem) -> None:
        """End the task with a problem."""

    def is_cancelled(self, claim: int) -> bool:
        """If the user has cancelled the task, end it as cancelled and return True."""
        return False

    def lost_workers(self) -> tuple[str, ...]:
        """The workers of the earlier attempts, as far as they are known."""
        return ()


async def run_to_end(task: TaskHandler, runner: JobRunner) -> None:
    """Attempt a task until it has ended or belongs to another worker.

    Raises:
        StoreUnavailableError: the store was unavailable for too long; the task is handed back.
        PostponedError: this worker's disk is full, or its zygote does not start; the task is handed back.
    """
    while (claim := await runner.store_retry.call(task.take)) is not None:
        try:
            async with _handing_back(task, claim, runner.worker_id):
                problem = await _attempted(task, claim, runner)
        except AttemptLostError as error:
            log.warning("lost %s: %s", task.describe(claim), error)
            runner.count_lost(task.kind, error.why)
            await runner.prepare()
            continue
        except FencedError:
            log.warning(
                "%s is obsolete: another worker has taken the task, or it was deleted", task.describe(claim)
            )
            runner.count_lost(task.kind, Loss.FENCED)
            return
        except (StoreUnavailableError, PostponedError):
            raise
        except Exception as error:
            log.exception("internal error in %s", task.describe(claim))
            problem = _internal_error(error, task.describe(claim), runner.worker_id)
            try:
                problem = await runner.store_retry.call(partial(_fail, task, claim, problem))
            except FencedError:  # the error came after the task's end
                return
        runner.count_ended(task.kind, problem)
        return


async def _attempted(task: TaskHandler, claim: int, runner: JobRunner) -> Problem | None:
    lost_attempts = await runner.store_retry.call(partial(task.lost_attempts, claim))
    if not is_given_up(lost_attempts):
        return await task.attempt(claim, lost_attempts)
    problem = worker_lost(lost_attempts, await runner.store_retry.call(task.lost_workers))
    return await runner.store_retry.call(partial(_fail, task, claim, problem))


def _fail(task: TaskHandler, claim: int, problem: Problem) -> Problem:
    """End a task with a problem, or as cancelled if the user has cancelled it; return the final problem."""
    if task.is_cancelled(claim):
        return make_problem(ErrorCode.CANCELLED, f"cancelled before this failure: {problem.detail}")
    task.fail(claim, problem)
    return problem


@asynccontextmanager
async def _handing_back(task: TaskHandler, claim: int, worker_id: str) -> AsyncIterator[None]:
    """Release the task if the attempt stops and the task is not to blame."""
    try:
        yield
    except (asyncio.CancelledError, StoreUnavailableError):
        await asyncio.shield(asyncio.to_thread(_release, task, claim))
        raise
    except OSError as error:
        if not is_full(error):
            raise
        await asyncio.to_thread(_release, task, claim)
        detail = f"the disk of worker {worker_id} is full: {error}"
        raise PostponedError(Postponement.DISK_FULL, detail) from error


def _release(task: TaskHandler, claim: int) -> None:
    try:
        with contextlib.suppress(FencedError):
            task.hand_back(claim)
    except StoreUnavailableError as error:
        log.warning("cannot release the task, so this attempt will count as lost: %s", error)


def _internal_error(error: Exception, attempt: str, worker_id: str) -> Problem:
    problem = make_problem(ErrorCode.INTERNAL, f"{type(error).__name__} in the supervisor during {attempt}")
    advice = f"This is a defect in Bessemer: please report it with the log of worker {worker_id}."
    return problem.model_copy(update={"advice": advice})
