"""Where a queued compilation stands, and when it may start. Pure: of what waits, who works, and what it took.

The estimate takes every compilation ahead to last as long as the median of those that ended last, and the
workers that can take this one to take those ahead of it as well. It cannot know what is yet to come.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from bessemer.contract.base import now
from bessemer.contract.capability import Needs, lacks, needs_of
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.queue import QUEUES, QueueName, QueuePlace, TaskKind, job_kind
from bessemer.contract.service import Worker, missing, takers_of
from bessemer.store.rows.queued import WaitingGroup
from bessemer.store.store import Store


@dataclass(frozen=True)
class Line:
    """What was seen at one moment.

    Attributes:
        groups: the waiting jobs.
        turns: of the waiting jobs by queue and needs, sorted.
        workers: those that are alive.
        recent_seconds: of jobs by kind, those that ended last.
        at: the moment.
    """

    groups: Sequence[WaitingGroup]
    turns: Mapping[tuple[QueueName, str | None], Sequence[int]]
    workers: tuple[Worker, ...]
    recent_seconds: Mapping[TaskKind, Sequence[float]]
    at: datetime

    def turn(self, job: Compilation) -> int:
        """The turn of a queued job; one that has come since is behind all that go before its like."""
        return next(
            (group.turns[job.id] for group in self.groups if job.id in group.turns),
            1 + sum(len(group.turns) for group in self.groups if group.priority >= job.request.priority),
        )


def line_up(groups: Iterable[WaitingGroup]) -> dict[tuple[QueueName, str | None], list[int]]:
    """The turns of waiting jobs."""
    turns: dict[tuple[QueueName, str | None], list[int]] = {}
    for group in groups:
        turns.setdefault((QUEUES[group.kind], group.needs), []).extend(group.turns.values())
    for each in turns.values():
        each.sort()
    return turns


def place(job: Compilation, line: Line) -> QueuePlace:
    """Where a queued compilation stands."""
    kind = job_kind(job.request)
    queue = QUEUES[kind]
    needs = needs_of(job.request.target)
    takers = takers_of(needs, queue, line.workers)
    turn = line.turn(job)
    ahead = sum(
        bisect_left(turns, turn)
        for (name, others), turns in line.turns.items()
        if name is queue and competes(others, takers, needs)
    )
    recent = line.recent_seconds.get(kind, ())
    busy = [busy_seconds(worker, queue, line.at, recent) for worker in takers]
    return QueuePlace(
        name=queue,
        position=ahead + 1,
        ahead=ahead,
        workers=len(takers),
        estimated_start_seconds=start_seconds(ahead, busy, recent),
        explanation=explain(kind, len(takers), ahead, recent),
        waiting_for=missing(needs, queue, line.workers),
    )


def competes(others: str | None, takers: Sequence[Worker], needs: Needs | None) -> bool:
    """Whether a job with needs of its own, ``others``, is taken by a worker that could take this one.

    Where no worker can, jobs with the same needs wait for the same.
    """
    parsed = None if others is None else Needs.parse(others)
    if not takers:
        return parsed == needs
    return any(not lacks(worker.capability, parsed) for worker in takers)


def busy_seconds(worker: Worker, queue: QueueName, at: datetime, recent: Sequence[float]) -> float:
    """How long a worker will still be busy: as long as is usual of what has lasted so long already."""
    for task in worker.running:
        if QUEUES[task.kind] is queue:
            elapsed = max(0.0, (at - task.began_at).total_seconds())
            left = [seconds - elapsed for seconds in recent if seconds > elapsed]
            return median(left) if left else 0.0
    return 0.0


def start_seconds(ahead: int, busy: Sequence[float], recent: Sequence[float]) -> float | None:
    """The time until a job starts that has so many ahead of it.

    Args:
        ahead: jobs that are taken before.
        busy: for how long each worker that can take it is still busy.
        recent: what such jobs took that ended last.

    Returns:
        None where no worker can take it, and where nothing says how long those before it will take.
    """
    if not busy:
        return None
    if not recent:
        return 0.0 if ahead < busy.count(0.0) else None
    rounds, turn = divmod(ahead, len(busy))
    return sorted(busy)[turn] + rounds * median(recent)


def explain(kind: TaskKind, workers: int, ahead: int, recent: Sequence[float]) -> str:
    """What the estimate is made of."""
    if not workers:
        return "no estimate: no live worker can take it"
    who = "1 worker" if workers == 1 else f"{workers} workers"
    if not recent:
        return f"{ahead} ahead, {who}; no {kind} has ended yet from which to estimate more"
    took = f"the last {kind} took" if len(recent) == 1 else f"the last {len(recent)} took, in the median,"
    return f"an estimate: {ahead} ahead, {who}, and {took} {median(recent):.1f} s"


FRESH_SECONDS = 0.5
REST_SHARE = 20.0
"""A look is followed by a rest so many times as long: a long line costs a twentieth of a core at most."""

RECENT_JOBS = 50


class QueuePositions:
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
