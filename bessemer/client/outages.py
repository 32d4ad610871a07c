"""Tolerates outages of the server while a caller waits for a job."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bessemer.errors import ServerFailedError, UnreachableError

GIVE_UP_SECONDS = 60.0


@dataclass
class Outage:
    """When calls to the server began to fail; None if the last one succeeded."""

    since: float | None = None

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Ignore a temporary error of the block.

        Raises:
            ProblemError, UnreachableError: the error is permanent, or lasted for ``GIVE_UP_SECONDS``.
        """
        try:
            yield
        except (ServerFailedError, UnreachableError):
            self.since = time.monotonic() if self.since is None else self.since
            if time.monotonic() - self.since > GIVE_UP_SECONDS:
                raise
        else:
            self.since = None
