"""Whether a worker's lease holds, for those who check its health."""

import time
from collections.abc import Callable


class LeaseHealth:
    """Felt whenever the worker has written down that it is alive; the first time, its zygote is ready.

    Args:
        lease_seconds: how long the worker is believed after that.
        clock: seconds that only increase.
    """

    def __init__(self, lease_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._felt_at: float | None = None

    def feel(self) -> None:
        """Note that the worker's lease was written down just now."""
        self._felt_at = self._clock()

    def fault(self) -> str | None:
        """Why tasks are not for this worker; None where its lease holds."""
        if self._felt_at is None:
            return "starting: the zygote is not ready, or no lease is written down yet"
        age_seconds = self._clock() - self._felt_at
        if age_seconds > self._lease_seconds:
            return f"lost: the database has not heard of this worker for {age_seconds:.0f} s"
        return None
