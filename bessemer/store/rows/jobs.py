"""Jobs and their events. The row is the one truth; every move is a compare-and-set that leaves an event."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from bessemer.contract.base import DEFAULT_TENANT, Digest, JobId, now
from bessemer.contract.capability import needs_of
from bessemer.contract.job import (
    Artifact,
    Compilation,
    EventType,
    Figures,
    JobState,
    Progress,
)
from bessemer.contract.problem import Problem
from bessemer.contract.report import StageTime
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import ResolvedTarget, target_name
from bessemer.store.errors import FencedError, IdempotencyConflictError
from bessemer.store.queue_port import job_kind
from bessemer.store.rows.cancelling import asked_to_stop, cancel_job, hold_worker, job_ended, unattended
from bessemer.store.rows.job_reading import JobReader
from bessemer.store.rows.job_rows import owned, record_event, update_with_event
from bessemer.store.rows.tables import JOB_BLOBS, JOBS, LABELS, MODELS
from bessemer.store.rows.transitions import counting_lost, sources

_FRESH_ATTEMPT: dict[str, Any] = {"stage": None, "progress": None, "sandbox": None, "stages": []}


class Jobs(JobReader):
    """The moves, beside what is read. Every method is one transaction, and raises as those do."""

    # what clients do

    def submit(
        self,
        job_id: JobId,
        request: CompilationRequest,
        tenant: str = DEFAULT_TENANT,
        traceparent: str | None = None,
    ) -> Compilation:
        """Insert a queued job; the same id with the same request gives the job that is there.

        One that somebody deletes in between is inserted again.

        Args:
            job_id: its id.
            request: what is to be compiled, and how.
            tenant: whose it is.
            traceparent: the trace to which it belongs, in W3C's form; that of the first submission stays.

        Raises:
            IdempotencyConflictError: the id is taken by another request or another tenant.
        """
        job: Compilation | None = None
        while job is None:
            try:
                self._insert(job_id, request, tenant, traceparent)
            except sa.exc.IntegrityError:
                self._require_same(job_id, request, tenant)
            job = self.get(job_id)
        return job

    def request_cancel(self, job_id: JobId) -> Compilation | None:
        """Cancel a job at once that no live worker has in hand, ask others to stop, leave final ones.

        Returns:
            The job afterwards; None where there is none of that id.
        """
        with self._database.write() as connection:
            hold_worker(connection, JOBS, job_id)
            if not cancel_job(connection, job_id, unattended(JOBS)):
                connection.execute(
                    sa.update(JOBS).where(JOBS.c.id == job_id, _in_hand()).values(cancel_requested=True)
                )
        return self.get(job_id)

    # what the sweeper does

    def mark_enqueued(self, job_id: JobId) -> None:
        """Note that the queue has the job."""
        with self._database.write() as connection:
            connection.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(enqueued_at=now()))

    # what the worker that owns an attempt does

    def start(self, job_id: JobId, worker_id: str) -> int | None:
        """Take a queued job, or a running one from whoever has it in hand: that worker is fenced out.

        An attempt that its worker did not hand back counts as lost.

        Returns:
            The attempt, counted from 1; None where the job is final or unknown, or was to be cancelled: it
            is now.
        """
        takeable = (*sources(JobState.RUNNING), JobState.RUNNING)
        taken = (
            sa.update(JOBS)
            .where(
                JOBS.c.id == job_id,
                JOBS.c.state.in_([state.value for state in takeable]),
                sa.not_(asked_to_stop(JOBS)),
            )
            .values(
                {
                    **_FRESH_ATTEMPT,
                    "state": JobState.RUNNING.value,
                    "attempt": JOBS.c.attempt + 1,
                    "lost_attempts": counting_lost(JOBS, _in_hand()),
                    "last_seq": JOBS.c.last_seq + 1,
                    "worker": worker_id,
                    "started_at": sa.func.coalesce(JOBS.c.started_at, now()),
                }
            )
            .returning(JOBS.c.attempt, JOBS.c.last_seq, JOBS.c.lost_attempts)
        )
        with self._database.write() as connection:
            row = connection.execute(taken).one_or_none()
            if row is None:
                cancel_job(connection, job_id, asked_to_stop(JOBS))
                return None
            data = {"attempt": row.attempt, "worker": worker_id, "lost_attempts": row.lost_attempts}
            record_event(connection, job_id, row.last_seq, EventType.STARTED, data)
            return int(row.attempt)

    def hand_back(self, job_id: JobId, attempt: int) -> None:
        """Let go of a job that could not be done just now: the attempt does not count as lost.

        One that was to be cancelled ends so.

        Raises:
            FencedError: the attempt no longer owns the job.
        """
        with self._database.write() as connection:
            let_go = sa.update(JOBS).where(JOBS.c.id == job_id, owned(attempt)).values(worker=None)
            if connection.execute(let_go).rowcount == 0:
                raise FencedError(job_id, attempt)
            cancel_job(connection, job_id, sa.and_(owned(attempt), asked_to_stop(JOBS)))

    def confined(self, job_id: JobId, attempt: int, sandbox: SandboxStatus) -> None:
        """Record which layers hold. Raises ``FencedError``, as do all that follow."""
        document = sandbox.model_dump(mode="json")
        self._advance(job_id, attempt, {"sandbox": document}, EventType.CONFINED, {"sandbox": document})

    def stage_started(self, job_id: JobId, attempt: int, stage: Stage) -> None:
        """Record that a stage begins."""
        values = {"stage": stage.value, "progress": None}
        self._advance(job_id, attempt, values, EventType.STAGE_STARTED, {"stage": stage.value})

    def stage_finished(self, job_id: JobId, attempt: int, stage: StageTime) -> None:
        """Record that a stage has ended well, and how long it took."""
        document = stage.model_dump(mode="json")
        with self._database.write() as connection:
            if not update_with_event(
                connection, job_id, owned(attempt), {}, EventType.STAGE_FINISHED, document
            ):
                raise FencedError(job_id, attempt)
            stages = connection.execute(sa.select(JOBS.c.stages).where(JOBS.c.id == job_id)).scalar_one()
            connection.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(stages=[*stages, document]))

    def progress(self, job_id: JobId, attempt: int, progress: Progress) -> None:
        """Record how far a stage is. Every call is an event: the caller throttles."""
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
        """End the job well; its artifacts are stored already.

        Where it was to stop early, ``verified`` or ``figures`` are unknown.
        """
        shown = {
            "verified": verified,
            "figures": figures.model_dump(mode="json") if figures else None,
            "artifacts": _documents(artifacts),
        }
        values = {
            **shown,
            "target": target.model_dump(mode="json"),
            **job_ended(JobState.SUCCEEDED),
        }
        self._advance(job_id, attempt, values, EventType.SUCCEEDED, shown, artifacts)

    def fail(
        self, job_id: JobId, attempt: int, problem: Problem, artifacts: tuple[Artifact, ...] = ()
    ) -> None:
        """End the job with a problem, keeping what it made until then."""
        shown = {"problem": problem.model_dump(mode="json"), "artifacts": _documents(artifacts)}
        values = {**shown, **job_ended(JobState.FAILED)}
        self._advance(job_id, attempt, values, EventType.FAILED, shown, artifacts)

    def cancel_finished(self, job_id: JobId, attempt: int) -> None:
        """End the job as cancelled, once its processes are gone."""
        self._advance(job_id, attempt, job_ended(JobState.CANCELLED), EventType.CANCELLED, {})

    def _advance(
        self,
        job_id: JobId,
        attempt: int,
        values: Mapping[str, Any],
        event: EventType,
        data: Mapping[str, Any],
        artifacts: tuple[Artifact, ...] = (),
    ) -> None:
        with self._database.write() as connection:
            if not update_with_event(connection, job_id, owned(attempt), values, event, data):
                raise FencedError(job_id, attempt)
            for digest, size_bytes in {(artifact.digest, artifact.size_bytes) for artifact in artifacts}:
                blob = {"job": job_id, "digest": digest, "size_bytes": size_bytes}
                connection.execute(sa.insert(JOB_BLOBS).values(blob))

    def _insert(
        self, job_id: JobId, request: CompilationRequest, tenant: str, traceparent: str | None
    ) -> None:
        needs = needs_of(request.target)
        values = {
            **_FRESH_ATTEMPT,
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
            record_event(connection, job_id, 1, EventType.QUEUED, {})

    def _require_same(self, job_id: JobId, request: CompilationRequest, tenant: str) -> None:
        with self._database.read() as connection:
            row = connection.execute(
                sa.select(JOBS.c.request, JOBS.c.tenant).where(JOBS.c.id == job_id)
            ).one_or_none()
        if row is None:
            return
        if row.tenant != tenant or CompilationRequest.read(row.request) != request:
            raise IdempotencyConflictError(job_id)


def _model_name(digest: Digest, tenant: str) -> sa.ScalarSelect[Any]:
    named = sa.and_(MODELS.c.tenant == tenant, MODELS.c.digest == digest)
    return sa.select(MODELS.c.name).where(named).scalar_subquery()


def _in_hand() -> sa.ColumnElement[bool]:
    return sa.and_(JOBS.c.state == JobState.RUNNING.value, JOBS.c.worker.is_not(None))


def _documents(artifacts: tuple[Artifact, ...]) -> list[dict[str, Any]]:
    return [artifact.model_dump(mode="json") for artifact in artifacts]
