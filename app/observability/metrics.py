"""What the app knows in numbers: what it counts of itself, and what the tables say at a scrape."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily
from starlette.concurrency import run_in_threadpool

from bessemer.store.errors import StoreUnavailableError
from bessemer.store.rows.census import Census
from bessemer.telemetry import metrics
from bessemer.telemetry.metrics import LossMetrics

State = TypeVar("State", bound=StrEnum)

CENSUS_SECONDS = 5.0
"""Prometheus waits ten seconds for a page: what the database does not say by then is left out."""

log = logging.getLogger(__name__)


class AppMetrics:
    """The metrics of one app, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = metrics.new_registry()
        self.requests = metrics.HTTP_REQUESTS.counter(self.registry)
        self.durations = metrics.HTTP_DURATION.histogram(self.registry)
        self.in_progress = metrics.HTTP_IN_PROGRESS.gauge(self.registry)
        self.losses = LossMetrics(self.registry)
        self._followers = metrics.EVENT_FOLLOWERS.gauge(self.registry)
        self._upload_bytes = metrics.UPLOAD_BYTES.counter(self.registry)
        self._database_up = metrics.DATABASE_UP.gauge(self.registry)
        self._asking: asyncio.Task[Census | None] | None = None

    async def page(self, take_census: Callable[[], Census]) -> bytes:
        """Everything in Prometheus's text form; where the database is away, what is known without it.

        Args:
            take_census: blocks, and raises ``StoreUnavailableError``. It is never called while it runs.
        """
        census = await self._census(take_census)
        self._database_up.set(census is not None)
        counted = b"" if census is None else generate_latest(CensusCollector(census))
        return generate_latest(self.registry) + counted

    @contextmanager
    def following(self) -> Iterator[None]:
        """Count an open event stream for as long as the context lasts."""
        with self._followers.track_inprogress():
            yield

    async def counted(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """Pass the chunks of an upload on, and count their bytes."""
        async for chunk in chunks:
            self._upload_bytes.inc(len(chunk))
            yield chunk

    async def _census(self, take_census: Callable[[], Census]) -> Census | None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(_taken(take_census))
        asking = self._asking
        await asyncio.wait({asking}, timeout=CENSUS_SECONDS)
        return asking.result() if asking.done() else None


async def _taken(take_census: Callable[[], Census]) -> Census | None:
    try:
        return await run_in_threadpool(take_census)
    except StoreUnavailableError as error:
        log.warning("metrics are read without the database: %s", error)
        return None


@dataclass(frozen=True)
class CensusCollector:
    """A census as metrics."""

    census: Census

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One family for each metric of ``metrics.CENSUS``."""
        census = self.census
        waiting = census.waiting.items()
        yield metrics.QUEUE_TASKS.family([((queue,), tasks.count) for queue, tasks in waiting])
        yield metrics.QUEUE_OLDEST.family([((queue,), tasks.oldest_seconds) for queue, tasks in waiting])
        yield metrics.JOBS.family(_by_state(census.jobs))
        yield metrics.MODELS.family(_by_state(census.models))
        yield metrics.WORKERS.family([((), census.workers)])
        kept = census.kept.items()
        yield metrics.STORE_BYTES.family([((kind,), part.size_bytes) for kind, part in kept])
        yield metrics.STORE_OBJECTS.family([((kind,), part.count) for kind, part in kept])


def _by_state(counts: Mapping[State, int]) -> list[tuple[tuple[str, ...], float]]:
    return [((state.value,), count) for state, count in counts.items()]
