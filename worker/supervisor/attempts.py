"""Runs a task to its end: attempts it until one attempt ends it, and counts the lost attempts."""

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Generic, TypeVar

from bessemer.contract.access import Tenant
from bessemer.contract.invocation import Invocation
from bessemer.contract.job import Compilation
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.store.errors import FencedError, StoreUnavailableError
from bessemer.store.queue_port import Loss, PostponedError, Postponement, TaskKind
from bessemer.store.rows.invocations import Invocations
from bessemer.store.rows.jobs import Jobs
from bessemer.store.rows.lifecycle import Attempt, Rows
from bessemer.store.store import TenantStore
from bessemer.telemetry.logs import log_fields
from bessemer.telemetry.traces import Tracer
from worker.errors import AttemptLostError
from worker.job.folder import JobFolder
from worker.protocol.messages import Message
from worker.supervisor.job_runner import SLOTS, JobRunner
from worker.supervisor.retry import is_full, is_given_up, unless_lost, worker_lost
from worker.supervisor.tracing import JobTrace, traced_job

log = logging.getLogger(__name__)

Row = TypeVar("Row", Compilation, Invocation)


class TaskHandler(ABC):
    """A task of this worker, whose row counts its attempts: how to attempt it, and how to end it.

    The methods that are not ``async`` block, and raise ``FencedError`` if the attempt no longer owns the
    task.
    """

    kind: TaskKind

    def __init__(self, task_id: str, rows: Rows, runner: JobRunner) -> None:
        self._id = task_id
        self._rows = rows
        self._runner = runner

    @abstractmethod
    def describe(self, claim: Attempt) -> str:
        """The name of an attempt in the log and in problems."""

    @abstractmethod
    async def attempt(self, claim: Attempt, lost_attempts: int) -> Problem | None:
        """Do the task, write its result, and return its problem, if any.

        Raises:
            AttemptLostError: the attempt failed, the task is not to blame, and another attempt may help.
            StoreUnavailableError: the store was unavailable for too long.
            OSError: the worker's disk is full.
        """

    @abstractmethod
    def fail(self, claim: Attempt, problem: Problem) -> None:
        """End the task with a problem."""

    def take(self) -> Attempt | None:
        """Begin an attempt; None if the task is done. An earlier one that still runs is fenced out."""
        return self._rows.start(self._id, self._runner.worker_id)

    def lost_attempts(self, claim: Attempt) -> int:
        """How many attempts were lost before this one."""
        return self._rows.lost_attempts(self._id, claim)

    def hand_back(self, claim: Attempt) -> None:
        """Release the task. This attempt does not count as lost."""
        self._rows.hand_back(self._id, claim)

    def is_cancelled(self, claim: Attempt) -> bool:
        """If the user has cancelled the task, end it as cancelled and return True."""
        return False

    def lost_workers(self) -> tuple[str, ...]:
        """The workers of the earlier attempts, as far as they are known."""
        return ()


class CancellableTask(TaskHandler, Generic[Row]):
    """A task that users can cancel, and which runs in a traced child.

    Attributes:
        noun: the name of the task in the log, in problems and in traces.
        folder_prefix: the start of the name of its folder.
    """

    noun: str
    folder_prefix = ""
    _rows: Jobs | Invocations

    def __init__(self, task_id: str, rows: Jobs | Invocations, runner: JobRunner, tracer: Tracer) -> None:
        super().__init__(task_id, rows, runner)
        self._tracer = tracer

    def describe(self, claim: Attempt) -> str:
        """By number and task."""
        return f"attempt {claim.number} of {self.noun} {self._id}"

    def fail(self, claim: Attempt, problem: Problem) -> None:
        """End the task with a problem."""
        self._rows.fail(self._id, claim, problem)

    def is_cancelled(self, claim: Attempt) -> bool:
        """Check the row."""
        requested = self._rows.cancel_requested(self._id, claim)
        if requested:
            self._rows.cancel_finished(self._id, claim)
        return requested

    async def attempt(self, claim: Attempt, lost_attempts: int) -> Problem | None:
        """Run the task in a child, and store the files that it leaves."""
        store_retry = self._runner.store_retry
        row = await store_retry.call(partial(self._read, claim))
        parent = await store_retry.call(partial(self._rows.traceparent, self._id))
        attributes: dict[str, str | int] = {
            **self._attributes(row),
            "bessemer.attempt": claim.number,
            "bessemer.worker": self._runner.worker_id,
        }
        with (
            log_fields(attempt=claim.number),
            traced_job(self._tracer, parent, row.created_at, attributes, self.noun) as trace,
        ):
            async with self._runner.folder(f"{self.folder_prefix}{self._id}", SLOTS[self.kind]) as folder:
                result = unless_lost(await self._result(row, claim, folder, trace), lost_attempts)
                trace.problem = await store_retry.call(partial(self._write, claim, folder, result))
        return trace.problem

    def _read(self, claim: Attempt) -> Row:
        row = self._row(self._runner.store.for_tenant(claim.tenant))
        if row is None:
            raise FencedError(self._id, claim.number)
        return row

    @abstractmethod
    def _row(self, store: TenantStore) -> Row | None:
        """The row's document; None if it was deleted."""

    @abstractmethod
    def _attributes(self, row: Row) -> dict[str, str]:
        """The attributes of its spans."""

    @abstractmethod
    async def _result(
        self, row: Row, attempt: Attempt, folder: JobFolder, trace: JobTrace
    ) -> Message | Problem:
        """Run the child, and return its last message or a problem."""

    @abstractmethod
    def _write(self, attempt: Attempt, folder: JobFolder, result: Message | Problem) -> Problem | None:
        """Write how the task ended, and return its problem, if any."""


async def run_to_end(task: TaskHandler, runner: JobRunner) -> None:
    """Attempt a task until it has ended or belongs to another worker.

    Raises:
        StoreUnavailableError: the store was unavailable for too long; the task is handed back.
        PostponedError: this worker's disk is full, or its zygote does not start; the task is handed back.
    """
    while (claim := await runner.store_retry.call(task.take)) is not None:
        try:
            async with _charged(claim.tenant, runner), _handing_back(task, claim, runner.worker_id):
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


async def _attempted(task: TaskHandler, claim: Attempt, runner: JobRunner) -> Problem | None:
    lost_attempts = await runner.store_retry.call(partial(task.lost_attempts, claim))
    if not is_given_up(lost_attempts):
        return await task.attempt(claim, lost_attempts)
    problem = worker_lost(lost_attempts, await runner.store_retry.call(task.lost_workers))
    return await runner.store_retry.call(partial(_fail, task, claim, problem))


def _fail(task: TaskHandler, claim: Attempt, problem: Problem) -> Problem:
    """End a task with a problem, or as cancelled if the user has cancelled it; return the final problem."""
    if task.is_cancelled(claim):
        return make_problem(ErrorCode.CANCELLED, f"cancelled before this failure: {problem.detail}")
    task.fail(claim, problem)
    return problem


@asynccontextmanager
async def _charged(tenant: Tenant, runner: JobRunner) -> AsyncIterator[None]:
    """Add the time of an attempt to its tenant's, however it ends."""
    began = time.monotonic()
    try:
        yield
    finally:
        add = partial(runner.store.worker_time.add, tenant, time.monotonic() - began)
        try:
            await asyncio.shield(asyncio.to_thread(add))
        except StoreUnavailableError as error:
            log.warning("cannot count the time of a task of tenant %s: %s", tenant, error)


@asynccontextmanager
async def _handing_back(task: TaskHandler, claim: Attempt, worker_id: str) -> AsyncIterator[None]:
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


def _release(task: TaskHandler, claim: Attempt) -> None:
    try:
        with contextlib.suppress(FencedError):
            task.hand_back(claim)
    except StoreUnavailableError as error:
        log.warning("cannot release the task, so this attempt will count as lost: %s", error)


def _internal_error(error: Exception, attempt: str, worker_id: str) -> Problem:
    problem = make_problem(ErrorCode.INTERNAL, f"{type(error).__name__} in the supervisor during {attempt}")
    advice = f"This is a defect in Bessemer: please report it with the log of worker {worker_id}."
    return problem.model_copy(update={"advice": advice})
