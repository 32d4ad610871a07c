"""Turns at measuring: only one job on a host measures at a time.

A turn is an advisory lock (flock) on a file that all workers of the host share. A lock belongs to an open
file description, so each job's child opens the file itself before it is confined. Afterward it can reach the
file only through that descriptor, and only read it. The kernel releases the lock whenever the child ends.
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
    """Grants a job its turns to measure."""

    def turn(self) -> AbstractContextManager[None]:
        """While the context lasts, no other job on this host measures. Contexts may nest."""
        ...


class AnyTime:
    """For a process that does not share its host."""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """See ``Turns.turn``."""
        yield


ANY_TIME = AnyTime()


class SharedTurns:
    """Turns shared through a locked file.

    Args:
        lock: the file's descriptor, opened by this process itself.
        patience_seconds: how long to wait. A holder that takes longer is frozen or hostile, so both measure.
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
                _log.warning("another job has measured for %g s; not waiting longer", self._patience_seconds)
                return
            time.sleep(_STEP_SECONDS)

    def _try(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def open_lock(path: Path) -> int:
    """Open the file of a host's turns, and create it if it is missing.

    Raises:
        OSError: the file can be neither opened nor created.
    """
    return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
