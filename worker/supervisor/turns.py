"""Hands out the turns at measuring: the supervisors of a host share them by locked files.

A supervisor holds two locks (flock) for a job. The supervisor that waits for the turn holds the second file's
lock, so that a job cannot begin its next turn before another job that already waits:

    lock PATH.next;  lock PATH;  unlock PATH.next;  grant the turn;  wait for its end;  unlock PATH

The kernel releases the locks of a supervisor that ends.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from worker.errors import WorkDirError
from worker.settings import TurnLimits

STEP_SECONDS = 0.01
_MODE = 0o644

log = logging.getLogger(__name__)


class HostTurns:
    """The turns of one job. Every method must be called in the event loop.

    Args:
        limits: how jobs share their host.
        grant: informs the job that its turn has begun; must not block.
    """

    def __init__(self, limits: TurnLimits, grant: Callable[[], None]) -> None:
        self._limits = limits
        self._grant = grant
        self._turn: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Wait for a turn in the background, and grant it."""
        self._turn = asyncio.create_task(self._take())

    def end(self) -> None:
        """End the turn, or stop waiting for it."""
        if self._turn is not None:
            self._turn.cancel()

    async def close(self) -> None:
        """End the turn, and wait until its locks are released."""
        self.end()
        if self._turn is not None:
            await asyncio.wait({self._turn})

    async def _take(self) -> None:
        deadline = time.monotonic() + self._limits.patience_seconds
        with _opened(self._limits.lock) as lock:
            with _opened(following(self._limits.lock)) as following_lock:
                granted = await _locked(following_lock, deadline) and await _locked(lock, deadline)
            if not granted:
                log.warning(
                    "other jobs have measured for %g s; not waiting longer", self._limits.patience_seconds
                )
            self._grant()
            await asyncio.sleep(self._limits.turn_seconds)
        log.warning("a job has measured for %g s; the next turn begins", self._limits.turn_seconds)


@asynccontextmanager
async def held_turn(limits: TurnLimits) -> AsyncIterator[bool]:
    """The host's turn, for work that would disturb what is measured; False if it did not come in time.

    The turn lasts as long as the context, which must end within ``limits.turn_seconds``.
    """
    deadline = time.monotonic() + limits.patience_seconds
    with _opened(limits.lock) as lock:
        with _opened(following(limits.lock)) as following_lock:
            is_held = await _locked(following_lock, deadline) and await _locked(lock, deadline)
        yield is_held


def following(lock: Path) -> Path:
    """The file that the next supervisor locks while it waits for the turn."""
    return lock.with_name(f"{lock.name}.next")


def make_lock_files(lock: Path) -> None:
    """Create the files of a host's turns if they are missing.

    Raises:
        WorkDirError: a file can be neither opened nor created.
    """
    for path in (lock, following(lock)):
        try:
            with _opened(path):
                pass
        except OSError as error:
            raise WorkDirError(f"the measuring lock {path} cannot be opened: {error.strerror}") from error


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def _locked(descriptor: int, deadline: float) -> bool:
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        await asyncio.sleep(STEP_SECONDS)
    return False
