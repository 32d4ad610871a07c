"""Clients that follow jobs, and how late what happens to a job reaches them.

The jobs are held as a worker holds them, so that their events are real ones, and stay held: nothing but what
is measured happens to them. Their tasks stay at the queue's very end.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx

from benchmarks.service.clients import Clients
from bessemer.client.events import EventReader
from bessemer.contract.base import now
from bessemer.contract.job import Progress
from bessemer.contract.request import MAX_PRIORITY
from bessemer.contract.stage import Stage
from bessemer.store.rows.jobs import Jobs
from worker.supervisor.job_record import PROGRESS_SECONDS

WORKER = "benchmark"
SILENCE_SECONDS = 25.0
"""After such a silence the app looks at a job as seldom as it ever does."""
LIVELY_JOBS, LIVELY_EVENTS = 8, 32
SPREAD_SECONDS = 2.0
PATIENCE_SECONDS = 60.0


class Followers:
    """The streams of several clients, and how late each event reached its client."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._late: asyncio.Queue[float] = asyncio.Queue()

    async def follow(self, job_id: str) -> None:
        """Follow a job until it ends."""
        reader = EventReader()
        async with self._http.stream("GET", f"/v1/compilations/{job_id}/events", timeout=None) as stream:
            stream.raise_for_status()
            async for chunk in stream.aiter_bytes():
                moment = now()
                for event in reader.feed(chunk):
                    self._late.put_nowait((moment - event.at).total_seconds())

    async def late_seconds(self, count: int) -> list[float]:
        """Seconds from when each of the next so many events was recorded until its follower had it.

        Raises:
            TimeoutError: they do not come: a stream has ended.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            return [await self._late.get() for _ in range(count)]


class FollowedJobs:
    """Jobs in hand, each with a follower.

    Args:
        jobs: the table, to which their events are written as a worker does.
        attempts: of each job, the attempt that has it in hand.
        followers: of all of them.
    """

    def __init__(self, jobs: Jobs, attempts: Mapping[str, int], followers: Followers) -> None:
        self._jobs = jobs
        self._attempts = attempts
        self._followers = followers
        self._random = random.Random(0)
        self._heard_at = time.monotonic()

    async def fall_silent(self) -> None:
        """Wait until nothing has happened for ``SILENCE_SECONDS``."""
        await asyncio.sleep(self._heard_at + SILENCE_SECONDS - time.monotonic())

    async def break_silence(self) -> list[float]:
        """One event of each silent job, at random moments; how late each is, in seconds."""
        await self.fall_silent()
        await asyncio.gather(*(self._tell(job_id, 1, SPREAD_SECONDS / 2) for job_id in self._attempts))
        return await self._heard(len(self._attempts))

    async def work(self) -> list[float]:
        """Events of a few jobs, as often as a worker lets a job tell of its progress; how late each is."""
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
    """Follow as many new jobs, each on a connection of its own, and take them in hand."""
    followers = Followers(clients.http)
    ids = [await clients.submit(-MAX_PRIORITY) for _ in range(count)]
    streams = [asyncio.create_task(followers.follow(job_id)) for job_id in ids]
    try:
        attempts = {job_id: await asyncio.to_thread(_taken, jobs, job_id) for job_id in ids}
        await followers.late_seconds(2 * count)  # that it was queued, and started
        yield FollowedJobs(jobs, attempts, followers)
    finally:
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)


def _taken(jobs: Jobs, job_id: str) -> int:
    attempt = jobs.start(job_id, WORKER)
    assert attempt is not None
    return attempt
