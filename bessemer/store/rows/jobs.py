"""Compilations and their events."""

from collections.abc import Collection
from itertools import pairwise
from typing import Any

import sqlalchemy as sa

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.base import Digest, JobId, now
from bessemer.contract.capability import needs_of
from bessemer.contract.job import (
    Artifact,
    Compilation,
    CompilationPage,
    Event,
    EventType,
    Figures,
    JobState,
    Progress,
)
from bessemer.contract.listing import EVERYTHING, CompilationFilter
from bessemer.contract.problem import Problem
from bessemer.contract.report import StageTime
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import ResolvedTarget, target_name
from bessemer.store.database import Database
from bessemer.store.errors import FencedError, IdempotencyConflictError
from bessemer.store.queue_port import job_kind
from bessemer.store.rows.filters import conditions, starts_with
from bessemer.store.rows.lifecycle import JOB_LIFECYCLE, CancellableRows
from bessemer.store.rows.paging import read_page
from bessemer.store.rows.tables import EVENTS, JOB_BLOBS, JOB_LOGS, JOBS, LABELS, MODELS

_EVENT_COLUMNS = tuple(EVENTS.c[name] for name in Event.model_fields)
_UNSTORABLE = str.maketrans({"\0": "\N{REPLACEMENT CHARACTER}"})  # PostgreSQL stores no NUL in text


class Jobs(CancellableRows[Compilation]):
    """Compilations: one row each, with its events, labels and artifacts."""

    lifecycle = JOB_LIFECYCLE
    document = Compilation
    shown_columns = tuple(JOBS.c[name] for name in Compilation.model_fields if name != "queue")

    # for the app

    def submit(
        self,
        job_id: JobId,
        request: CompilationRequest,
        tenant: str = DEFAULT_TENANT,
        traceparent: str | None = None,
    ) -> Compilation:
        """Insert a queued job. If the id exists with the same request, return that job.

        Args:
            job_id: its id.
            request: what to compile, and how.
            tenant: its owner.
            traceparent: the W3C trace context of this request; the first submission's is kept.

        Raises:
            IdempotencyConflictError: another request or another tenant uses the id.
        """
        job: Compilation | None = None
        while job is None:  # a job that is deleted in between is inserted again
            try:
                self._insert(job_id, request, tenant, traceparent)
            except sa.exc.IntegrityError:
                self._require_same(job_id, request, tenant)
            job = self.get(job_id)
        return job

    def starting(self, prefix: str, limit: int) -> tuple[JobId, ...]:
        """The ids that start with ``prefix``, in order, at most ``limit``."""
        query = sa.select(JOBS.c.id).where(starts_with(JOBS.c.id, prefix)).order_by(JOBS.c.id).limit(limit)
        with self._database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def page(
        self, limit: int, cursor: str | None = None, wanted: CompilationFilter = EVERYTHING
    ) -> CompilationPage:
        """Jobs, newest first. Jobs that arrive between two pages neither repeat nor hide any.

        Raises:
            CursorInvalidError: ``cursor`` is not the ``next`` of an earlier page.
        """
        query = sa.select(*self.shown_columns).where(*conditions(wanted))
        page = read_page(self._database, query, (JOBS.c.created_at, JOBS.c.id), limit, cursor)
        return CompilationPage(items=tuple(map(self._shown, page.rows)), next=page.next)

    def events_after(self, job_id: JobId, seq: int, limit: int = 500) -> tuple[Event, ...]:
        """The events after number ``seq`` (0: from the first), in order, at most ``limit``."""
        query = (
            sa.select(*_EVENT_COLUMNS)
            .where(EVENTS.c.job == job_id, EVENTS.c.seq > seq)
            .order_by(EVENTS.c.seq)
            .limit(limit)
        )
        with self._database.read() as connection:
            return tuple(Event.read(dict(row._mapping)) for row in connection.execute(query))

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

    def last_seq(self, job_id: JobId, attempt: int) -> int:
        """The number of the job's last event."""
        return int(self._owned_value(job_id, attempt, "last_seq"))

    def confined(self, job_id: JobId, attempt: int, sandbox: SandboxStatus) -> None:
        """Record which layers of the sandbox hold."""
        document = sandbox.model_dump(mode="json")
        self._advance(job_id, attempt, {"sandbox": document}, EventType.CONFINED, {"sandbox": document})

    def stage_started(self, job_id: JobId, attempt: int, stage: Stage) -> None:
        """Record that a stage begins."""
        values = {"stage": stage.value, "progress": None}
        self._advance(job_id, attempt, values, EventType.STAGE_STARTED, {"stage": stage.value})

    def stage_finished(self, job_id: JobId, attempt: int, stage: StageTime) -> None:
        """Record that a stage has succeeded, and how long it took."""
        document = stage.model_dump(mode="json")
        with self._moving(job_id, attempt, {}, EventType.STAGE_FINISHED, document) as connection:
            stages = connection.execute(sa.select(JOBS.c.stages).where(JOBS.c.id == job_id)).scalar_one()
            connection.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(stages=[*stages, document]))

    def progress(self, job_id: JobId, attempt: int, progress: Progress) -> None:
        """Record a stage's progress. Every call is an event: the caller throttles."""
        document = progress.model_dump(mode="json")
        self._advance(job_id, attempt, {"progress": document}, EventType.PROGRESS, document)

    def succeed(
        self,
        job_id: JobId,
        attempt: int,
        target: ResolvedTarget,
        verified: bool | None,
        figures: Figures | None,
        artifacts: tuple[Artifact, ...],
    ) -> None:
        """End the job; its artifacts are stored already.

        ``verified`` and ``figures`` are None if the request stops before their stages.
        """
        shown = {
            "verified": verified,
            "figures": figures.model_dump(mode="json") if figures else None,
            "artifacts": _documents(artifacts),
        }
        values = {**shown, "target": target.model_dump(mode="json")}
        self._end(job_id, attempt, EventType.SUCCEEDED, values, shown, artifacts)

    def fail(
        self, job_id: JobId, attempt: int, problem: Problem, artifacts: tuple[Artifact, ...] = ()
    ) -> None:
        """End the job with a problem; keep what it made until then."""
        shown = {"problem": problem.model_dump(mode="json"), "artifacts": _documents(artifacts)}
        self._end(job_id, attempt, EventType.FAILED, shown, shown, artifacts)

    def _advance(
        self, job_id: JobId, attempt: int, values: dict[str, Any], event: EventType, data: dict[str, Any]
    ) -> None:
        with self._moving(job_id, attempt, values, event, data):
            pass

    def _end(
        self,
        job_id: JobId,
        attempt: int,
        event: EventType,
        values: dict[str, Any],
        data: dict[str, Any],
        artifacts: tuple[Artifact, ...],
    ) -> None:
        ended = {**values, **self.lifecycle.ended(event.value)}
        with self._moving(job_id, attempt, ended, event, data) as connection:
            for digest, size_bytes in {(artifact.digest, artifact.size_bytes) for artifact in artifacts}:
                blob = {"job": job_id, "digest": digest, "size_bytes": size_bytes}
                connection.execute(sa.insert(JOB_BLOBS).values(blob))

    def _insert(
        self, job_id: JobId, request: CompilationRequest, tenant: str, traceparent: str | None
    ) -> None:
        needs = needs_of(request.target)
        values = {
            **self.lifecycle.at_start,
            "id": job_id,
            "tenant": tenant,
            "state": JobState.QUEUED.value,
            "attempt": 0,
            "last_seq": 1,
            "request": request.model_dump(mode="json"),
            "name": request.name or _model_name(request.model, tenant),
            "model": request.model,
            "target_name": target_name(request.target),
            "kind": job_kind(request).value,
            "priority": request.priority,
            "needs": None if needs is None else str(needs),
            "cancel_requested": False,
            "artifacts": [],
            "traceparent": traceparent,
            "created_at": now(),
        }
        with self._database.write() as connection:
            connection.execute(sa.insert(JOBS).values(values))
            for key, value in request.labels.items():
                connection.execute(sa.insert(LABELS).values(job=job_id, key=key, value=value))
            self.lifecycle.record(connection, job_id, 1, EventType.QUEUED, {})

    def _require_same(self, job_id: JobId, request: CompilationRequest, tenant: str) -> None:
        with self._database.read() as connection:
            row = connection.execute(
                sa.select(JOBS.c.request, JOBS.c.tenant).where(JOBS.c.id == job_id)
            ).one_or_none()
        if row is None:
            return
        if row.tenant != tenant or CompilationRequest.read(row.request) != request:
            raise IdempotencyConflictError(job_id)


class Logs:
    """What jobs print: the tail while they run, and for good if no artifact has it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, job_id: JobId, attempt: int, tail: str) -> None:
        """Keep the tail of what an attempt has printed so far.

        Raises:
            FencedError: the attempt no longer owns the job.
        """
        owned = sa.select(JOBS.c.id).where(JOB_LIFECYCLE.owned(job_id, attempt))
        text = tail.translate(_UNSTORABLE)
        with self._database.write() as connection:
            if connection.execute(owned.with_for_update()).one_or_none() is None:
                raise FencedError(job_id, attempt)
            kept = connection.execute(sa.update(JOB_LOGS).where(JOB_LOGS.c.job == job_id).values(tail=text))
            if kept.rowcount == 0:
                connection.execute(sa.insert(JOB_LOGS).values(job=job_id, tail=text))

    def read(self, job_id: JobId) -> str:
        """The tail of what a job has printed; empty if it printed nothing."""
        with self._database.read() as connection:
            tail: str | None = connection.execute(
                sa.select(JOB_LOGS.c.tail).where(JOB_LOGS.c.job == job_id)
            ).scalar_one_or_none()
        return tail or ""


def _model_name(digest: Digest, tenant: str) -> sa.ScalarSelect[Any]:
    named = sa.and_(MODELS.c.tenant == tenant, MODELS.c.digest == digest)
    return sa.select(MODELS.c.name).where(named).scalar_subquery()


def _documents(artifacts: tuple[Artifact, ...]) -> list[dict[str, Any]]:
    return [artifact.model_dump(mode="json") for artifact in artifacts]
