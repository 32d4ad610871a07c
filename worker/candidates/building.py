"""Builders: forked processes that compile one candidate each."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path

from worker.candidates import wire
from worker.candidates.process import ForkedProcess, Work, fork_process, wait_any
from worker.candidates.requests import BuildBatch, BuildCandidate, BuildOutcome
from worker.errors import short_message


def build_batch(batch: BuildBatch, parent: int) -> tuple[BuildOutcome, ...]:
    """Compile every candidate, ``batch.workers`` at a time.

    Args:
        batch: the candidates.
        parent: the descriptor whose end means that nobody waits for the outcomes any more.

    Returns:
        One outcome per candidate, in their order.

    Raises:
        EOFError: nobody waits any more.
    """
    return Builders(batch, parent).run()


class Builders:
    """The builders of one batch."""

    def __init__(self, batch: BuildBatch, parent: int) -> None:
        self._batch = batch
        self._parent = parent
        self._outcomes: dict[int, BuildOutcome] = {}
        self._running: dict[int, tuple[ForkedProcess, float]] = {}

    def run(self) -> tuple[BuildOutcome, ...]:
        """Start, await and reap builders until every candidate has its outcome."""
        waiting = iter(range(len(self._batch.candidates)))
        self._start(waiting)
        while self._running:
            self._await()
            self._kill_late()
            self._start(waiting)
        return tuple(self._outcomes[index] for index in range(len(self._batch.candidates)))

    def _start(self, waiting: Iterator[int]) -> None:
        while len(self._running) < self._batch.workers:
            index = next(waiting, None)
            if index is None:
                return
            deadline = time.monotonic() + self._batch.timeout_seconds
            process = fork_process(_build_work(self._batch.candidates[index]))
            self._running[index] = (process, deadline)

    def _await(self) -> None:
        rest_seconds = min(deadline for _, deadline in self._running.values()) - time.monotonic()
        readers = {process.reader: index for index, (process, _) in self._running.items()}
        for reader in wait_any((*readers, self._parent), rest_seconds):
            if reader == self._parent:
                raise EOFError("the job child is gone")
            self._reap(readers[reader])

    def _reap(self, index: int) -> None:
        process, _ = self._running.pop(index)
        library = self._batch.candidates[index].library
        try:
            error = process.receive()
            process.close()
        except EOFError:
            number = process.close()
            error = f"the builder was ended by signal {number}" if number else "the builder ended by itself"
        self._finish(index, BuildOutcome(library=None if error else library, error=error))

    def _kill_late(self) -> None:
        now = time.monotonic()
        for index, (process, deadline) in tuple(self._running.items()):
            if deadline <= now:
                del self._running[index]
                process.kill()
                error = f"the build took longer than {self._batch.timeout_seconds:g} s"
                self._finish(index, BuildOutcome(library=None, error=error))

    def _finish(self, index: int, outcome: BuildOutcome) -> None:
        if outcome.library is None:
            Path(self._batch.candidates[index].library).unlink(missing_ok=True)
        self._outcomes[index] = outcome


def _build_work(candidate: BuildCandidate) -> Work:
    def work(_reader: int, writer: int) -> None:
        try:
            pickle.loads(candidate.payload)(candidate.library)
            error = None
        except Exception as failure:
            error = short_message(failure)
        wire.send(writer, error)

    return work
