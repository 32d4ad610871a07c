"""Spares a costly check that succeeded a moment ago."""

import time
from collections.abc import Callable

SECONDS = 5.0


class RecentSuccess:
    """Remembers that a check succeeded. Threads that find no recent success each run the check."""

    def __init__(self) -> None:
        self._until = 0.0

    def ensure(self, check: Callable[[], None]) -> None:
        """Run the check, unless one succeeded in the last seconds. Raises as the check does."""
        if time.monotonic() < self._until:
            return
        check()
        self._until = time.monotonic() + SECONDS
