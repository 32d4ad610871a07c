"""The queue positions of compilations, and estimates of when they start.

A tenant sees its position among its own compilations only. The estimate adds the turns of other waiting
tenants: those ahead in turn go once before the tenant's next compilation, and all of them go once before each
later one. The estimate therefore reveals how many tenants wait and how many go first, but nothing else about
them. It assumes that every compilation takes the median time of the tenant's recent ones, and that the
workers that can take this one also take the ones ahead of it. It does not foresee later submissions.
"""

import math
import threading
import time
from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from statistics import median

from bessemer.contract.access import Tenant
from bessemer.contract.base import now
from bessemer.contract.capability import Needs, lacks
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.queue import QUEUES, QueueName, QueuePlace, TaskKind, job_kind
from bessemer.contract.service import Worker, missing, takers_of
from bessemer.contract.tenant_turns import Standing, Turns
from bessemer.store.queue_port import MostRunning, Queue
from bessemer.store.rows.device_tasks import LivePlatforms
from bessemer.store.rows.queued_jobs import QueuedGroup
from bessemer.store.store import Store


@dataclass(frozen=True)
class QueueSnapshot:
    """The queues at one moment.

    Attributes:
        groups: the queued jobs.
        ranks: the queued jobs' ranks within their tenant, by tenant, queue and needs, sorted.
        workers: the live workers.
        at: when this was read.
        turns: the turns of the tenants in each queue.
        devices: the platforms of the live devices.
    """

    groups: Sequence[QueuedGroup]
    ranks: Mapping[Tenant, Mapping[tuple[QueueName, str | None], Sequence[int]]]
    workers: tuple[Worker, ...]
    at: datetime
    turns: Mapping[QueueName, Turns]
    devices: LivePlatforms = field(default_factory=LivePlatforms)

    @cached_property
    def able(self) -> Mapping[tuple[Tenant, str | None], frozenset[str]]:
        """The ids of the live workers that can take the jobs of a tenant that have certain needs."""
        return {
            (tenant, needs): _able(needs, self.workers, self.devices.of(tenant))
            for tenant, needs in {(group.tenant, group.needs) for group in self.groups}
        }

    def competes(
        self, owner: Tenant, others: str | None, takers: frozenset[str], needs: Needs | None
    ) -> bool:
        """Whether a worker that can take a job can also take an owner's jobs that need ``others``.

        If no worker can take the job, jobs with equal needs compete.
        """
        if not takers:
            return others == (None if needs is None else str(needs))
        return not takers.isdisjoint(self.able[owner, others])

    def rank(self, tenant: Tenant, job: Compilation) -> int:
        """A queued job's rank within its tenant.

        A job that was submitted after the snapshot ranks behind all jobs of equal or higher priority.
        """
        groups = [group for group in self.groups if group.tenant == tenant]
        return next(
            (group.ranks[job.id] for group in groups if job.id in group.ranks),
            1 + sum(len(group.ranks) for group in groups if group.priority >= job.request.priority),
        )


def ranks_by_needs(
    groups: Iterable[QueuedGroup],
) -> dict[Tenant, dict[tuple[QueueName, str | None], list[int]]]:
    """The ranks of queued jobs by tenant, queue and needs, sorted."""
    ranks: dict[Tenant, dict[tuple[QueueName, str | None], list[int]]] = {}
    for group in groups:
        of_tenant = ranks.setdefault(group.tenant, {})
        of_tenant.setdefault((QUEUES[group.kind], group.needs), []).extend(group.ranks.values())
    for of_tenant in ranks.values():
        for each in of_tenant.values():
            each.sort()
    return ranks


def queue_place(
    tenant: Tenant,
    job: Compilation,
    snapshot: QueueSnapshot,
    recent: Sequence[float],
    most_running: MostRunning = lambda _tenant: None,
) -> QueuePlace:
    """A queued compilation's position.

    Args:
        tenant: its owner.
        job: the compilation.
        snapshot: the queues.
        recent: how long the tenant's recent jobs of its kind took.
        most_running: how many tasks of a tenant may be in flight.
    """
    kind = job_kind(job.request)
    queue = QUEUES[kind]
    needs = job.request.needs
    on_devices = snapshot.devices.of(tenant)
    takers = takers_of(needs, queue, snapshot.workers, on_devices)
    rank, ids = snapshot.rank(tenant, job), frozenset(worker.id for worker in takers)
    competing = {
        owner: [
            ranks
            for (name, others), ranks in of_tenant.items()
            if name is queue and snapshot.competes(owner, others, ids, needs)
        ]
        for owner, of_tenant in snapshot.ranks.items()
    }
    ahead = sum(bisect_left(ranks, rank) for ranks in competing.get(tenant, ()))
    turns = snapshot.turns[queue]
    own = turns.standing(tenant, most_running(tenant))
    waiting = [owner for owner, ranks in competing.items() if ranks and owner != tenant]
    standings = [turns.standing(owner, most_running(owner)) for owner in waiting]
    rivals = [standing for standing in standings if standing.may_run]
    first = sum(1 for rival in rivals if rival < own)
    busy = [busy_seconds(worker, queue, snapshot.at, recent) for worker in takers]
    seconds = start_seconds(ahead + first + len(rivals) * ahead, busy, recent)
    return QueuePlace(
        name=queue,
        position=ahead + 1,
        ahead=ahead,
        workers=len(takers),
        estimated_start_seconds=limited_start_seconds(own, ahead, seconds, recent),
        explanation=explain(
            kind, len(takers), ahead, len(rivals), own.most, recent, outlasts=seconds is None
        ),
        waiting_for=missing(needs, queue, snapshot.workers, on_devices),
    )


def _able(needs: str | None, workers: Iterable[Worker], on_devices: Container[str]) -> frozenset[str]:
    parsed = None if needs is None else Needs.parse(needs)
    return frozenset(worker.id for worker in workers if not lacks(worker.capability, parsed, on_devices))


def busy_seconds(worker: Worker, queue: QueueName, at: datetime, recent: Sequence[float]) -> float:
    """Estimate how many more seconds a worker will be busy; 0 if it runs no task of the queue.

    The estimate is the median remaining time over recent jobs that took longer than the task has so far. It
    is infinite if no recent job did.
    """
    for task in worker.running:
        if QUEUES[task.kind] is queue:
            elapsed = max(0.0, (at - task.began_at).total_seconds())
            left = [seconds - elapsed for seconds in recent if seconds > elapsed]
            return median(left) if left else math.inf
    return 0.0


def start_seconds(ahead: int, busy: Sequence[float], recent: Sequence[float]) -> float | None:
    """The time until a job with this many ahead of it starts.

    Args:
        ahead: the number of jobs that are taken before it.
        busy: how long each worker that can take it will still be busy.
        recent: how long recent jobs of its kind took.

    Returns:
        None if no worker can take it, or if recent jobs give no estimate. That is so if none has ended and no
        idle worker is left for the job, or if every worker's task has run longer than any recent job.
    """
    if not busy:
        return None
    if not recent:
        return 0.0 if ahead < busy.count(0.0) else None
    known = sorted(filter(math.isfinite, busy))
    if not known:
        return None
    rounds, turn = divmod(ahead, len(known))
    return known[turn] + rounds * median(recent)


def limited_start_seconds(
    own: Standing, ahead: int, seconds: float | None, recent: Sequence[float]
) -> float | None:
    """The time until a job starts, given that its tenant may be at its limit.

    Args:
        own: the tenant's running tasks and their limit.
        ahead: the number of the tenant's jobs ahead of it.
        seconds: the time if there were no limit.
        recent: how long recent jobs of its kind took; each running task is assumed to take as long again.
    """
    if own.most is None or seconds is None or own.running + ahead < own.most:
        return seconds
    if own.most == 0 or not recent:
        return None
    slots = [0.0] * max(0, own.most - own.running) + [median(recent)] * min(own.most, own.running)
    limited = start_seconds(ahead, slots, recent)
    return None if limited is None else max(seconds, limited)


NOUNS = {
    TaskKind.COMPILE: "compilation",
    TaskKind.PREFLIGHT: "preflight",
    TaskKind.INSPECT: "inspection",
    TaskKind.INVOKE: "invocation",
}


def explain(
    kind: TaskKind,
    workers: int,
    ahead: int,
    rivals: int,
    most: int | None,
    recent: Sequence[float],
    outlasts: bool,
) -> str:
    """Explain the estimate.

    Args:
        kind: the kind of the job.
        workers: how many can take it.
        ahead: the number of the tenant's jobs ahead of it.
        rivals: how many other tenants wait.
        most: how many tasks of the tenant may run at a time.
        recent: how long recent jobs of its kind took.
        outlasts: whether the workers' running tasks have taken longer than any recent job.
    """
    if not workers:
        return "no estimate: no live worker can take it"
    who = "1 worker" if workers == 1 else f"{workers} workers"
    line = f"{ahead} ahead, {who}"
    if rivals:
        line += ", taking turns with other tenants"
    if most is not None:
        line += f", {most} of your tenant's at a time"
    if not recent:
        return f"{line}; no {NOUNS[kind]} has ended yet from which to estimate more"
    if outlasts:
        return f"no estimate: {line}, busy for longer than any recent {NOUNS[kind]} took"
    took = f"the last {kind} took" if len(recent) == 1 else f"the last {len(recent)} took, in the median,"
    return f"estimate: {line}, and {took} {median(recent):.1f} s"


FRESH_SECONDS = 0.5
REST_SHARE = 20.0
"""A snapshot is kept this many times as long as it took to read: a long queue costs about 5 % of a core."""
MAX_KEPT_SECONDS = 5.0
"""A database that stalled once must not leave positions outdated for minutes."""

RECENT_JOBS = 50


def kept_seconds(read_seconds: float) -> float:
    """How long a snapshot is kept, given how long it took to read."""
    return min(max(FRESH_SECONDS, REST_SHARE * read_seconds), MAX_KEPT_SECONDS)


class QueuePositions:
    """Adds their positions to queued compilations. Its methods block and may run in any thread."""

    def __init__(
        self, store: Store, queue: Queue, liveness_seconds: float, most_running: MostRunning
    ) -> None:
        self._store = store
        self._queue = queue
        self._most_running = most_running
        self._liveness_seconds = liveness_seconds
        self._snapshot: QueueSnapshot | None = None
        self._stale_at = 0.0
        self._recent: dict[tuple[Tenant, TaskKind], tuple[float, ...]] = {}
        self._reading = threading.Lock()

    def with_position(self, tenant: Tenant, job: Compilation) -> Compilation:
        """A tenant's compilation, with its position if it is queued.

        Raises:
            StoreUnavailableError: the database cannot be reached.
        """
        if job.state is not JobState.QUEUED:
            return job
        snapshot = self._current()
        recent = self._recent_seconds(tenant, job_kind(job.request))
        place = queue_place(tenant, job, snapshot, recent, self._most_running)
        return job.model_copy(update={"queue": place})

    def _recent_seconds(self, tenant: Tenant, kind: TaskKind) -> tuple[float, ...]:
        """How long a tenant's recent jobs of a kind took, read once for each snapshot."""
        read, key = self._recent, (tenant, kind)
        if key not in read:
            read[key] = self._store.queued_jobs.recent_seconds(tenant, kind, RECENT_JOBS)
        return read[key]

    def _current(self) -> QueueSnapshot:
        snapshot = self._snapshot
        if snapshot is not None and (time.monotonic() < self._stale_at or self._reading.locked()):
            return snapshot
        with self._reading:
            if self._snapshot is None or time.monotonic() >= self._stale_at:
                self._snapshot, self._recent = self._read(), {}
            return self._snapshot

    def _read(self) -> QueueSnapshot:
        began = time.monotonic()
        groups = self._store.queued_jobs.groups()
        snapshot = QueueSnapshot(
            groups=groups,
            ranks=ranks_by_needs(groups),
            workers=self._store.workers.live(self._liveness_seconds),
            at=now(),
            turns={name: self._queue.turns(name) for name in QueueName},
            devices=self._store.device_tasks.live_platforms(),
        )
        _ = snapshot.able  # computed here, since it may take longer than reading the rows
        ended = time.monotonic()
        self._stale_at = ended + kept_seconds(ended - began)
        return snapshot
