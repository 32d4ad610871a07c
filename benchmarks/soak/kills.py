"""Chooses, finds and kills processes."""

import contextlib
import os
import random
import signal
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import sqlalchemy as sa

from benchmarks.soak.site import Kept, Site
from bessemer.contract.job import JobState
from bessemer.contract.model import ModelState
from bessemer.store.rows.tables import INVOCATIONS, JOBS, MODELS
from bessemer.store.store import Store
from worker.supervisor.retry import MAX_LOST_ATTEMPTS

LONGEST_PAUSE_SECONDS = 4.0
PATIENCE_SECONDS = 60.0
_STEP_SECONDS = 0.02


class Kind(StrEnum):
    """Kinds of processes of the service."""

    SUPERVISOR = "supervisor"
    ZYGOTE = "zygote"
    CHILD = "child"
    CANDIDATE_SERVER = "candidate-server"
    CANDIDATE = "candidate"
    APP = "app"


WEIGHTS = {
    Kind.SUPERVISOR: 2,
    Kind.ZYGOTE: 2,
    Kind.CHILD: 3,
    Kind.CANDIDATE_SERVER: 3,
    Kind.CANDIDATE: 2,
    Kind.APP: 2,
}
"""Children are killed more often: they restart in milliseconds, a zygote in seconds."""

SLOW = frozenset({Kind.SUPERVISOR, Kind.ZYGOTE})
"""Killing these stops a worker until torch and TVM are imported, so another worker must be ready."""


@dataclass(frozen=True)
class Kill:
    """One kill: its kind, its owner, and the stages of the worker's jobs."""

    kind: Kind
    of: str
    stages: tuple[str, ...]


class Killer:
    """Kills processes at random moments."""

    def __init__(self, site: Site, store: Store, dice: random.Random) -> None:
        self._site = site
        self._store = store
        self._dice = dice

    def kill(self) -> Kill:
        """Wait for a random time, then for a process of a random kind, and kill it."""
        while True:
            (kind,) = self._dice.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))
            time.sleep(self._dice.uniform(0, LONGEST_PAUSE_SECONDS))
            deadline = time.monotonic() + PATIENCE_SECONDS
            while time.monotonic() < deadline:
                made = self._try(kind)
                if made is not None:
                    return made
                time.sleep(_STEP_SECONDS)

    def _try(self, kind: Kind) -> Kill | None:
        if kind is Kind.APP:
            found = [(self._site.app, pid) for pid in _own(self._site.app)]
        else:
            spared = self._at_their_last_attempt()
            workers = [
                worker
                for worker in self._site.workers
                if worker.name not in spared and (kind not in SLOW or self._another_is_ready(worker))
            ]
            found = [(worker, pid) for worker in workers for pid in _of_kind(worker, kind)]
        if not found:
            return None
        kept, pid = self._dice.choice(found)
        stages = self._stages(kept.name)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
        return Kill(kind, kept.name, stages)

    def _another_is_ready(self, worker: Kept) -> bool:
        others = (other for other in self._site.workers if other is not worker)
        return any(other.said(f"zygote {zygote} ready") for other in others for zygote in zygotes(other))

    def _at_their_last_attempt(self) -> set[str]:
        """Workers with a task that would fail if it lost one more attempt."""
        last = MAX_LOST_ATTEMPTS - 1
        jobs = sa.select(JOBS.c.worker).where(
            JOBS.c.state == JobState.RUNNING.value, JOBS.c.lost_attempts >= last
        )
        models = sa.select(MODELS.c.worker).where(
            MODELS.c.state == ModelState.INSPECTING.value, MODELS.c.lost_attempts >= last
        )
        invocations = sa.select(INVOCATIONS.c.worker).where(
            INVOCATIONS.c.state == JobState.RUNNING.value, INVOCATIONS.c.lost_attempts >= last
        )
        with self._store.database.read() as connection:
            return {
                worker
                for query in (jobs, models, invocations)
                for worker in connection.execute(query).scalars()
            }

    def _stages(self, worker: str) -> tuple[str, ...]:
        """The stages of its compilations, and ``invoke`` for each invocation."""
        jobs = sa.select(JOBS.c.stage).where(JOBS.c.state == JobState.RUNNING.value, JOBS.c.worker == worker)
        invocations = sa.select(sa.literal("invoke")).where(
            INVOCATIONS.c.state == JobState.RUNNING.value, INVOCATIONS.c.worker == worker
        )
        with self._store.database.read() as connection:
            stages = [stage or "start" for stage in connection.execute(jobs).scalars()]
            return (*stages, *connection.execute(invocations).scalars())


def _of_kind(worker: Kept, kind: Kind) -> list[int]:
    """Children of a candidate server, which build, measure or run a library."""
    match kind:
        case Kind.SUPERVISOR:
            return _own(worker)
        case Kind.ZYGOTE:
            return zygotes(worker)
        case Kind.CHILD:
            return _below(_of_kind(worker, Kind.ZYGOTE))
        case Kind.CANDIDATE_SERVER:
            return _below(_of_kind(worker, Kind.CHILD))
        case Kind.CANDIDATE:
            return _below(_of_kind(worker, Kind.CANDIDATE_SERVER))
        case Kind.APP:
            return []


def _below(parents: list[int]) -> list[int]:
    return [child for parent in parents for child in children(parent)]


def _own(kept: Kept) -> list[int]:
    return [] if kept.pid is None else [kept.pid]


def zygotes(worker: Kept) -> list[int]:
    """The zygotes of a worker, started by any of its threads."""
    return _below(_own(worker))


def children(pid: int) -> list[int]:
    """The children of all threads of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found
