"""The app's metrics: its own counters, and statistics that each scrape reads from the database."""

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
from bessemer.store.rows.totals import Statistics
from bessemer.telemetry import metrics
from bessemer.telemetry.metrics import LossMetrics

State = TypeVar("State", bound=StrEnum)

STATISTICS_SECONDS = 5.0
"""The time limit for reading statistics, below Prometheus's default timeout of ten seconds."""

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
        self._asking: asyncio.Task[Statistics | None] | None = None

    async def page(self, read_statistics: Callable[[], Statistics]) -> bytes:
        """All metrics in Prometheus's text format.

        If the database is unavailable or slow, the page has only the app's own metrics.

        Args:
            read_statistics: blocks, and may raise ``StoreUnavailableError``. One call runs at a time.
        """
        statistics = await self._statistics(read_statistics)
        self._database_up.set(statistics is not None)
        counted = b"" if statistics is None else generate_latest(StatisticsCollector(statistics))
        return generate_latest(self.registry) + counted

    @contextmanager
    def following(self) -> Iterator[None]:
        """Count an event stream as open inside the context."""
        with self._followers.track_inprogress():
            yield

    async def counted(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """Count the bytes of an upload as its chunks pass."""
        async for chunk in chunks:
            self._upload_bytes.inc(len(chunk))
            yield chunk

    async def _statistics(self, read_statistics: Callable[[], Statistics]) -> Statistics | None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(_try_read(read_statistics))
        asking = self._asking
        await asyncio.wait({asking}, timeout=STATISTICS_SECONDS)
        return asking.result() if asking.done() else None


async def _try_read(read_statistics: Callable[[], Statistics]) -> Statistics | None:
    try:
        return await run_in_threadpool(read_statistics)
    except StoreUnavailableError as error:
        log.warning("serving metrics without the database: %s", error)
        return None


@dataclass(frozen=True)
class StatisticsCollector:
    """Exports statistics as metrics."""

    statistics: Statistics

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One family for each metric of ``bessemer.telemetry.metrics.DATABASE_METRICS``."""
        statistics = self.statistics
        backlogs = statistics.backlogs.items()
        yield metrics.QUEUE_TASKS.family([((queue,), backlog.count) for queue, backlog in backlogs])
        yield metrics.QUEUE_OLDEST.family([((queue,), backlog.oldest_seconds) for queue, backlog in backlogs])
        yield metrics.JOBS.family(_by_state(statistics.jobs))
        yield metrics.MODELS.family(_by_state(statistics.models))
        yield metrics.WORKERS.family([((), statistics.workers)])
        stored = statistics.stored.items()
        yield metrics.STORE_BYTES.family([((kind,), part.size_bytes) for kind, part in stored])
        yield metrics.STORE_OBJECTS.family([((kind,), part.count) for kind, part in stored])


def _by_state(counts: Mapping[State, int]) -> list[tuple[tuple[str, ...], float]]:
    return [((state.value,), count) for state, count in counts.items()]
