"""The job child's handle on the candidate server, which forks every build and every measuring process.

The server is forked right after confinement, before anything ran in parallel: forking after a torch or TVM
parallel region hangs the child at its next one.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from bessemer.contract.report import FunctionTime

if TYPE_CHECKING:
    import numpy as np

    Arrays = tuple[np.ndarray, ...]


class LibraryCrashedError(Exception):
    """A process that ran a library died; ``signal`` says how (0: it ended by itself or raised)."""

    def __init__(self, signal: int, detail: str) -> None:
        super().__init__(detail)
        self.signal = signal


class Library(Protocol):
    """A library, loaded in a process of its own that runs nothing else."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run(self, inputs: Arrays) -> Arrays:
        """Run ``main`` once on copies of the inputs and return its outputs, nested ones flattened.

        Raises:
            LibraryCrashedError: the process died or the library raised.
        """
        ...

    def time(self, runs: int) -> tuple[float, ...]:
        """Seconds of each of ``runs`` single runs on the inputs of the last ``run``."""
        ...

    def profile(self, runs: int) -> tuple[FunctionTime, ...]:
        """Time per function, averaged over ``runs`` runs on the inputs of the last ``run``."""
        ...

    def peak_memory_bytes(self) -> int:
        """The largest resident set of the process so far."""
        ...


class Candidates(Protocol):
    """What the pipeline asks of the candidate server."""

    def open_library(self, path: Path, threads: int) -> Library:
        """Fork a process and load the library in it with ``TVM_NUM_THREADS`` = ``threads``."""
        ...
