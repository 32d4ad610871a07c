"""Clients that follow jobs, and the delay of events.

The jobs are claimed like a worker claims them, so that their events are real, and never finish. Their tasks
stay at the end of the queue.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx
from httpx_sse import EventSource

from benchmarks.service.clients import Clients
from bessemer.contract.base import now
from bessemer.contract.job import Event, Progress
from bessemer.contract.request import MAX_PRIORITY
from bessemer.contract.stage import Stage
from bessemer.store.rows.jobs import Jobs
from bessemer.store.rows.lifecycle import Attempt
from worker.supervisor.job_record import PROGRESS_SECONDS

WORKER = "benchmark"
SILENCE_SECONDS = 25.0
"""After this silence the app polls a job at its lowest rate."""
LIVELY_JOBS, LIVELY_EVENTS = 8, 32
SPREAD_SECONDS = 2.0
PATIENCE_SECONDS = 60.0


class Followers:
    """Event streams of several clients, and the delay of each event."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._late: asyncio.Queue[float] = asyncio.Queue()

    async def follow(self, job_id: str) -> None:
        """Follow a job until it ends."""
        async with self._http.stream("GET", f"/v1/compilations/{job_id}/events", timeout=None) as stream:
            stream.raise_for_status()
            async for message in EventSource(stream).aiter_sse():
                if message.data:
                    event = Event.read_json(message.data)
                    self._late.put_nowait((now() - event.at).total_seconds())

    async def late_seconds(self, count: int) -> list[float]:
        """Return the delays of the next events, in seconds.

        Raises:
            TimeoutError: events are missing because a stream has ended.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            return [await self._late.get() for _ in range(count)]


class FollowedJobs:
    """Claimed jobs, each with a follower.

    Args:
        jobs: the table to write events to.
        attempts: the current attempt of each job.
        followers: the followers of all jobs.
    """

    def __init__(self, jobs: Jobs, attempts: Mapping[str, Attempt], followers: Followers) -> None:
        self._jobs = jobs
        self._attempts = attempts
        self._followers = followers
        self._random = random.Random(0)
        self._heard_at = time.monotonic()

    async def fall_silent(self) -> None:
        """Wait until nothing has happened for ``SILENCE_SECONDS``."""
        await asyncio.sleep(self._heard_at + SILENCE_SECONDS - time.monotonic())

    async def break_silence(self) -> list[float]:
        """Write one event per silent job at random moments; return the delays in seconds."""
        await self.fall_silent()
        await asyncio.gather(*(self._tell(job_id, 1, SPREAD_SECONDS / 2) for job_id in self._attempts))
        return await self._heard(len(self._attempts))

    async def work(self) -> list[float]:
        """Write events of a few jobs at the maximum progress rate; return the delays."""
        lively = list(self._attempts)[:LIVELY_JOBS]
        await asyncio.gather(*(self._tell(job_id, LIVELY_EVENTS, PROGRESS_SECONDS) for job_id in lively))
        return await self._heard(len(lively) * LIVELY_EVENTS)

    async def _tell(self, job_id: str, events: int, mean_seconds: float) -> None:
        for done in range(events):
            await asyncio.sleep(self._random.uniform(0, 2 * mean_seconds))
            progress = Progress(stage=Stage.TUNE, done=done, total=events)
            await asyncio.to_thread(self._jobs.progress, job_id, self._attempts[job_id], progress)

    async def _heard(self, count: int) -> list[float]:
        late = await self._followers.late_seconds(count)
        self._heard_at = time.monotonic()
        return late


@asynccontextmanager
async def followed(clients: Clients, jobs: Jobs, count: int) -> AsyncIterator[FollowedJobs]:
    """Submit, follow and claim new jobs, each follower on its own connection."""
    followers = Followers(clients.http)
    ids = [await clients.submit(-MAX_PRIORITY) for _ in range(count)]
    streams = [asyncio.create_task(followers.follow(job_id)) for job_id in ids]
    try:
        attempts = {job_id: await asyncio.to_thread(_taken, jobs, job_id) for job_id in ids}
        await followers.late_seconds(2 * count)  # queued and started
        yield FollowedJobs(jobs, attempts, followers)
    finally:
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)


def _taken(jobs: Jobs, job_id: str) -> Attempt:
    attempt = jobs.start(job_id, WORKER)
    assert attempt is not None
    return attempt
