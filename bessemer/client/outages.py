"""Outages of the server that those who wait for a job sit out."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bessemer.errors import ServerFailedError, UnreachableError

GIVE_UP_SECONDS = 60.0


@dataclass
class Outage:
    """How long the server has not answered."""

    _last_contact: float = field(default_factory=time.monotonic)

    def end(self) -> None:
        """The server has answered."""
        self._last_contact = time.monotonic()

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Ignore a temporary error of the block.

        Raises:
            ProblemError, UnreachableError: the error is permanent, or lasted for ``GIVE_UP_SECONDS``.
        """
        try:
            yield
        except (ServerFailedError, UnreachableError):
            if time.monotonic() - self._last_contact > GIVE_UP_SECONDS:
                raise
        else:
            self.end()
