"""Runs one job from the supervisor's side: from its order until all its processes are gone."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bessemer.contract.base import Document
from bessemer.store.errors import FencedError, StoreUnavailableError
from worker.errors import MisbehavedError, ZygoteLostError
from worker.job.folder import JobFolder
from worker.protocol.conversation import Conversation, LastMessage, Question
from worker.protocol.messages import (
    BundleRead,
    Confined,
    ProgressMade,
    StageFinished,
    StageStarted,
    TurnEnded,
    TurnRequested,
)
from worker.protocol.observer import JobObserver, observe
from worker.protocol.order import StartJob
from worker.settings import Limits, TurnLimits
from worker.supervisor.collect import log_tail
from worker.supervisor.job_record import JobRecord
from worker.supervisor.outcome import JobOutcome
from worker.supervisor.retry import StoreRetry
from worker.supervisor.running_job import RunningJob
from worker.supervisor.turns import HostTurns
from worker.supervisor.usage import Usage
from worker.supervisor.watch import ignore_usage, watch
from worker.supervisor.zygote_handle import ZygoteHandle

CANCEL_POLL_SECONDS = 0.25
LAST_MESSAGES_SECONDS = 5.0
LOG_SECONDS = 1.0
LOG_SHOWN_BYTES = 16_384
"""How much of a running job's log is kept; after the job, the whole log is kept as a file."""

Services = Mapping[type, Callable[[Any], Awaitable[Document | None]]]
"""What a running job may send its supervisor, by the class of the message. A result is the job's answer."""


@dataclass(frozen=True)
class Supervision:
    """How a job is watched.

    Attributes:
        folder: the job's folder.
        limits: what the job may use.
        turn_limits: how the job shares its host while it measures.
        record: observes the job first; called again if the store was unavailable.
        store_retry: how long a report may wait for the store.
        observers: observe what is recorded; they must neither block nor raise.
        on_usage: called with every measurement of what the job uses; must not block.
        services: what the job may send besides.
    """

    folder: JobFolder
    limits: Limits
    turn_limits: TurnLimits
    record: JobRecord
    store_retry: StoreRetry
    observers: tuple[JobObserver, ...] = ()
    on_usage: Callable[[Usage], None] = ignore_usage
    services: Services = field(default_factory=dict)


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reported:
    """The child's last message, or how it violated the protocol."""

    last: LastMessage | None
    violation: str | None


async def run_job(zygote: ZygoteHandle, order: StartJob, supervision: Supervision) -> JobOutcome:
    """Have the zygote run a job, record its reports, and kill it if it exceeds a limit.

    Every process of the job is gone when this returns or raises.

    Raises:
        FencedError: another worker has taken over the job.
        StoreUnavailableError: the store was unavailable for too long to record a report.
        ZygoteLostError: the zygote ended; the job is not to blame.
    """
    record, folder = supervision.record, supervision.folder
    async with (
        await zygote.start_job(order) as job,
        _cancel_flag(record) as cancelled,
        _log_kept(record, folder),
    ):
        turns = HostTurns(supervision.turn_limits, job.grant_turn)
        listening = asyncio.ensure_future(_listen(job, turns, supervision))
        try:
            termination = await watch(job, supervision.limits, cancelled.is_set, supervision.on_usage)
            exit_ = await asyncio.shield(job.exited)
            await job.kill()
            # the last reports may still wait for the store
            patience_seconds = LAST_MESSAGES_SECONDS + supervision.store_retry.seconds
            reported = await asyncio.wait_for(listening, patience_seconds)
        finally:
            listening.cancel()
            await turns.close()
        if exit_.zygote_lost and termination is None:
            raise ZygoteLostError("the zygote ended while the job ran")
        return JobOutcome(
            last=reported.last,
            termination=termination,
            violation=reported.violation,
            status=exit_.status,
            signal=exit_.signal,
            stage=record.stage,
            log=await asyncio.to_thread(log_tail, folder.path),
            progress=record.latest,
        )


async def _listen(job: RunningJob, turns: HostTurns, supervision: Supervision) -> Reported:
    conversation, began = Conversation(), time.monotonic()
    try:
        async for message in job.messages():
            conversation = conversation.heard(message, time.monotonic() - began)
            match message:
                case TurnRequested():
                    turns.begin()
                case TurnEnded():
                    turns.end()
                case _ if isinstance(message, Question):
                    await _serve(job, message, supervision.services)
                case Confined() | StageStarted() | StageFinished() | ProgressMade() | BundleRead():
                    await supervision.store_retry.call(partial(observe, message, supervision.record))
                    for observer in supervision.observers:
                        observe(message, observer)
                case _ if isinstance(message, LastMessage):
                    pass
    except MisbehavedError as error:
        await job.kill()
        return Reported(last=None, violation=error.detail)
    except Exception:
        # without a reader, the child would block until its time is up
        await job.kill()
        raise
    return Reported(last=conversation.last, violation=None)


async def _serve(job: RunningJob, message: Question, services: Services) -> None:
    """Do what a job asks for beside its turns, and answer, unless the job ends first."""
    serve = services.get(type(message))
    if serve is None:
        raise MisbehavedError(f"the job must not send '{message.kind}'")
    working = asyncio.ensure_future(serve(message))
    first: set[asyncio.Future[Any]] = {working, job.exited}
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        answer = working.result() if working.done() else None
        if answer is not None:
            await job.answer(answer.model_dump_json().encode() + b"\n")
    finally:
        working.cancel()
        await asyncio.wait({working})


@asynccontextmanager
async def _cancel_flag(record: JobRecord) -> AsyncIterator[asyncio.Event]:
    flag = asyncio.Event()
    polling = asyncio.ensure_future(_poll(record, flag))
    try:
        yield flag
    finally:
        polling.cancel()
        # the next write meets a lost claim on the job as well
        with contextlib.suppress(asyncio.CancelledError, FencedError):
            await polling


@asynccontextmanager
async def _log_kept(record: JobRecord, folder: JobFolder) -> AsyncIterator[None]:
    """Keep the end of the job's log while it runs, and once more after its processes are gone."""
    following = asyncio.ensure_future(_follow_log(record, folder))
    try:
        yield
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        await asyncio.shield(_keep_log(record, folder))


async def _follow_log(record: JobRecord, folder: JobFolder) -> None:
    while True:
        await asyncio.sleep(LOG_SECONDS)
        await _keep_log(record, folder)


async def _keep_log(record: JobRecord, folder: JobFolder) -> None:
    try:
        tail = await asyncio.to_thread(log_tail, folder.path, LOG_SHOWN_BYTES)
        await asyncio.to_thread(record.printed, tail)
    except (FencedError, StoreUnavailableError) as error:
        log.debug("cannot keep the job's log: %s", error)


async def _poll(record: JobRecord, flag: asyncio.Event) -> None:
    while not flag.is_set():
        try:
            if await asyncio.to_thread(record.cancel_requested):
                flag.set()
        except StoreUnavailableError as error:
            log.warning("cannot check whether the job is cancelled: %s", error)
        except FencedError:
            flag.set()  # the attempt is obsolete
        await asyncio.sleep(CANCEL_POLL_SECONDS)
