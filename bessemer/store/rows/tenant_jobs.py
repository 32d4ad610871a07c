"""A tenant's compilations and their events."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from bessemer.contract.base import Digest, JobId, now
from bessemer.contract.job import Compilation, CompilationPage, Event, EventType, JobState
from bessemer.contract.listing import EVERYTHING, CompilationFilter
from bessemer.contract.request import CompilationRequest
from bessemer.contract.target import target_name
from bessemer.store.errors import IdempotencyConflictError, JobNotFinalError
from bessemer.store.queue_port import job_kind
from bessemer.store.rows.filters import conditions, starts_with
from bessemer.store.rows.lifecycle import JOB_LIFECYCLE
from bessemer.store.rows.paging import read_page
from bessemer.store.rows.tables import (
    EVENTS,
    JOB_BLOBS,
    JOB_KEYS,
    JOB_LOGS,
    JOB_TRIALS,
    JOBS,
    LABELS,
    MODELS,
    TUNING_KEYS,
)
from bessemer.store.rows.tenant_rows import CancellableTenantRows

_EVENT_COLUMNS = tuple(EVENTS.c[name] for name in Event.model_fields)
_RESULTS = (
    "target",
    "stage",
    "sandbox",
    "stages",
    "verified",
    "compiles",
    "figures",
    "artifacts",
    "identity",
)
_SHOWN_RESULTS = ("verified", "compiles", "figures", "artifacts", "original")
_FINAL = [state.value for state in JobState if state.final]


@dataclass(frozen=True)
class Member:
    """A compilation's place in its group."""

    group: JobId
    index: int
    size: int

    @property
    def columns(self) -> dict[str, Any]:
        """The values of its row."""
        return {"group": self.group, "group_index": self.index, "group_size": self.size}


class TenantJobs(CancellableTenantRows[Compilation]):
    """A tenant's compilations: one row each, with its events, labels and artifacts."""

    lifecycle = JOB_LIFECYCLE
    name = JOBS.c.id
    document = Compilation
    shown_columns = tuple(JOBS.c[name] for name in Compilation.model_fields if name != "queue")

    def submit(
        self,
        job_id: JobId,
        request: CompilationRequest,
        traceparent: str | None = None,
        identities: Collection[Digest] = (),
    ) -> Compilation:
        """Insert a queued job. If the id exists with the same request, return that job.

        Args:
            job_id: its id.
            request: what to compile, and how.
            traceparent: the W3C trace context of this request; the first submission's is kept.
            identities: the results that would answer the request: if the tenant has one, the job has
                succeeded with it.

        Raises:
            IdempotencyConflictError: another request or another tenant uses the id.
        """
        job: Compilation | None = None
        while job is None:  # a job that is deleted in between is inserted again
            try:
                with self._database.write() as connection:
                    self._insert(connection, job_id, request, traceparent, identities)
            except sa.exc.IntegrityError:
                self._require_same(job_id, request)
            job = self.get(job_id)
        return job

    def submit_group(
        self,
        group: JobId,
        requests: Mapping[JobId, CompilationRequest],
        traceparent: str | None = None,
        identities: Mapping[JobId, Collection[Digest]] = MappingProxyType({}),
    ) -> tuple[Compilation, ...]:
        """Insert a queued job for each request, or none. Jobs that exist with the same request stay.

        Args:
            group: the id of the group.
            requests: the requests by the ids of their jobs, in order.
            traceparent: the W3C trace context of this request.
            identities: for each job, the results that would answer its request, as in ``submit``.

        Returns:
            The group's jobs, in the order of the requests.

        Raises:
            IdempotencyConflictError: other requests use the id of the group, or one of a job.
        """
        jobs: tuple[Compilation, ...] = ()
        while len(jobs) < len(requests):  # jobs that are deleted in between are inserted again
            try:
                with self._database.write() as connection:
                    known = self._members(connection, group, requests)
                    for index, (job_id, request) in enumerate(requests.items()):
                        if job_id not in known:
                            member = Member(group, index, len(requests))
                            known_results = identities.get(job_id, ())
                            self._insert(connection, job_id, request, traceparent, known_results, member)
            except sa.exc.IntegrityError:
                continue  # another process has inserted one: compare it
            jobs = self.group(group)
        return jobs

    def group(self, group: JobId) -> tuple[Compilation, ...]:
        """The jobs of a group, in the order of its targets; empty if the tenant has no such group."""
        owned = sa.and_(self._owned, JOBS.c.group == group)
        query = sa.select(*self.shown_columns).where(owned).order_by(JOBS.c.group_index)
        with self._database.read() as connection:
            return tuple(map(self._shown, connection.execute(query)))

    def starting(self, prefix: str, limit: int) -> tuple[JobId, ...]:
        """The ids that start with ``prefix``, in order, at most ``limit``."""
        return self._starting(JOBS.c.id, prefix, limit)

    def groups_starting(self, prefix: str, limit: int) -> tuple[JobId, ...]:
        """The ids of groups that start with ``prefix``, in order, at most ``limit``."""
        return self._starting(JOBS.c.group, prefix, limit)

    def _starting(self, column: sa.Column[Any], prefix: str, limit: int) -> tuple[JobId, ...]:
        named = sa.and_(self._owned, starts_with(column, prefix))
        query = sa.select(column).distinct().where(named).order_by(column).limit(limit)
        with self._database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def page(
        self, limit: int, cursor: str | None = None, wanted: CompilationFilter = EVERYTHING
    ) -> CompilationPage:
        """Jobs, newest first. Jobs that arrive between two pages neither repeat nor hide any.

        Raises:
            CursorInvalidError: ``cursor`` is not the ``next`` of an earlier page.
        """
        query = sa.select(*self.shown_columns).where(self._owned, *conditions(wanted))
        page = read_page(self._database, query, (JOBS.c.created_at, JOBS.c.id), limit, cursor)
        return CompilationPage(items=tuple(map(self._shown, page.rows)), next=page.next)

    def events_after(self, job_id: JobId, seq: int, limit: int = 500) -> tuple[Event, ...]:
        """The events after number ``seq`` (0: from the first), in order, at most ``limit``."""
        query = (
            sa.select(*_EVENT_COLUMNS)
            .join_from(JOBS, EVENTS, EVENTS.c.job == JOBS.c.id)
            .where(self._named(job_id), EVENTS.c.seq > seq)
            .order_by(EVENTS.c.seq)
            .limit(limit)
        )
        with self._database.read() as connection:
            return tuple(Event.read(dict(row._mapping)) for row in connection.execute(query))

    def log_tail(self, job_id: JobId) -> str:
        """The tail of what a job has printed; empty if it printed nothing."""
        kept = sa.select(JOB_LOGS.c.tail).join_from(JOBS, JOB_LOGS, JOB_LOGS.c.job == JOBS.c.id)
        with self._database.read() as connection:
            tail: str | None = connection.execute(kept.where(self._named(job_id))).scalar_one_or_none()
        return tail or ""

    def delete(self, job_id: JobId) -> bool:
        """Delete a final job, its events and its invocations.

        Returns:
            Whether the tenant had the job.

        Raises:
            JobNotFinalError: the job is not final.
        """
        named = self._named(job_id)
        with self._database.write() as connection:
            final = sa.delete(JOBS).where(named, JOBS.c.state.in_(_FINAL))
            if connection.execute(final).rowcount:
                return True
            state = connection.execute(sa.select(JOBS.c.state).where(named)).scalar_one_or_none()
        if state is None:
            return False
        raise JobNotFinalError(job_id, state)

    def delete_group(self, group: JobId) -> bool:
        """Delete the jobs of a group as ``delete`` does, or none.

        Returns:
            Whether the tenant had the group.

        Raises:
            JobNotFinalError: a job is not final.
        """
        owned = sa.and_(self._owned, JOBS.c.group == group)
        going_on = sa.select(JOBS.c.id, JOBS.c.state).where(owned, JOBS.c.state.not_in(_FINAL)).limit(1)
        with self._database.write() as connection:
            row = connection.execute(going_on).one_or_none()
            if row is not None:
                raise JobNotFinalError(row.id, row.state)
            return connection.execute(sa.delete(JOBS).where(owned, JOBS.c.state.in_(_FINAL))).rowcount > 0

    def request_best(self, job_id: JobId) -> Compilation | None:
        """Ask a running job to end its search, and to deliver the best so far.

        A job that no worker has, and that has measured nothing, is cancelled at once.

        Returns:
            The job's document afterwards; None if the tenant has no such job.
        """
        named = self._named(job_id)
        has_trials = sa.exists().where(JOB_TRIALS.c.job == JOBS.c.id)
        going_on = sa.and_(named, self.lifecycle.in_progress, sa.or_(self.lifecycle.in_flight, has_trials))
        with self._database.write() as connection:
            asked = connection.execute(sa.update(JOBS).where(going_on).values(keep_best=True)).rowcount
        return self.get(job_id) if asked else self.request_cancel(job_id)

    def withdraw(self, job_id: JobId) -> None:
        """Delete a job that has not been enqueued yet."""
        waiting = sa.and_(JOBS.c.state == JobState.QUEUED.value, JOBS.c.enqueued_at.is_(None))
        with self._database.write() as connection:
            connection.execute(sa.delete(JOBS).where(self._named(job_id), waiting))

    def _insert(
        self,
        connection: sa.Connection,
        job_id: JobId,
        request: CompilationRequest,
        traceparent: str | None,
        identities: Collection[Digest],
        member: Member | None = None,
    ) -> None:
        if connection.execute(sa.select(JOBS.c.id).where(JOBS.c.group == job_id).limit(1)).first():
            raise IdempotencyConflictError(job_id)
        needs = request.needs
        values = {
            **self.lifecycle.at_start,
            "id": job_id,
            "tenant": self.tenant,
            "state": JobState.QUEUED.value,
            "attempt": 0,
            "last_seq": 1,
            "request": request.model_dump(mode="json"),
            "name": request.name or self._model_name(request),
            "model": request.model,
            "target_name": target_name(request.target),
            "kind": job_kind(request).value,
            "priority": request.priority,
            "needs": None if needs is None else str(needs),
            "cancel_requested": False,
            "artifacts": [],
            "traceparent": traceparent,
            "created_at": now(),
            **(member.columns if member else {}),
        }
        source = self._newest(connection, identities)
        results = {} if source is None else _results_of(source)
        connection.execute(sa.insert(JOBS).values({**values, **results}))
        for key, value in request.labels.items():
            connection.execute(sa.insert(LABELS).values(job=job_id, key=key, value=value))
        self.lifecycle.record(connection, job_id, 1, EventType.QUEUED, {})
        if source is not None:
            _share_blobs(connection, source.id, job_id)
            _share_keys(connection, source.id, job_id)
            shown = {name: results[name] for name in _SHOWN_RESULTS}
            self.lifecycle.record(connection, job_id, 2, EventType.SUCCEEDED, shown)

    def _newest(self, connection: sa.Connection, identities: Collection[Digest]) -> sa.Row[Any] | None:
        """The newest job with one of these results, which stays until the transaction ends."""
        if not identities:
            return None
        found = sa.and_(self._owned, JOBS.c.identity.in_(identities), ~_is_outdated())
        newest = sa.select(JOBS).where(found).order_by(JOBS.c.created_at.desc(), JOBS.c.id.desc()).limit(1)
        return connection.execute(newest.with_for_update(read=True)).one_or_none()

    def _model_name(self, request: CompilationRequest) -> sa.ScalarSelect[str]:
        named = sa.and_(MODELS.c.tenant == self.tenant, MODELS.c.digest == request.model)
        return sa.select(MODELS.c.name).where(named).scalar_subquery()

    def _require_same(self, job_id: JobId, request: CompilationRequest) -> None:
        query = sa.select(JOBS.c.request, JOBS.c.tenant).where(JOBS.c.id == job_id)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return
        if row.tenant != self.tenant or CompilationRequest.read(row.request) != request:
            raise IdempotencyConflictError(job_id)

    def _members(
        self, connection: sa.Connection, group: JobId, requests: Mapping[JobId, CompilationRequest]
    ) -> frozenset[JobId]:
        """The jobs of a group that exist already.

        Raises:
            IdempotencyConflictError: a row with one of the ids is another one.
        """
        columns = (JOBS.c.id, JOBS.c.tenant, JOBS.c.group, JOBS.c.group_index, JOBS.c.group_size)
        related = sa.or_(JOBS.c.group == group, JOBS.c.id.in_([group, *requests]))
        rows = connection.execute(sa.select(*columns, JOBS.c.request).where(related)).all()
        wanted = {job_id: (self.tenant, group, index, len(requests)) for index, job_id in enumerate(requests)}
        for row in rows:
            is_same = wanted.get(row.id) == (row.tenant, row.group, row.group_index, row.group_size)
            if not is_same or CompilationRequest.read(row.request) != requests[row.id]:
                raise IdempotencyConflictError(group)
        return frozenset(row.id for row in rows)


def _results_of(source: sa.Row[Any]) -> dict[str, Any]:
    """The values of a new job that has the results of an earlier one."""
    return {
        **{name: getattr(source, name) for name in _RESULTS},
        **JOB_LIFECYCLE.ended(JobState.SUCCEEDED.value),
        "cached": True,
        "original": source.original or source.id,
        "last_seq": 2,
    }


def _is_outdated() -> sa.ColumnElement[bool]:
    """Whether a tuning record that a job has asked for has won or lost since."""
    known, keys = TUNING_KEYS.c, JOB_KEYS.c
    return sa.exists().where(
        keys.job == JOBS.c.id,
        known.tenant == JOBS.c.tenant,
        known.key == keys.key,
        known.revision > keys.revision,
    )


def _share_keys(connection: sa.Connection, source: JobId, job_id: JobId) -> None:
    columns = JOB_KEYS.c
    shared = sa.select(sa.literal(job_id), columns.key, columns.revision).where(columns.job == source)
    connection.execute(sa.insert(JOB_KEYS).from_select(["job", "key", "revision"], shared))


def _share_blobs(connection: sa.Connection, source: JobId, job_id: JobId) -> None:
    columns = JOB_BLOBS.c
    shared = sa.select(sa.literal(job_id), columns.digest, columns.tenant, columns.size_bytes)
    named = ["job", "digest", "tenant", "size_bytes"]
    connection.execute(sa.insert(JOB_BLOBS).from_select(named, shared.where(columns.job == source)))
