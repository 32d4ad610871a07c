"""Polls followed jobs for new events, once for all event streams of this process.

Each job's row counts its events. The broadcaster reads the counts of all due jobs in one query, and wakes the
streams of jobs with new events. Of several streams on one job, the first reads the events and the others
share them.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from starlette.concurrency import run_in_threadpool

from bessemer.contract.base import JobId
from bessemer.contract.job import Event
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.rows.jobs import Jobs
from bessemer.store.rows.tenant_jobs import TenantJobs

LAG_SHARE = 0.05

log = logging.getLogger(__name__)


def wait_seconds(quiet_seconds: float, shortest_seconds: float, longest_seconds: float) -> float:
    """The time until the next poll: a share of the time since the last event.

    This bounds an event's delay by that share, and makes a job that has been quiet for long cheap to follow.
    """
    return max(shortest_seconds, min(longest_seconds, quiet_seconds * LAG_SHARE))


@dataclass
class FollowedJob:
    """A job with open event streams.

    Attributes:
        last_seq: the number of its last event, as of the last poll.
        ended: whether that is its final event.
        changed: set and replaced when there are new events.
    """

    last_seq: int = 0
    ended: bool = False
    followers: int = 0
    changed_at: float = field(default_factory=monotonic)
    poll_at: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    batch: tuple[Event, ...] = ()


class EventBroadcaster:
    """Follows jobs for all streams of this process. ``run`` must be running."""

    def __init__(
        self, jobs: Jobs, stopping: asyncio.Event, shortest_seconds: float, longest_seconds: float
    ) -> None:
        self._jobs = jobs
        self._stopping = stopping
        self._shortest_seconds = shortest_seconds
        self._longest_seconds = longest_seconds
        self._followed: dict[JobId, FollowedJob] = {}
        self._more = asyncio.Event()

    @contextmanager
    def following(self, job_id: JobId) -> Iterator[FollowedJob]:
        """Poll a job inside the context."""
        followed = self._followed.setdefault(job_id, FollowedJob())
        followed.followers += 1
        followed.poll_at = 0.0
        self._more.set()
        try:
            yield followed
        finally:
            followed.followers -= 1
            if not followed.followers:
                del self._followed[job_id]

    async def events_after(
        self, jobs: TenantJobs, job_id: JobId, followed: FollowedJob, after: int
    ) -> tuple[Event, ...]:
        """The events so far after number ``after``, at most one batch.

        The followers of a job may share a batch, because a job's id belongs to one tenant.

        Raises:
            StoreUnavailableError: the database cannot be reached.
        """
        async with followed.reading:
            shared = followed.batch
            if not (shared and shared[0].seq <= after + 1 <= shared[-1].seq):
                shared = await run_in_threadpool(jobs.events_after, job_id, after)
                followed.batch = shared
        return shared[after + 1 - shared[0].seq :] if shared else ()

    async def run(self) -> None:
        """Poll until the server begins to stop; retry while the database is unavailable."""
        while not self._stopping.is_set():
            self._more.clear()
            try:
                await self._poll()
            except StoreUnavailableError as error:
                log.warning("event streams are waiting for the database: %s", error)
            except Exception:
                log.exception("polling for events failed")
            await self._rest()
        for followed in self._followed.values():
            _wake(followed)

    async def _poll(self) -> None:
        time = monotonic()
        due = [job_id for job_id, followed in self._followed.items() if followed.poll_at <= time]
        if not due:
            return
        counts = await run_in_threadpool(self._jobs.event_counts, due)
        time = monotonic()
        for job_id in due:
            followed = self._followed.get(job_id)
            if followed is None:
                continue
            last_seq, ended = counts.get(job_id, (followed.last_seq, True))
            if last_seq > followed.last_seq or ended:
                followed.last_seq, followed.ended, followed.changed_at = last_seq, ended, time
                _wake(followed)
            quiet_seconds = time - followed.changed_at
            followed.poll_at = time + wait_seconds(
                quiet_seconds, self._shortest_seconds, self._longest_seconds
            )

    async def _rest(self) -> None:
        """Wait until the next job is due, another job is followed, or the server stops."""
        soonest = min((followed.poll_at for followed in self._followed.values()), default=None)
        stopping = asyncio.ensure_future(self._stopping.wait())
        more = asyncio.ensure_future(self._more.wait())
        seconds = None if soonest is None else max(self._shortest_seconds, soonest - monotonic())
        try:
            await asyncio.wait((stopping, more), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            more.cancel()


def _wake(followed: FollowedJob) -> None:
    followed.changed.set()
    followed.changed = asyncio.Event()
