"""Watches the trials that searches store, and counts those that a kill loses."""

import contextlib
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from bessemer.contract.job import Event, EventType
from bessemer.contract.records import MAX_FAILED_OF_A_KEY, MAX_OF_A_KEY, MeasuredTrial
from bessemer.contract.stage import Stage
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.rows.tables import JOB_TRIALS, JOBS, TUNING_RECORDS
from bessemer.store.store import Store

_STEP_SECONDS = 0.2


@dataclass(frozen=True)
class SeenTrial:
    """A trial that a job had stored: the key and the trace of its record, and whether it ran."""

    key: str
    trace: str
    ran: bool


class TrialWatch:
    """Reads the trials of running jobs again and again; a job deletes them when it ends.

    Attributes:
        seen: the trials by job and number.
        shrunk: jobs that had fewer trials than before while they were in progress.
    """

    def __init__(self, store: Store) -> None:
        self.seen: dict[tuple[str, int], SeenTrial] = {}
        self.shrunk: set[str] = set()
        self._store = store
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="trials")

    def start(self) -> None:
        """Start to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Stop."""
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopping.wait(_STEP_SECONDS):
            with contextlib.suppress(StoreUnavailableError):
                self._look()

    def _look(self) -> None:
        columns = JOB_TRIALS.c
        with self._store.database.read() as connection:
            rows = connection.execute(
                sa.select(columns.job, columns.number, columns.key, columns.document)
            ).all()
            running = set(connection.execute(sa.select(JOBS.c.id).where(JOBS.c.state == "running")).scalars())
        for row in rows:
            trial = MeasuredTrial.read(row.document)
            place = (row.job, row.number)
            self.seen.setdefault(place, SeenTrial(row.key, trial.digest, trial.seconds is not None))
        now, before = Counter(row.job for row in rows), Counter(job for job, _ in self.seen)
        self.shrunk |= {job for job in running if now[job] < before[job]}


def lost_records(store: Store, seen: Mapping[tuple[str, int], SeenTrial]) -> list[str]:
    """Find trials without a record although their key has fewer records than it may keep."""
    columns = TUNING_RECORDS.c
    query = sa.select(columns.key, columns.trace_digest, columns.seconds)
    with store.database.read() as connection:
        rows = connection.execute(query).all()
    kept = {(row.key, row.trace_digest) for row in rows}
    counts = Counter((row.key, row.seconds is not None) for row in rows)
    return [
        f"{job}: the record of trial {number} is lost"
        for (job, number), trial in seen.items()
        if (trial.key, trial.trace) not in kept
        and counts[trial.key, trial.ran] < (MAX_OF_A_KEY if trial.ran else MAX_FAILED_OF_A_KEY)
    ]


def repeated_trials(events: Sequence[Event]) -> int:
    """The number of trials that one attempt reported and the next attempt did not have."""
    lost, last, is_new = 0, 0, False
    for event in events:
        if event.type is EventType.STARTED:
            is_new = True
        elif event.type is EventType.PROGRESS and event.data["stage"] == Stage.TUNE:
            done = int(event.data["done"])
            lost += max(0, last - done) if is_new else 0
            last, is_new = done, False
    return lost
