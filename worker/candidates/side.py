"""A library, or the original model, as a side of an alternation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from worker.candidates.client import Runner


@dataclass(frozen=True)
class LibrarySide:
    """A library or model in its own process, which is stopped between two turns."""

    library: Runner
    most_seconds: float = math.inf
    rest_seconds: float = 0.0

    def time(self, runs: int) -> tuple[float, ...]:
        """See ``Side.time``."""
        return self.library.time(runs, self.most_seconds)

    def rest(self) -> None:
        """See ``Side.rest``: it rests already."""
