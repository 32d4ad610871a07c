"""A library as a side of an alternation."""

from __future__ import annotations

from dataclasses import dataclass

from worker.candidates.client import Library


@dataclass(frozen=True)
class LibrarySide:
    """The library, in its own process, which is stopped between two turns."""

    library: Library
    rest_seconds: float = 0.0

    def time(self, runs: int) -> tuple[float, ...]:
        """See ``Side.time``."""
        return self.library.time(runs)

    def rest(self) -> None:
        """See ``Side.rest``: it rests already."""
