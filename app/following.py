"""Following a job's events: cheap polling of the one table that holds them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from time import monotonic

from starlette.concurrency import run_in_threadpool

from app.service import Service
from bessemer.contract.base import JobId
from bessemer.contract.job import Compilation, Event

LAG_SHARE = 0.05
STATE_CHECK_SECONDS = 15.0


def wait_seconds(quiet_seconds: float, shortest_seconds: float, longest_seconds: float) -> float:
    """How long to wait before the next look: a share of the time for which nothing has happened.

    News are late by at most that share, and a job that is quiet for long costs next to nothing.
    """
    return max(shortest_seconds, min(longest_seconds, quiet_seconds * LAG_SHARE))


async def follow(service: Service, job: Compilation, after: int) -> AsyncGenerator[Event]:
    """The events that follow number ``after``, as they happen.

    Ends after the final event, where nothing can follow ``after``, or when the server stops.
    """
    over = job.state.final
    news_at = checked_at = monotonic()
    while not service.stopping.is_set():
        events = await run_in_threadpool(service.store.jobs.events_after, job.id, after)
        for event in events:
            yield event
            after = event.seq
        if (events and events[-1].type.final) or (over and not events):
            return
        time = monotonic()
        if events:
            news_at = time
        if time - checked_at >= STATE_CHECK_SECONDS:
            over, checked_at = await run_in_threadpool(_is_over, service, job.id), time
        if not over:
            await _pause(service, time - news_at)


def _is_over(service: Service, job_id: JobId) -> bool:
    """A client that asks for events beyond the last would otherwise wait forever."""
    job = service.store.jobs.get(job_id)
    return job is None or job.state.final


async def _pause(service: Service, quiet_seconds: float) -> None:
    """Wait, but not beyond the moment at which the server begins to stop."""
    settings = service.settings
    seconds = wait_seconds(quiet_seconds, settings.events_poll_seconds, settings.events_quiet_poll_seconds)
    with suppress(TimeoutError):
        await asyncio.wait_for(service.stopping.wait(), seconds)
