"""The service in numbers, cheap enough to count at every scrape."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

import sqlalchemy as sa

from bessemer.contract.base import now
from bessemer.contract.job import JobState
from bessemer.contract.model import ModelState
from bessemer.store.database import Database
from bessemer.store.queue_port import QUEUES, QueueName, TaskKind
from bessemer.store.rows.lifecycle import INSPECTION_LIFECYCLE, INVOCATION_LIFECYCLE
from bessemer.store.rows.queued_jobs import QUEUED
from bessemer.store.rows.tables import EVENTS, EXTENSIONS, INVOCATIONS, JOB_BLOBS, JOBS, MODELS, WORKERS
from bessemer.store.rows.workers import seen_within

State = TypeVar("State", bound=StrEnum)


@dataclass(frozen=True)
class Backlog:
    """The tasks of one queue that no live worker has in flight, those of lost workers included."""

    count: int = 0
    oldest_seconds: float = 0.0

    def __add__(self, other: "Backlog") -> "Backlog":
        return Backlog(self.count + other.count, max(self.oldest_seconds, other.oldest_seconds))


class StoredKind(StrEnum):
    """The kinds of files in the artifact store."""

    MODEL = "model"
    EXTENSION = "extension"
    ARTIFACT = "artifact"
    INVOCATION = "invocation"


@dataclass(frozen=True)
class StoredFiles:
    """The files of a kind that rows refer to, each counted once."""

    count: int
    size_bytes: int


@dataclass(frozen=True)
class Statistics:
    """The service at one moment. Empty queues and states are included."""

    backlogs: Mapping[QueueName, Backlog]
    jobs: Mapping[JobState, int]
    models: Mapping[ModelState, int]
    workers: int
    stored: Mapping[StoredKind, StoredFiles]


def read_statistics(database: Database, liveness_seconds: float) -> Statistics:
    """Count, in one transaction and mostly from indexes.

    Args:
        database: the database of the rows.
        liveness_seconds: a worker without a heartbeat for this long counts as lost.

    Raises:
        StoreUnavailableError: the database cannot be reached.
    """
    with database.read() as connection:
        is_live = seen_within(database, connection, liveness_seconds)
        return Statistics(
            backlogs=_backlogs(connection, is_live),
            jobs=_counts(connection, JOBS.c.state, JobState),
            models=_counts(connection, MODELS.c.state, ModelState),
            workers=_workers(connection, is_live),
            stored={kind: _stored(connection, files) for kind, files in _FILES.items()},
        )


def _backlogs(connection: sa.Connection, is_live: sa.ColumnElement[bool]) -> dict[QueueName, Backlog]:
    backlogs = dict.fromkeys(QueueName, Backlog())
    found = (
        *_jobs_by_kind(connection, _queued_jobs()),
        *_jobs_by_kind(connection, _unattended_jobs(is_live)),
        (TaskKind.INSPECT, _inspections(connection, is_live)),
        (TaskKind.INVOKE, _invocations(connection, is_live)),
    )
    for kind, backlog in found:
        backlogs[QUEUES[kind]] += backlog
    return backlogs


def _queued_jobs() -> sa.Select[str, int, datetime]:
    return sa.select(JOBS.c.kind, sa.func.count(), sa.func.min(JOBS.c.created_at)).where(QUEUED)


def _unattended_jobs(is_live: sa.ColumnElement[bool]) -> sa.Select[str, int, datetime]:
    """Running jobs that no live worker has in flight; each waits since its last event."""
    last = sa.and_(EVENTS.c.job == JOBS.c.id, EVENTS.c.seq == JOBS.c.last_seq)
    return (
        sa.select(JOBS.c.kind, sa.func.count(), sa.func.min(EVENTS.c.at))
        .join_from(JOBS, EVENTS, last)
        .where(JOBS.c.state == JobState.RUNNING.value, _unattended(JOBS.c.worker, is_live))
    )


def _jobs_by_kind(
    connection: sa.Connection, jobs: sa.Select[str, int, datetime]
) -> list[tuple[TaskKind, Backlog]]:
    return [
        (TaskKind(kind), Backlog(count, _age_seconds(oldest)))
        for kind, count, oldest in connection.execute(jobs.group_by(JOBS.c.kind))
    ]


def _inspections(connection: sa.Connection, is_live: sa.ColumnElement[bool]) -> Backlog:
    since = sa.func.coalesce(MODELS.c.waits_since, MODELS.c.created_at)
    in_progress = INSPECTION_LIFECYCLE.in_progress
    return _backlog(connection, since, in_progress, _unattended(MODELS.c.worker, is_live))


def _invocations(connection: sa.Connection, is_live: sa.ColumnElement[bool]) -> Backlog:
    since = sa.func.coalesce(INVOCATIONS.c.started_at, INVOCATIONS.c.created_at)
    return _backlog(
        connection, since, INVOCATION_LIFECYCLE.in_progress, _unattended(INVOCATIONS.c.worker, is_live)
    )


def _backlog(
    connection: sa.Connection, since: sa.ColumnElement[datetime], *conditions: sa.ColumnElement[bool]
) -> Backlog:
    count, oldest = connection.execute(
        sa.select(sa.func.count(), sa.func.min(since)).where(*conditions)
    ).one()
    return Backlog(count, _age_seconds(oldest))


def _unattended(worker: sa.Column[str], is_live: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.or_(worker.is_(None), worker.not_in(sa.select(WORKERS.c.id).where(is_live)))


def _age_seconds(moment: datetime | None) -> float:
    return 0.0 if moment is None else max(0.0, (now() - moment).total_seconds())


def _counts(connection: sa.Connection, column: sa.Column[str], states: type[State]) -> dict[State, int]:
    query = sa.select(column, sa.func.count()).group_by(column)
    return dict.fromkeys(states, 0) | {states(state): count for state, count in connection.execute(query)}


def _workers(connection: sa.Connection, is_live: sa.ColumnElement[bool]) -> int:
    return connection.execute(sa.select(sa.func.count()).select_from(WORKERS).where(is_live)).scalar_one()


def _stored(connection: sa.Connection, files: sa.Subquery) -> StoredFiles:
    query = sa.select(sa.func.count(), sa.func.sum(files.c.size_bytes))
    count, size_bytes = connection.execute(query.select_from(files)).one()
    return StoredFiles(count, int(size_bytes or 0))


def _files(digest: sa.Column[str], size_bytes: sa.Column[int]) -> sa.Select[str, str, int]:
    """Equal files of two tenants are two files."""
    tenant = digest.table.c.tenant.label("tenant")
    return sa.select(digest.label("digest"), tenant, size_bytes.label("size_bytes"))


_OF_INVOCATIONS = sa.union(
    _files(INVOCATIONS.c.inputs, INVOCATIONS.c.inputs_bytes),
    _files(INVOCATIONS.c.outputs_digest, INVOCATIONS.c.outputs_bytes).where(
        INVOCATIONS.c.outputs_digest.is_not(None)
    ),
)
_FILES = {
    StoredKind.MODEL: _files(MODELS.c.digest, MODELS.c.size_bytes).subquery(),
    StoredKind.EXTENSION: _files(EXTENSIONS.c.digest, EXTENSIONS.c.size_bytes).subquery(),
    StoredKind.ARTIFACT: _files(JOB_BLOBS.c.digest, JOB_BLOBS.c.size_bytes).distinct().subquery(),
    StoredKind.INVOCATION: _OF_INVOCATIONS.subquery(),
}
