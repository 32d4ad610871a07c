"""Compilations and their events, as workers write them."""

from collections.abc import Collection
from itertools import pairwise
from typing import Any

import sqlalchemy as sa

from bessemer.contract.base import Digest, JobId
from bessemer.contract.job import (
    Artifact,
    Event,
    EventType,
    Figures,
    JobState,
    Progress,
)
from bessemer.contract.problem import Problem
from bessemer.contract.report import StageTime
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import ResolvedTarget
from bessemer.store.database import Database
from bessemer.store.errors import FencedError
from bessemer.store.rows.lifecycle import JOB_LIFECYCLE, Attempt, CancellableRows
from bessemer.store.rows.tables import EVENTS, JOB_BLOBS, JOB_LOGS, JOB_TRIALS, JOBS

_EVENT_COLUMNS = tuple(EVENTS.c[name] for name in Event.model_fields)
_UNSTORABLE = str.maketrans({"\0": "\N{REPLACEMENT CHARACTER}"})  # PostgreSQL stores no NUL in text


class Jobs(CancellableRows):
    """Compilations of all tenants: one row each, with its events, labels and artifacts."""

    lifecycle = JOB_LIFECYCLE

    # for the app

    def event_counts(self, job_ids: Collection[JobId]) -> dict[JobId, tuple[int, bool]]:
        """The number of events of each job, and whether it is final; unknown ids are left out."""
        query = sa.select(JOBS.c.id, JOBS.c.last_seq, JOBS.c.state).where(JOBS.c.id.in_(job_ids))
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return {row.id: (row.last_seq, JobState(row.state).final) for row in rows}

    # for workers

    def lost_workers(self, job_id: JobId) -> tuple[str, ...]:
        """The workers of the lost attempts, in order."""
        query = (
            sa.select(EVENTS.c.data)
            .where(EVENTS.c.job == job_id, EVENTS.c.type == EventType.STARTED.value)
            .order_by(EVENTS.c.seq)
        )
        with self._database.read() as connection:
            attempts = connection.execute(query).scalars().all()
        return tuple(
            str(attempt["worker"])
            for attempt, following in pairwise(attempts)
            if following["lost_attempts"] > attempt["lost_attempts"]
        )

    def last_seq(self, job_id: JobId, attempt: Attempt) -> int:
        """The number of the job's last event."""
        return int(self._owned_value(job_id, attempt, "last_seq"))

    def best_requested(self, job_id: JobId, attempt: Attempt) -> bool:
        """Whether the user wants the search to end, and the best so far."""
        return bool(self._owned_value(job_id, attempt, "keep_best"))

    def confined(self, job_id: JobId, attempt: Attempt, sandbox: SandboxStatus) -> None:
        """Record which layers of the sandbox hold."""
        document = sandbox.model_dump(mode="json")
        self._advance(job_id, attempt, {"sandbox": document}, EventType.CONFINED, {"sandbox": document})

    def stage_started(self, job_id: JobId, attempt: Attempt, stage: Stage) -> None:
        """Record that a stage begins."""
        values = {"stage": stage.value, "progress": None}
        self._advance(job_id, attempt, values, EventType.STAGE_STARTED, {"stage": stage.value})

    def stage_finished(self, job_id: JobId, attempt: Attempt, stage: StageTime) -> None:
        """Record that a stage has succeeded, and how long it took."""
        document = stage.model_dump(mode="json")
        with self._moving(job_id, attempt, {}, EventType.STAGE_FINISHED, document) as connection:
            stages = connection.execute(sa.select(JOBS.c.stages).where(JOBS.c.id == job_id)).scalar_one()
            connection.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(stages=[*stages, document]))

    def progress(self, job_id: JobId, attempt: Attempt, progress: Progress) -> None:
        """Record a stage's progress. Every call is an event: the caller throttles."""
        document = progress.model_dump(mode="json")
        self._advance(job_id, attempt, {"progress": document}, EventType.PROGRESS, document)

    def publish(
        self,
        job_id: JobId,
        attempt: Attempt,
        target: ResolvedTarget,
        figures: Figures | None,
        artifacts: tuple[Artifact, ...],
    ) -> None:
        """Make files of a running job downloadable, in place of earlier ones, and record their target.

        They are stored already.
        """
        files = _documents(artifacts)
        shown = {"figures": figures.model_dump(mode="json") if figures else None, "artifacts": files}
        published = {"artifacts": files, "target": target.model_dump(mode="json")}
        with self._moving(job_id, attempt, published, EventType.PUBLISHED, shown) as connection:
            _refer(connection, job_id, artifacts)

    def succeed(
        self,
        job_id: JobId,
        attempt: Attempt,
        target: ResolvedTarget,
        verified: bool | None,
        figures: Figures | None,
        artifacts: tuple[Artifact, ...],
        identity: Digest | None = None,
        compiles: bool | None = None,
    ) -> None:
        """End the job; its artifacts are stored already.

        ``verified`` and ``figures`` are None if the request stops before their stages; ``compiles`` is None
        unless the request is a check. With an ``identity``, the job answers later requests.
        """
        shown = {
            "verified": verified,
            "compiles": compiles,
            "figures": figures.model_dump(mode="json") if figures else None,
            "artifacts": _documents(artifacts),
        }
        values = {**shown, "target": target.model_dump(mode="json"), "identity": identity}
        self._end(job_id, attempt, EventType.SUCCEEDED, values, shown, artifacts)

    def fail(
        self, job_id: JobId, attempt: Attempt, problem: Problem, artifacts: tuple[Artifact, ...] = ()
    ) -> None:
        """End the job with a problem; keep what it made and published until then."""
        with self._database.read() as connection:
            query = sa.select(JOBS.c.artifacts).where(JOBS.c.id == job_id)
            found = connection.execute(query).scalar_one_or_none() or []
        published = {artifact.name: artifact for artifact in map(Artifact.read, found)}
        artifacts = tuple((published | {artifact.name: artifact for artifact in artifacts}).values())
        shown = {"problem": problem.model_dump(mode="json"), "artifacts": _documents(artifacts)}
        self._end(job_id, attempt, EventType.FAILED, shown, shown, artifacts)

    def _advance(
        self, job_id: JobId, attempt: Attempt, values: dict[str, Any], event: EventType, data: dict[str, Any]
    ) -> None:
        with self._moving(job_id, attempt, values, event, data):
            pass

    def _end(
        self,
        job_id: JobId,
        attempt: Attempt,
        event: EventType,
        values: dict[str, Any],
        data: dict[str, Any],
        artifacts: tuple[Artifact, ...],
    ) -> None:
        ended = {**values, **self.lifecycle.ended(event.value)}
        with self._moving(job_id, attempt, ended, event, data) as connection:
            connection.execute(sa.delete(JOB_TRIALS).where(JOB_TRIALS.c.job == job_id))
            _refer(connection, job_id, artifacts)


class Logs:
    """What jobs of all tenants print: the tail while they run, and for good if no artifact has it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, job_id: JobId, attempt: Attempt, tail: str) -> None:
        """Keep the tail of what an attempt has printed so far.

        Raises:
            FencedError: the attempt no longer owns the job.
        """
        owned = sa.select(JOBS.c.id).where(JOB_LIFECYCLE.owned(job_id, attempt))
        text = tail.translate(_UNSTORABLE)
        with self._database.write() as connection:
            if connection.execute(owned.with_for_update()).one_or_none() is None:
                raise FencedError(job_id, attempt.number)
            kept = connection.execute(sa.update(JOB_LOGS).where(JOB_LOGS.c.job == job_id).values(tail=text))
            if kept.rowcount == 0:
                connection.execute(sa.insert(JOB_LOGS).values(job=job_id, tail=text))


def _refer(connection: sa.Connection, job_id: JobId, artifacts: tuple[Artifact, ...]) -> None:
    """Keep the files of these artifacts in the store, and no others of the job."""
    connection.execute(sa.delete(JOB_BLOBS).where(JOB_BLOBS.c.job == job_id))
    for digest, size_bytes in {(artifact.digest, artifact.size_bytes) for artifact in artifacts}:
        tenant = sa.select(JOBS.c.tenant).where(JOBS.c.id == job_id).scalar_subquery()
        blob = {"job": job_id, "digest": digest, "tenant": tenant, "size_bytes": size_bytes}
        connection.execute(sa.insert(JOB_BLOBS).values(blob))


def _documents(artifacts: tuple[Artifact, ...]) -> list[dict[str, Any]]:
    return [artifact.model_dump(mode="json") for artifact in artifacts]
