"""Turns at measuring: of all jobs on a host, one at a time has its code timed.

A turn is an advisory lock (flock) on a file that all workers of the host share. Each job's child opens the
file for itself before it is confined, since a lock belongs to what ``open`` made; afterwards it can reach the
file through that descriptor alone, and only read it. The kernel ends the turn when the child ends in any way.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

_STEP_SECONDS = 0.01
_MODE = 0o644

_log = logging.getLogger(__name__)


class Turns(Protocol):
    """How a job's code comes to be timed undisturbed."""

    def turn(self) -> AbstractContextManager[None]:
        """While the context lasts, no other job on this host measures. Contexts may nest."""
        ...


class AnyTime:
    """For a process that has the host to itself."""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """See ``Turns.turn``."""
        yield


ANY_TIME = AnyTime()


class SharedTurns:
    """Turns shared through a locked file.

    Args:
        lock: the file's descriptor, opened by this process itself.
        patience_seconds: for how long to wait; a holder that takes longer is frozen or no honest job, and
            measuring goes on beside it.
    """

    def __init__(self, lock: int, patience_seconds: float) -> None:
        self._lock = lock
        self._patience_seconds = patience_seconds
        self._depth = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """See ``Turns.turn``."""
        if self._depth == 0:
            self._take()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _take(self) -> None:
        began = time.monotonic()
        while not self._try():
            if time.monotonic() - began > self._patience_seconds:
                _log.warning("another job has measured for %g s: both go on", self._patience_seconds)
                return
            time.sleep(_STEP_SECONDS)

    def _try(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def open_lock(path: Path) -> int:
    """A descriptor of the file of a host's turns, which is made where it is missing.

    Raises:
        OSError: it can neither be opened nor made.
    """
    return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
