"""Sees a task through: attempts at it are made until one has ended it; those that are lost are counted."""

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
from worker.supervisor.retry import is_full, is_given_up, lost

log = logging.getLogger(__name__)


class TaskHandler(ABC):
    """A task that this worker does: how its row moves, and what an attempt at it is.

    What is not ``async`` blocks, and raises ``FencedError`` where the attempt no longer owns the task. A
    ``claim`` is the number by which the row knows the attempt.
    """

    kind: TaskKind

    @abstractmethod
    def describe(self, claim: int) -> str:
        """What an attempt is called in the log and in problems."""

    @abstractmethod
    def take(self) -> int | None:
        """Claim the task for this worker; None where there is nothing to do any more."""

    @abstractmethod
    def lost_attempts(self, claim: int) -> int:
        """How many attempts were lost before this one."""

    @abstractmethod
    def hand_back(self, claim: int) -> None:
        """Let go of the task: this attempt does not count as lost."""

    @abstractmethod
    async def attempt(self, claim: int, lost_attempts: int) -> Problem | None:
        """Do the task and write its result; the problem, where it ended with one.

        Raises:
            AttemptLostError: it ended through no fault of the task's, and another attempt may help.
            StoreUnavailableError: the store was away for too long.
            OSError: the worker's disk is full.
        """

    @abstractmethod
    def fail(self, claim: int, problem: Problem) -> None:
        """End the task with a problem."""

    def is_cancelled(self, claim: int) -> bool:
        """End the task as cancelled where its user has asked for that; whether that was so."""
        return False

    def lost_workers(self) -> tuple[str, ...]:
        """Who had the attempts before this one in hand, as far as this is known."""
        return ()


async def see_through(task: TaskHandler, bench: JobRunner) -> None:
    """Attempt a task until it has ended, or is another worker's.

    Raises:
        StoreUnavailableError: the store was away for too long; the task is handed back.
        PostponedError: this worker's disk is full, or its zygote does not start; likewise.
    """
    while (claim := await bench.patience.call(task.take)) is not None:
        try:
            async with _handing_back(task, claim, bench.worker_id):
                problem = await _attempted(task, claim, bench)
        except AttemptLostError as error:
            log.warning("%s is lost: %s", task.describe(claim), error)
            bench.lost(task.kind, error.why)
            await bench.prepare()
            continue
        except FencedError:
            log.warning(
                "%s is over: another worker has taken the task, or it is deleted", task.describe(claim)
            )
            bench.lost(task.kind, Loss.FENCED)
            return
        except (StoreUnavailableError, PostponedError):
            raise
        except Exception as error:
            log.exception("%s failed by our own fault", task.describe(claim))
            problem = _own_fault(error, task.describe(claim), bench.worker_id)
            try:
                problem = await bench.patience.call(partial(_fail, task, claim, problem))
            except FencedError:  # the fault came after the task's end
                return
        bench.ended(task.kind, problem)
        return


async def _attempted(task: TaskHandler, claim: int, bench: JobRunner) -> Problem | None:
    lost_attempts = await bench.patience.call(partial(task.lost_attempts, claim))
    if not is_given_up(lost_attempts):
        return await task.attempt(claim, lost_attempts)
    problem = lost(lost_attempts, await bench.patience.call(task.lost_workers))
    return await bench.patience.call(partial(_fail, task, claim, problem))


def _fail(task: TaskHandler, claim: int, problem: Problem) -> Problem:
    """End a task with a problem, or as cancelled where its user has asked for that; what it ended with."""
    if task.is_cancelled(claim):
        return make_problem(ErrorCode.CANCELLED, f"cancelled before this was known: {problem.detail}")
    task.fail(claim, problem)
    return problem


@asynccontextmanager
async def _handing_back(task: TaskHandler, claim: int, worker_id: str) -> AsyncIterator[None]:
    """Where what runs inside stops through no fault of the task's, let go of the task."""
    try:
        yield
    except (asyncio.CancelledError, StoreUnavailableError):
        await asyncio.shield(asyncio.to_thread(_let_go, task, claim))
        raise
    except OSError as error:
        if not is_full(error):
            raise
        await asyncio.to_thread(_let_go, task, claim)
        detail = f"the disk of worker {worker_id} is full: {error}"
        raise PostponedError(Postponement.DISK_FULL, detail) from error


def _let_go(task: TaskHandler, claim: int) -> None:
    try:
        with contextlib.suppress(FencedError):
            task.hand_back(claim)
    except StoreUnavailableError as error:
        log.warning("this attempt will count as lost: %s", error)


def _own_fault(error: Exception, attempt: str, worker_id: str) -> Problem:
    problem = make_problem(ErrorCode.INTERNAL, f"{type(error).__name__} in the supervisor during {attempt}")
    advice = f"This is a defect of Bessemer: please report it with the log of worker {worker_id}."
    return problem.model_copy(update={"advice": advice})
