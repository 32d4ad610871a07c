"""When a search publishes bundles: first the untuned one, then each that is clearly faster."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from worker.compiler.values import Tuned
from worker.errors import JobError

WORTHWHILE = 0.95
"""A bundle replaces another if the model is estimated to take less than this share of its time."""
MOST_SHARE = 0.2
"""The share of a search's time that its bundles may take, besides the first."""
MAX_BUNDLES = 16

_log = logging.getLogger(__name__)


def is_due(
    latency_ms: float | None, published_ms: float | None, elapsed_seconds: float, spent_seconds: float
) -> bool:
    """Whether a search should publish what it has found.

    Args:
        latency_ms: what the model is estimated to take now.
        published_ms: what it was estimated to take in the last bundle.
        elapsed_seconds: the time of the search so far.
        spent_seconds: the time of the search's bundles, with as much for the next as for the last.
    """
    if latency_ms is None or published_ms is None:
        return False
    return latency_ms < WORTHWHILE * published_ms and spent_seconds <= MOST_SHARE * elapsed_seconds


@dataclass
class EarlyBundles:
    """The bundles of one search.

    Attributes:
        make: makes a bundle of the model, given its number, and publishes it.
        published_ms: what the model was estimated to take in the last one.
        last_seconds: how long the last one took to make.
        spent_seconds: how long all but the first took.
        made: how many were made.
    """

    make: Callable[[Tuned, int], None]
    published_ms: float | None = None
    last_seconds: float = 0.0
    spent_seconds: float = 0.0
    made: int = 0

    def is_due(self, latency_ms: float | None, elapsed_seconds: float, left_seconds: float) -> bool:
        """Whether the next bundle is worth its time, which is left."""
        spent_seconds = self.spent_seconds + self.last_seconds
        return (
            self.made < MAX_BUNDLES
            and left_seconds > self.last_seconds
            and is_due(latency_ms, self.published_ms, elapsed_seconds, spent_seconds)
        )

    def publish(self, tuned: Callable[[], Tuned | None]) -> None:
        """Make a bundle and publish it. If that fails, the search goes on: the last bundle will tell.

        Args:
            tuned: chooses the schedules; None if they turned out no faster.
        """
        began, is_first = time.monotonic(), self.made == 0
        try:
            chosen = tuned()
            if chosen is not None:
                self.made += 1
                self.make(chosen, self.made)
        except JobError as error:
            _log.warning("no early bundle: %s", error.detail)
        self.last_seconds = time.monotonic() - began
        self.spent_seconds += 0.0 if is_first else self.last_seconds
