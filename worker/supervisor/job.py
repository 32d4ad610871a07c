"""One job, as the supervisor sees it: from its order to its ending."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from bessemer.store.errors import FencedError, StoreUnavailableError
from worker.errors import MisbehavedError, ZygoteLostError
from worker.job.folder import JobFolder
from worker.protocol.messages import Compiled, Confined, Failed, Inspected, Invoked
from worker.protocol.order import StartJob
from worker.settings import Limits
from worker.supervisor.collect import log_tail
from worker.supervisor.journal import Journal
from worker.supervisor.observers import UNOBSERVED, Observer
from worker.supervisor.outcome import Ending
from worker.supervisor.running_job import RunningJob
from worker.supervisor.store_retry import StoreRetry
from worker.supervisor.watch import watch
from worker.supervisor.zygote_handle import ZygoteHandle

CANCEL_POLL_SECONDS = 0.25
LAST_WORDS_SECONDS = 5.0
LOG_SECONDS = 1.0
LOG_SHOWN_BYTES = 16_384
"""Of a running job; the whole log is kept as a file once it has ended."""

log = logging.getLogger(__name__)

Last = Compiled | Inspected | Invoked | Failed | None


@dataclass(frozen=True)
class Heard:
    """What the child said in the end."""

    last: Last
    violation: str | None


async def run_job(
    zygote: ZygoteHandle,
    order: StartJob,
    folder: JobFolder,
    limits: Limits,
    journal: Journal,
    patience: StoreRetry,
    observer: Observer = UNOBSERVED,
) -> Ending:
    """Have the zygote run a job, write down what it says, and end it where it passes a limit.

    Every process of the job is gone when this returns or raises.

    Raises:
        FencedError: another worker has taken the job over.
        StoreUnavailableError: what the child said could not be written down for too long.
        ZygoteLostError: the zygote ended; the job is not to blame.
    """
    async with (
        await zygote.start_job(order) as job,
        _cancel_flag(journal) as cancelled,
        _tail_kept(journal, folder),
    ):
        listening = asyncio.ensure_future(_listen(job, journal, patience, observer))
        try:
            verdict = await watch(job, limits, cancelled.is_set, observer.used)
            exit_ = await asyncio.shield(job.exited)
            await job.kill()
            # what it said may still wait for the store
            heard = await asyncio.wait_for(listening, LAST_WORDS_SECONDS + patience.seconds)
        finally:
            listening.cancel()
        if exit_.zygote_lost and verdict is None:
            raise ZygoteLostError("the zygote ended while the job ran")
        return Ending(
            last=heard.last,
            verdict=verdict,
            violation=heard.violation,
            status=exit_.status,
            signal=exit_.signal,
            stage=journal.stage,
            log=await asyncio.to_thread(log_tail, folder.path),
            progress=journal.latest,
        )


async def _listen(job: RunningJob, journal: Journal, patience: StoreRetry, observer: Observer) -> Heard:
    last: Last = None
    confined = False
    try:
        async for message in job.messages():
            if isinstance(message, Confined) and confined:
                raise MisbehavedError("it said twice how it is confined")
            confined = confined or isinstance(message, Confined)
            if isinstance(message, Compiled | Inspected | Invoked | Failed):
                last = message
            else:
                await patience.call(partial(journal.write, message))
                observer.heard(message)
    except MisbehavedError as error:
        await job.kill()
        return Heard(last=None, violation=error.detail)
    except Exception:
        # nobody reads on: the child would wait for a reader until its time is up
        await job.kill()
        raise
    return Heard(last=last, violation=None)


@asynccontextmanager
async def _cancel_flag(journal: Journal) -> AsyncIterator[asyncio.Event]:
    flag = asyncio.Event()
    polling = asyncio.ensure_future(_poll(journal, flag))
    try:
        yield flag
    finally:
        polling.cancel()
        # whoever writes next meets a lost claim on the job as well
        with contextlib.suppress(asyncio.CancelledError, FencedError):
            await polling


@asynccontextmanager
async def _tail_kept(journal: Journal, folder: JobFolder) -> AsyncIterator[None]:
    """Keep what the job prints, a little later; and its last words, once its processes are gone."""
    following = asyncio.ensure_future(_follow_log(journal, folder))
    try:
        yield
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        await asyncio.shield(_keep_tail(journal, folder))


async def _follow_log(journal: Journal, folder: JobFolder) -> None:
    while True:
        await asyncio.sleep(LOG_SECONDS)
        await _keep_tail(journal, folder)


async def _keep_tail(journal: Journal, folder: JobFolder) -> None:
    try:
        tail = await asyncio.to_thread(log_tail, folder.path, LOG_SHOWN_BYTES)
        await asyncio.to_thread(journal.printed, tail)
    except (FencedError, StoreUnavailableError) as error:
        log.debug("what the job printed is not kept just now: %s", error)


async def _poll(journal: Journal, flag: asyncio.Event) -> None:
    while not flag.is_set():
        try:
            if await asyncio.to_thread(journal.cancel_requested):
                flag.set()
        except StoreUnavailableError as error:
            log.warning("whether the job is cancelled cannot be known just now: %s", error)
        except FencedError:
            flag.set()  # nobody wants this attempt any more
        await asyncio.sleep(CANCEL_POLL_SECONDS)
