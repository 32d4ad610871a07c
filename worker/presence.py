"""What a worker says of itself, again and again."""

import asyncio
import hashlib
import logging
import socket
from dataclasses import dataclass
from pathlib import Path

from bessemer.contract.base import now
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.service import Worker
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.workers import Workers
from worker.hands import Hands
from worker.machine import processor
from worker.order import Ready

HEARTBEAT_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Presence:
    """A worker that is alive."""

    id: str
    ready: Ready
    sandbox: SandboxStatus
    cores: int
    hands: Hands

    async def beat(self, workers: Workers) -> None:
        """Say so every two seconds, until cancelled. While the store is away, nobody hears it."""
        while True:
            try:
                await asyncio.to_thread(workers.beat, self._document())
            except StoreUnavailableError as error:
                log.warning("worker %s cannot say that it is alive: %s", self.id, error)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def _document(self) -> Worker:
        return Worker(
            id=self.id,
            host=socket.gethostname(),
            processor=processor(),
            mcpu=self.ready.mcpu,
            cores=self.cores,
            versions=self.ready.versions,
            sandbox=self.sandbox,
            running=self.hands.tasks(),
            capability=self.ready.capability,
            seen_at=now(),
        )


def default_worker_id(folder: Path) -> str:
    """A name that a worker has again when it returns to its work folder: so it finds what it had in hand."""
    return f"{socket.gethostname()}-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]}"
