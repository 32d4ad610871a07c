"""Waiting for a store that is temporarily unavailable."""

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
    """Repeats calls to the store for up to ``seconds`` while it is unavailable."""

    seconds: float

    async def call(self, action: Callable[[], Result]) -> Result:
        """Run a blocking call in a thread, and repeat it while the store is unavailable.

        Raises:
            StoreUnavailableError: the store was unavailable for longer than ``seconds``.
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
        raise AssertionError("the waits are endless")


def waits() -> Iterator[float]:
    """Seconds between calls: they double each time, up to two seconds."""
    return (min(FIRST_WAIT_SECONDS * 2**number, LONGEST_WAIT_SECONDS) for number in itertools.count())
