"""The line as this process last saw it: one look serves all readers for a while."""

import threading
import time

from app.queue_position.estimate import Line, line_up, place
from bessemer.contract.base import now
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.queue import TaskKind
from bessemer.store.store import Store

FRESH_SECONDS = 0.5
REST_SHARE = 20.0
"""A look is followed by a rest so many times as long: a long line costs a twentieth of a core at most."""

RECENT_JOBS = 50


class WaitingLine:
    """Adds to queued compilations where they stand. Its methods block and may run in any thread."""

    def __init__(self, store: Store, liveness_seconds: float) -> None:
        self._store = store
        self._liveness_seconds = liveness_seconds
        self._line: Line | None = None
        self._stale_at = 0.0
        self._looking = threading.Lock()

    def placed(self, job: Compilation) -> Compilation:
        """The compilation, with its place where it is queued.

        Raises:
            StoreUnavailableError: the database cannot be reached.
        """
        if job.state is not JobState.QUEUED:
            return job
        return job.model_copy(update={"queue": place(job, self._current())})

    def _current(self) -> Line:
        line = self._line
        if line is not None and (time.monotonic() < self._stale_at or self._looking.locked()):
            return line
        with self._looking:
            if self._line is None or time.monotonic() >= self._stale_at:
                self._line = self._look()
            return self._line

    def _look(self) -> Line:
        began = time.monotonic()
        waiting = self._store.waiting
        groups = waiting.groups()
        line = Line(
            groups=groups,
            turns=line_up(groups),
            workers=self._store.workers.live(self._liveness_seconds),
            recent_seconds={kind: waiting.recent_seconds(kind, RECENT_JOBS) for kind in TaskKind},
            at=now(),
        )
        ended = time.monotonic()
        self._stale_at = ended + max(FRESH_SECONDS, REST_SHARE * (ended - began))
        return line
