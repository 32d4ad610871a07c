"""The heartbeat that keeps a worker's lease, and whether that lease holds."""

import asyncio
import hashlib
import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bessemer.contract.base import now
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.service import Worker
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.rows.workers import Workers
from worker.measure.machine import processor
from worker.protocol.order import Ready
from worker.supervisor.in_flight import InFlight

BEATS_PER_LEASE = 5

log = logging.getLogger(__name__)


class LeaseHealth:
    """Whether the worker's lease holds. The first renewal also means that the zygote is ready.

    Args:
        lease_seconds: how long a renewal lasts.
        clock: seconds that only increase.
    """

    def __init__(self, lease_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._renewed_at: float | None = None

    def renew(self) -> None:
        """The lease was written to the database just now."""
        self._renewed_at = self._clock()

    def fault(self) -> str | None:
        """Why this worker must not take tasks; None if its lease holds."""
        if self._renewed_at is None:
            return "starting: the zygote is not ready, or the first lease is not written yet"
        age_seconds = self._clock() - self._renewed_at
        if age_seconds > self._lease_seconds:
            return f"lost: the database has not heard from this worker for {age_seconds:.0f} s"
        return None


@dataclass(frozen=True)
class Heartbeat:
    """Writes a live worker's row, again and again."""

    id: str
    ready: Ready
    sandbox: SandboxStatus
    cores: int
    limit_seconds: float
    in_flight: InFlight
    lease: LeaseHealth

    def beat(self, workers: Workers) -> None:
        """Write the row once. Blocks."""
        workers.beat(self._document())
        self.lease.renew()

    async def keep(self, workers: Workers, lease_seconds: float) -> None:
        """Write the row several times per lease until cancelled, and keep trying if the store fails.

        It has its own thread: work in other threads must not cost the worker its lease.
        """
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="heartbeat") as thread:
            while True:
                try:
                    await loop.run_in_executor(thread, self.beat, workers)
                except StoreUnavailableError as error:
                    log.warning("worker %s cannot send its heartbeat: %s", self.id, error)
                except Exception:
                    log.exception("the heartbeat of worker %s failed; retrying", self.id)
                await asyncio.sleep(lease_seconds / BEATS_PER_LEASE)

    def _document(self) -> Worker:
        return Worker(
            id=self.id,
            host=socket.gethostname(),
            processor=processor(),
            mcpu=self.ready.mcpu,
            cores=self.cores,
            limit_seconds=self.limit_seconds,
            versions=self.ready.versions,
            compiler=self.ready.compiler,
            sandbox=self.sandbox,
            running=self.in_flight.tasks(),
            capability=self.ready.capability,
            offers=self.ready.offers,
            seen_at=now(),
        )


def default_worker_id(folder: Path) -> str:
    """A name that depends on the work folder: a worker that restarts there finds its own tasks again."""
    return f"{socket.gethostname()}-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]}"
