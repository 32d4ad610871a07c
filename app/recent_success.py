"""Skips a costly check that succeeded recently."""

import time
from collections.abc import Callable

HOLD_SECONDS = 5.0


class RecentSuccess:
    """Remembers that a check succeeded. Threads that find no recent success each run the check."""

    def __init__(self) -> None:
        self._until = 0.0

    def ensure(self, check: Callable[[], None]) -> None:
        """Run the check, unless one succeeded in the last ``HOLD_SECONDS``.

        Raises:
            Exception: what the check raises.
        """
        if time.monotonic() < self._until:
            return
        check()
        self._until = time.monotonic() + HOLD_SECONDS
