"""Finds lost workers and hands their tasks back to the queue. Every app and every worker does this.

A worker holds its tasks by a lease, which every heartbeat renews. A lease has ended if the worker's row has
not changed for that long on the observer's own clock. So hosts need not agree on the time, and a clock that
jumps ends no lease. A worker may take a task just after its row was deleted, and die before its next
heartbeat: the queue shows it with tasks in flight, and it has had no row for a whole lease.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from bessemer.store.queue_port import Queue, Task, TaskKind
from bessemer.store.rows.workers import Workers
from bessemer.telemetry.logs import log_fields

CHECKS_PER_LEASE = 4
_NEVER = datetime.min.replace(tzinfo=UTC)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Heartbeat:
    """A worker's last heartbeat, and when it was first seen, in seconds of the observer's clock."""

    beat: datetime
    seen_seconds: float


class Leases:
    """Tells which workers' leases have ended.

    Args:
        seconds: the length of a lease.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._seen: dict[str, Heartbeat] = {}
        self._looked_seconds = clock()

    def lost(self, beats: Mapping[str, datetime]) -> tuple[str, ...]:
        """The ids of the workers whose leases have ended, given each worker's last heartbeat.

        An observer that was suspended for half a lease starts over: it cannot tell who was alive.
        """
        moment = self._clock()
        if moment - self._looked_seconds > self._seconds / 2:
            self._seen.clear()
        self._looked_seconds = moment
        self._seen = {
            worker_id: self._heartbeat(worker_id, beat, moment) for worker_id, beat in beats.items()
        }
        return tuple(
            worker_id
            for worker_id, heartbeat in sorted(self._seen.items())
            if moment - heartbeat.seen_seconds >= self._seconds
        )

    def _heartbeat(self, worker_id: str, beat: datetime, moment: float) -> Heartbeat:
        earlier = self._seen.get(worker_id)
        return earlier if earlier is not None and earlier.beat == beat else Heartbeat(beat, moment)


class Reaper:
    """Hands back the tasks of lost workers. Its methods block.

    Args:
        workers: the table of workers.
        queue: the queue of their tasks.
        leases: finds the lost workers.
        on_lost: called for each lost worker with the kinds of the tasks handed back.
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
        """Check once; call this several times per lease.

        Returns:
            The number of tasks handed back.

        Raises:
            StoreUnavailableError: the database or the queue cannot be reached; no worker is removed.
        """
        beats = self._workers.beats()
        without_row = self._queue.workers_with_tasks() - beats.keys()
        count = 0
        for worker_id in self._leases.lost({**dict.fromkeys(without_row, _NEVER), **beats}):
            tasks = self._hand_back(worker_id, beats.get(worker_id))
            if tasks is not None:
                self._on_lost([task.kind for task in tasks])
                _log(worker_id, tasks)
                count += len(tasks)
        return count

    def retire(self, worker_id: str) -> None:
        """Remove a worker that stops, and hand back its tasks. Raises as ``reap``."""
        seen_at = self._workers.beats().get(worker_id)
        if seen_at is not None:
            self._hand_back(worker_id, seen_at)

    def _hand_back(self, worker_id: str, seen_at: datetime | None) -> tuple[Task, ...] | None:
        """The tasks handed back; None if another process did it, or the worker is back."""
        if seen_at is None:
            with self._workers.holding_absent(worker_id) as is_away:
                return (self._queue.hand_back(worker_id) if is_away else ()) or None
        with self._workers.removing(worker_id, seen_at) as is_ours:
            return self._queue.hand_back(worker_id) if is_ours else None


def _log(worker_id: str, tasks: Collection[Task]) -> None:
    with log_fields(worker=worker_id):
        log.warning("worker %s is lost; %d of its tasks go to others", worker_id, len(tasks))
        for task in tasks:
            log.warning("%s goes to another worker", task.key, extra={"fields": task.log_fields})
