"""Where a search spends its time: proposing candidates, building them, and measuring them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


def seconds_since(began: float) -> float:
    """The seconds since a reading of the monotonic clock."""
    return time.monotonic() - began


@dataclass
class PhaseClock:
    """The seconds of builds and measurements; the rest of a search proposes candidates and learns."""

    build_seconds: float = 0.0
    measure_seconds: float = 0.0

    @contextmanager
    def building(self) -> Iterator[None]:
        """Count the time of the block as building."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.build_seconds += time.monotonic() - began

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Count the time of the block as measuring."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.measure_seconds += time.monotonic() - began
