"""What a worker says of itself, again and again."""

import asyncio
import hashlib
import logging
import socket
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
from worker.supervisor.lease import LeaseHealth

BEATS_PER_LEASE = 5

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Heartbeat:
    """A worker that is alive."""

    id: str
    ready: Ready
    sandbox: SandboxStatus
    cores: int
    limit_seconds: float
    hands: InFlight
    pulse: LeaseHealth

    def beat(self, workers: Workers) -> None:
        """Say so once. Blocks."""
        workers.beat(self._document())
        self.pulse.feel()

    async def keep(self, workers: Workers, lease_seconds: float) -> None:
        """Say so several times per lease, until cancelled. Where the store fails, however, nobody hears it.

        In a thread of its own: what other threads wait for must not cost the worker its lease.
        """
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="heartbeat") as heart:
            while True:
                try:
                    await loop.run_in_executor(heart, self.beat, workers)
                except StoreUnavailableError as error:
                    log.warning("worker %s cannot say that it is alive: %s", self.id, error)
                except Exception:
                    log.exception("the heartbeat of worker %s failed; it is tried again", self.id)
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
            sandbox=self.sandbox,
            running=self.hands.tasks(),
            capability=self.ready.capability,
            seen_at=now(),
        )


def default_worker_id(folder: Path) -> str:
    """A name that a worker has again when it returns to its work folder: so it finds what it had in hand."""
    return f"{socket.gethostname()}-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]}"
