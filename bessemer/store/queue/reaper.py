"""Finds workers that are lost, and hands their tasks to others. Every app and every worker does it.

A worker holds its tasks by a lease, which every heartbeat renews. Whether one ran out is told by how long its
row has stayed the same on the finder's own clock: no two hosts need to agree on the time, and a clock that
jumps takes nobody's lease away. A worker that took a task when its row had just been deleted, and died before
its next heartbeat, is told by the queue: it has tasks in hand, and no row for as long as a lease.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from bessemer.store.queue_port import Queue, Task, TaskKind
from bessemer.store.rows.workers import Workers
from bessemer.telemetry.logs import log_fields

LOOKS_PER_LEASE = 4
_NEVER = datetime.min.replace(tzinfo=UTC)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sighting:
    """A heartbeat, and when it was first seen, in seconds of the finder's clock."""

    beat: datetime
    since_seconds: float


class Leases:
    """Which workers have not beaten for a whole lease.

    Args:
        seconds: how long a lease is.
        clock: seconds that never jump.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._seen: dict[str, Sighting] = {}
        self._looked_seconds = clock()

    def lost(self, beats: Mapping[str, datetime]) -> tuple[str, ...]:
        """The ids of those whose lease has run out, given the last heartbeat of each.

        A finder that stood still for half a lease knows nothing about others: it counts anew.
        """
        moment = self._clock()
        if moment - self._looked_seconds > self._seconds / 2:
            self._seen.clear()
        self._looked_seconds = moment
        self._seen = {worker_id: self._sighting(worker_id, beat, moment) for worker_id, beat in beats.items()}
        return tuple(
            worker_id
            for worker_id, sighting in sorted(self._seen.items())
            if moment - sighting.since_seconds >= self._seconds
        )

    def _sighting(self, worker_id: str, beat: datetime, moment: float) -> Sighting:
        earlier = self._seen.get(worker_id)
        return earlier if earlier is not None and earlier.beat == beat else Sighting(beat, moment)


class Reaper:
    """Hands the tasks of lost workers to others. Its methods block.

    Args:
        workers: the table of workers.
        queue: has their tasks.
        leases: tells who is lost.
        on_lost: called for each lost worker with the kinds of its tasks, which were handed over here.
    """

    def __init__(
        self,
        workers: Workers,
        queue: Queue,
        leases: Leases,
        on_lost: Callable[[Collection[TaskKind]], None] = lambda _: None,
    ) -> None:
        self._workers = workers
        self._queue = queue
        self._leases = leases
        self._on_lost = on_lost

    def reap(self) -> int:
        """Look once; to be called several times per lease.

        Returns:
            How many tasks go to others.

        Raises:
            StoreUnavailableError: the database or the queue cannot be reached; nothing is forgotten.
        """
        beats = self._workers.beats()
        without_row = self._queue.holders() - beats.keys()
        count = 0
        for worker_id in self._leases.lost({**dict.fromkeys(without_row, _NEVER), **beats}):
            tasks = self._hand_over(worker_id, beats.get(worker_id))
            if tasks is not None:
                self._on_lost([task.kind for task in tasks])
                _tell(worker_id, tasks)
                count += len(tasks)
        return count

    def retire(self, worker_id: str) -> None:
        """Forget a worker that stops, and hand over what it might still have in hand. Raises as ``reap``."""
        seen_at = self._workers.beats().get(worker_id)
        if seen_at is not None:
            self._hand_over(worker_id, seen_at)

    def _hand_over(self, worker_id: str, seen_at: datetime | None) -> tuple[Task, ...] | None:
        """None where somebody else has done it, or the worker is back."""
        if seen_at is None:
            with self._workers.away(worker_id) as is_away:
                return (self._queue.hand_over(worker_id) if is_away else ()) or None
        with self._workers.leaving(worker_id, seen_at) as is_ours:
            return self._queue.hand_over(worker_id) if is_ours else None


def _tell(worker_id: str, tasks: Collection[Task]) -> None:
    with log_fields(worker=worker_id):
        log.warning("worker %s is lost; %d of its tasks go to others", worker_id, len(tasks))
        for task in tasks:
            log.warning("%s goes to another worker", task.key, extra={"fields": task.log_fields})
