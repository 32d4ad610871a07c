"""QueuedJobs for a store that is away for a while."""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from bessemer.store.errors import StoreUnavailableError

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 2.0

Result = TypeVar("Result")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoreRetry:
    """For how long a call to the store is repeated where the store is away."""

    seconds: float

    async def call(self, action: Callable[[], Result]) -> Result:
        """Call what blocks, in a thread, until it does not find the store away.

        Raises:
            StoreUnavailableError: the store was away for longer than ``seconds``.
        """
        deadline = time.monotonic() + self.seconds
        for wait_seconds in waits():
            try:
                return await asyncio.to_thread(action)
            except StoreUnavailableError as error:
                if time.monotonic() + wait_seconds > deadline:
                    raise
                log.warning("waiting for the store: %s", str(error).splitlines()[0])
            await asyncio.sleep(wait_seconds)
        raise AssertionError("the waits never end")


def waits() -> Iterator[float]:
    """Seconds between one call and the next: twice as long each time, up to two seconds."""
    return (min(FIRST_WAIT_SECONDS * 2**number, LONGEST_WAIT_SECONDS) for number in itertools.count())
