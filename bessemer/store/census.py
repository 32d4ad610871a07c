"""How much there is of everything: cheap to count, for whoever watches the service."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

import sqlalchemy as sa

from bessemer.contract.base import now
from bessemer.contract.job import JobState
from bessemer.contract.model import ModelState
from bessemer.store.database import Database
from bessemer.store.queue import QUEUES, QueueName, TaskKind
from bessemer.store.tables import INVOCATIONS, JOBS, MODELS, WORKERS

State = TypeVar("State", bound=StrEnum)


@dataclass(frozen=True)
class Waiting:
    """The tasks of one queue that no worker has taken."""

    count: int = 0
    oldest_seconds: float = 0.0

    def joined(self, other: "Waiting") -> "Waiting":
        """Both together."""
        return Waiting(self.count + other.count, max(self.oldest_seconds, other.oldest_seconds))


@dataclass(frozen=True)
class Kept:
    """How much of a kind is kept, as the tables name it."""

    count: int
    size_bytes: int


@dataclass(frozen=True)
class Census:
    """The service at one moment. Every queue and state is there, the empty ones too."""

    waiting: Mapping[QueueName, Waiting]
    jobs: Mapping[JobState, int]
    models: Mapping[ModelState, int]
    workers_live: int
    workers_lost: int
    kept_models: Kept
    kept_artifacts: Kept


def take_census(database: Database, liveness_seconds: float) -> Census:
    """Count, in one transaction and mostly from indexes.

    Args:
        database: where the tables are.
        liveness_seconds: a worker that was not heard of for so long counts as lost.

    Raises:
        StoreUnavailableError: the database cannot be reached.
    """
    with database.read() as connection:
        live, workers = _workers(connection, liveness_seconds)
        return Census(
            waiting=_waiting(connection),
            jobs=_counts(connection, JOBS.c.state, JobState),
            models=_counts(connection, MODELS.c.state, ModelState),
            workers_live=live,
            workers_lost=workers - live,
            kept_models=_sums(connection, sa.func.count(), MODELS.c.size_bytes),
            kept_artifacts=_sums(connection, sa.func.sum(JOBS.c.artifact_count), JOBS.c.artifact_bytes),
        )


def _waiting(connection: sa.Connection) -> dict[QueueName, Waiting]:
    waiting = dict.fromkeys(QueueName, Waiting())
    others = (
        (TaskKind.INSPECT, _waiting_since(connection, MODELS, ModelState.INSPECTING)),
        (TaskKind.INVOKE, _waiting_since(connection, INVOCATIONS, JobState.QUEUED)),
    )
    for kind, found in (*_waiting_jobs(connection), *others):
        waiting[QUEUES[kind]] = waiting[QUEUES[kind]].joined(found)
    return waiting


def _waiting_jobs(connection: sa.Connection) -> list[tuple[TaskKind, Waiting]]:
    query = (
        sa.select(JOBS.c.kind, sa.func.count(), sa.func.min(JOBS.c.created_at))
        .where(JOBS.c.state == JobState.QUEUED.value)
        .group_by(JOBS.c.kind)
    )
    return [
        (TaskKind(kind), Waiting(count, _age_seconds(oldest)))
        for kind, count, oldest in connection.execute(query)
    ]


def _waiting_since(connection: sa.Connection, table: sa.Table, state: ModelState | JobState) -> Waiting:
    query = sa.select(sa.func.count(), sa.func.min(table.c.created_at)).where(table.c.state == state.value)
    count, oldest = connection.execute(query).one()
    return Waiting(count, _age_seconds(oldest))


def _age_seconds(moment: datetime | None) -> float:
    return 0.0 if moment is None else max(0.0, (now() - moment).total_seconds())


def _counts(connection: sa.Connection, column: sa.Column[str], states: type[State]) -> dict[State, int]:
    query = sa.select(column, sa.func.count()).group_by(column)
    return dict.fromkeys(states, 0) | {states(state): count for state, count in connection.execute(query)}


def _workers(connection: sa.Connection, liveness_seconds: float) -> tuple[int, int]:
    """How many live, and how many there are in all."""
    live = WORKERS.c.seen_at >= now() - timedelta(seconds=liveness_seconds)
    query = sa.select(sa.func.count().filter(live), sa.func.count()).select_from(WORKERS)
    found = connection.execute(query).one()
    return found[0], found[1]


def _sums(connection: sa.Connection, count: sa.Function[int], size_bytes: sa.Column[int]) -> Kept:
    found = connection.execute(sa.select(count, sa.func.sum(size_bytes)).select_from(size_bytes.table)).one()
    return Kept(int(found[0] or 0), int(found[1] or 0))
