"""Tuning records of all tenants, as workers write and read them, and the trials of running jobs."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from bessemer.contract.access import Tenant
from bessemer.contract.base import Digest, JobId, now
from bessemer.contract.records import (
    MAX_FAILED_OF_A_KEY,
    MAX_OF_A_KEY,
    NOT_COMPILED,
    WRONG_RESULT,
    JudgedTrial,
    MeasuredTrial,
    NearTrial,
    SearchScope,
    SizedFunction,
    StoredTrial,
    UncompiledTrial,
)
from bessemer.store.database import Database
from bessemer.store.errors import FencedError
from bessemer.store.rows.lifecycle import JOB_LIFECYCLE, Attempt
from bessemer.store.rows.near_records import find_near, traces_of
from bessemer.store.rows.tables import (
    JOB_KEYS,
    JOB_TRIALS,
    JOBS,
    TUNING_KEYS,
    TUNING_RECORDS,
    TUNING_WORKLOADS,
)
from bessemer.store.rows.workers import seen_within

KEYS_AT_ONCE = 500
BATCH = 500
MAX_OF_A_TENANT = 100_000
"""The most records of a tenant; the oldest are deleted."""

UNUSED_SECONDS = 3600.0
"""How long the module of a function without records is kept: its search may still add some."""

MAX_FOUND_CHARACTERS = 1 << 25
"""The limit on the traces that a job gets: others may share records of many times the usual size."""

_UNSTORABLE = str.maketrans({"\0": "\N{REPLACEMENT CHARACTER}"})  # PostgreSQL stores no NUL in text
_R = TUNING_RECORDS.c


@dataclass(frozen=True)
class Batch:
    """Trials that a job measured together.

    Attributes:
        first: the number of the first trial; those of a job count from 0, over all of its attempts.
        trials: what was measured.
        workloads: the packed modules of functions that the job names for the first time.
        elapsed_seconds: how long the search has taken until now, over all attempts.
        shared: whether other tenants' searches may measure the records.
        limit_bytes: the size that the tenant's records may have; others make room. None means unlimited.
    """

    first: int
    trials: tuple[MeasuredTrial, ...]
    workloads: Mapping[str, str]
    elapsed_seconds: float
    shared: bool
    limit_bytes: int | None = None


@dataclass(frozen=True)
class EarlierTrials:
    """The trials of a job's earlier attempts, in order, and how long these have searched."""

    trials: tuple[MeasuredTrial, ...]
    elapsed_seconds: float
    count: int


class TuningRecords:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is unreachable.

    Those that take an attempt raise ``FencedError`` if it no longer owns its job.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, job_id: JobId, attempt: Attempt, scope: SearchScope, batch: Batch) -> None:
        """Store trials as records, and as trials of the job. Repeating this changes nothing."""
        with self._database.write() as connection:
            self._require_owned(connection, job_id, attempt)
            self._add_within(connection, job_id, attempt.tenant, scope, batch)
            trials = [
                {
                    "job": job_id,
                    "number": number,
                    "key": scope.key(trial.workload),
                    "elapsed_seconds": batch.elapsed_seconds,
                    "document": trial.model_dump(mode="json"),
                }
                for number, trial in enumerate(batch.trials, batch.first)
            ]
            if trials:
                insert = insert_into(self._database, JOB_TRIALS).on_conflict_do_nothing()
                connection.execute(insert, trials)

    def _add_within(
        self, connection: sa.Connection, job_id: JobId, tenant: Tenant, scope: SearchScope, batch: Batch
    ) -> None:
        """Store a batch within the tenant's limit.

        Other records make room for new records, see ``_make_room``. A module that does not fit is left out;
        exports need it.
        """
        rows = [_row(tenant, scope, trial, batch.shared, job_id) for trial in batch.trials]
        limit, new_bytes = batch.limit_bytes, sum(len(packed) for packed in batch.workloads.values())
        if limit is None or record_bytes(connection, tenant) + new_bytes <= limit:
            add_workloads(self._database, connection, tenant, batch.workloads)
        self._name_again(connection, tenant, {trial.workload for trial in batch.trials})
        add_records(self._database, connection, rows)
        if limit is not None and rows:
            _make_room(connection, tenant, job_id, limit)

    def _name_again(self, connection: sa.Connection, tenant: Tenant, workloads: Collection[str]) -> None:
        """Note that a search still adds records of functions.

        A transaction that deletes unused modules waits for this one, and then sees the new ``named_at``.
        """
        for workload in sorted(workloads):
            named = sa.and_(TUNING_WORKLOADS.c.tenant == tenant, TUNING_WORKLOADS.c.workload == workload)
            values = {"named_at": self._database.clock}
            connection.execute(sa.update(TUNING_WORKLOADS).where(named).values(values))

    def trials(self, job_id: JobId, attempt: Attempt, scope: SearchScope) -> EarlierTrials:
        """What the earlier attempts at a job have measured; only trials of this scope can be used.

        All together have at most ``MAX_FOUND_CHARACTERS``; later ones are left out.
        """
        of_job, columns = JOB_TRIALS.c.job == job_id, JOB_TRIALS.c
        query = sa.select(JOB_TRIALS).where(of_job).order_by(columns.number)
        ends = sa.select(sa.func.max(columns.number), sa.func.max(columns.elapsed_seconds)).where(of_job)
        found: list[MeasuredTrial] = []
        left = MAX_FOUND_CHARACTERS
        with self._database.read() as connection:
            self._require_owned(connection, job_id, attempt, locks=False)
            last, elapsed_seconds = connection.execute(ends).one()
            for row in connection.execute(query.execution_options(yield_per=BATCH)):
                trial = MeasuredTrial.read(row.document)
                if row.key != scope.key(trial.workload):
                    continue
                left -= len(trial.trace) + len(trial.arguments)
                if left < 0:
                    break
                found.append(trial)
        return EarlierTrials(tuple(found), elapsed_seconds or 0.0, 0 if last is None else last + 1)

    def find(
        self, tenant: Tenant, keys: Mapping[Digest, str], others: bool, limit: int = MAX_OF_A_KEY
    ) -> tuple[StoredTrial, ...]:
        """The successful records with these keys: for each function those that won, then the fastest.

        Args:
            tenant: whose records.
            keys: the functions by key.
            others: whether the shared records of other tenants count, too; they never count as winners.
            limit: the most records of a function. All together have at most ``MAX_FOUND_CHARACTERS``.
        """
        mine = _R.tenant == tenant
        visible = sa.or_(mine, _R.shared) if others else mine
        columns = (_R.id, _R.key, _R.trace_digest, _R.seconds, sa.func.length(_R.trace).label("characters"))
        has_won = sa.and_(_R.won, mine).label("has_won")
        rows: list[sa.Row[Any]] = []
        with self._database.read() as connection:
            for some in _batches(tuple(keys)):
                ran = sa.and_(_R.key.in_(some), visible, _R.seconds.is_not(None))
                rows += connection.execute(sa.select(*columns, has_won).where(ran)).all()
            chosen = _chosen(rows, keys, limit)
            traces = traces_of(connection, [row.id for row in chosen])
        return tuple(
            StoredTrial(
                workload=keys[row.key], trace=traces[row.id], seconds=row.seconds, won=bool(row.has_won)
            )
            for row in chosen
            if row.id in traces
        )

    def find_uncompiled(self, tenant: Tenant, keys: Mapping[Digest, str]) -> tuple[UncompiledTrial, ...]:
        """The tenant's records with one of these keys that did not compile.

        Other failures, such as a limit of time, may not repeat.

        Args:
            tenant: whose records. Those of others don't count: they could keep good schedules from this one.
            keys: the functions by key.
        """
        found: list[UncompiledTrial] = []
        with self._database.read() as connection:
            for some in _batches(tuple(keys)):
                failed = sa.and_(_R.seconds.is_(None), _R.failure.startswith(NOT_COMPILED, autoescape=True))
                mine = sa.and_(_R.tenant == tenant, _R.key.in_(some), failed)
                found += (
                    UncompiledTrial(workload=keys[row.key], digest=row.trace_digest)
                    for row in connection.execute(sa.select(_R.key, _R.trace_digest).where(mine))
                )
        return tuple(found)

    def find_near(
        self, tenant: Tenant, scope: SearchScope, functions: Sequence[SizedFunction], others: bool
    ) -> tuple[NearTrial, ...]:
        """For each function, the best records of those that are similar to it, the most similar first.

        Args:
            tenant: whose records.
            scope: the target, threads and compiler that the records must have.
            functions: the functions.
            others: whether the shared records of other tenants count, too.
        """
        mine = _R.tenant == tenant
        visible = sa.or_(mine, _R.shared) if others else mine
        with self._database.read() as connection:
            return find_near(connection, scope, functions, visible)

    def note_read(self, job_id: JobId, attempt: Attempt, keys: Collection[Digest]) -> None:
        """Note that a job's result depends on the records with these keys, as they are after this.

        A record that changes sides raises its key's revision. A change that commits after this is newer than
        what is noted here, so that no clocks are compared.
        """
        with self._database.write() as connection:
            self._require_owned(connection, job_id, attempt)
            connection.execute(sa.delete(JOB_KEYS).where(JOB_KEYS.c.job == job_id))
            revisions: dict[str, int] = {}
            for some in _batches(tuple(keys)):
                named = sa.and_(TUNING_KEYS.c.tenant == attempt.tenant, TUNING_KEYS.c.key.in_(some))
                query = sa.select(TUNING_KEYS.c.key, TUNING_KEYS.c.revision).where(named)
                revisions |= {row.key: row.revision for row in connection.execute(query)}
            rows = [{"job": job_id, "key": key, "revision": revisions.get(key, 0)} for key in keys]
            if rows:
                connection.execute(sa.insert(JOB_KEYS), rows)

    def judge(self, tenant: Tenant, scope: SearchScope, judged: Iterable[JudgedTrial]) -> None:
        """Note which records won. A record that changes sides raises the revision of its key.

        Rows are written in the order of their keys, so that two writers never wait for each other.
        """
        keyed = {(scope.key(trial.workload), trial.digest): trial for trial in judged}
        with self._database.write() as connection:
            for (key, digest), trial in sorted(keyed.items(), key=itemgetter(0)):
                named = sa.and_(_R.tenant == tenant, _R.key == key, _R.trace_digest == digest)
                known = {} if trial.default_seconds is None else {"default_seconds": trial.default_seconds}
                if known:
                    connection.execute(sa.update(TUNING_RECORDS).where(named).values(known))
                changed = sa.and_(named, _R.won != sa.literal(trial.won))
                values = {"won": trial.won}
                if connection.execute(sa.update(TUNING_RECORDS).where(changed).values(values)).rowcount:
                    self._revise(connection, tenant, key)

    def _revise(self, connection: sa.Connection, tenant: Tenant, key: Digest) -> None:
        insert = insert_into(self._database, TUNING_KEYS).values(tenant=tenant, key=key, revision=1)
        raised = {"revision": TUNING_KEYS.c.revision + 1}
        connection.execute(insert.on_conflict_do_update(index_elements=["tenant", "key"], set_=raised))

    def forget_ended(self) -> None:
        """Delete the trials of cancelled jobs; others lose theirs as they end. Their records stay."""
        cancelled = sa.exists().where(JOBS.c.id == JOB_TRIALS.c.job, ~JOB_LIFECYCLE.in_progress)
        with self._database.write() as connection:
            connection.execute(sa.delete(JOB_TRIALS).where(cancelled))

    def expire(self, older_than_seconds: float) -> int:
        """Delete some of the records that were measured this long ago; returns how many, or 0."""
        before = now() - timedelta(seconds=older_than_seconds)
        some = sa.select(_R.id).where(_R.created_at < before).limit(BATCH)
        with self._database.write() as connection:
            return connection.execute(sa.delete(TUNING_RECORDS).where(_R.id.in_(some))).rowcount

    def trim(self, limit: int = MAX_OF_A_TENANT) -> int:
        """Delete some of the oldest records of tenants that have too many; returns how many, or 0.

        Records that won are deleted last.
        """
        counted = sa.select(_R.tenant, sa.func.count().label("total")).group_by(_R.tenant)
        deleted = 0
        with self._database.write() as connection:
            for row in connection.execute(counted.having(sa.func.count() > limit)).all():
                oldest = sa.select(_R.id).where(_R.tenant == row.tenant)
                oldest = oldest.order_by(_R.won, _R.created_at, _R.id)
                some = oldest.limit(min(BATCH, row.total - limit))
                deleted += connection.execute(sa.delete(TUNING_RECORDS).where(_R.id.in_(some))).rowcount
        return deleted

    def delete_unused(self) -> None:
        """Delete the modules of functions that have no records, and revisions that nothing refers to.

        A job that reads a revision writes to ``JOB_KEYS`` first, so this either sees that row or runs first.
        """
        recorded = sa.exists().where(_R.key == TUNING_KEYS.c.key, _R.tenant == TUNING_KEYS.c.tenant)
        read = sa.exists().where(JOB_KEYS.c.key == TUNING_KEYS.c.key)
        with self._database.write() as connection:
            delete_unused_workloads(self._database, connection, sa.true())
            self._database.lock_table(connection, JOB_KEYS)
            connection.execute(sa.delete(TUNING_KEYS).where(~recorded, ~read))

    def _require_owned(
        self, connection: sa.Connection, job_id: JobId, attempt: Attempt, locks: bool = True
    ) -> None:
        owned = sa.select(JOBS.c.id).where(JOB_LIFECYCLE.owned(job_id, attempt))
        if connection.execute(owned.with_for_update() if locks else owned).one_or_none() is None:
            raise FencedError(job_id, attempt.number)


def add_workloads(
    database: Database, connection: sa.Connection, tenant: Tenant, workloads: Mapping[str, str]
) -> None:
    """Store packed modules by hash; those that the tenant has are kept for a while even without records."""
    rows = [
        {"tenant": tenant, "workload": workload, "packed": packed, "size_bytes": len(packed)}
        for workload, packed in sorted(workloads.items())
    ]
    named = {"named_at": database.clock}
    insert = insert_into(database, TUNING_WORKLOADS).values(named)
    upsert = insert.on_conflict_do_update(index_elements=["tenant", "workload"], set_=named)
    for row in rows:
        connection.execute(upsert, row)


def record_bytes(connection: sa.Connection, tenant: Tenant) -> int:
    """The size of a tenant's records, and of the modules of their functions."""
    sums = (
        sa.select(sa.func.coalesce(sa.func.sum(table.c.size_bytes), 0))
        .where(table.c.tenant == tenant)
        .scalar_subquery()
        for table in (TUNING_RECORDS, TUNING_WORKLOADS)
    )
    return int(connection.execute(sa.select(sum(sums, sa.literal(0)))).scalar_one())


def _make_room(connection: sa.Connection, tenant: Tenant, job_id: JobId, limit_bytes: int) -> None:
    """Delete records of a tenant until the rest fits into ``limit_bytes``.

    Failures go first, then records of no further use, then the rest: records that won, and the fastest ones
    of the functions that this job searches, which may still win. In each group, the oldest go first.
    """
    excess = record_bytes(connection, tenant) - limit_bytes
    ran = _R.seconds.is_not(None)
    faster = TUNING_RECORDS.alias("faster")
    is_beaten = sa.exists().where(
        faster.c.tenant == tenant, faster.c.key == _R.key, faster.c.seconds < _R.seconds
    )
    may_win = sa.and_(_R.compilation.is_not_distinct_from(job_id), ~is_beaten)
    for condition in (~ran, sa.and_(ran, ~_R.won, ~may_win), sa.true()):
        oldest = sa.select(_R.id, _R.size_bytes).where(_R.tenant == tenant, condition)
        oldest = oldest.order_by(_R.created_at, _R.id).limit(BATCH)
        while excess > 0 and (rows := connection.execute(oldest).all()):
            some: list[str] = []
            for row in rows:
                if excess > 0:
                    some.append(row.id)
                    excess -= row.size_bytes
            connection.execute(sa.delete(TUNING_RECORDS).where(_R.id.in_(some)))


def add_records(database: Database, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store records, each over an earlier one of the same schedule, and keep the best of each key.

    A schedule that ran keeps its time if it fails later, as on a busy machine, unless it computed a wrong
    result.

    Rows are written in the order of their keys, so that two writers never wait for each other.
    """
    last: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        place = row["key"], row["trace_digest"]
        if place not in last or row["seconds"] is not None or _is_wrong(row):
            last[place] = row
    ordered = [last[place] for place in sorted(last)]
    if not ordered:
        return
    insert = insert_into(database, TUNING_RECORDS)
    renewed = ("shared", "compilation", "created_at", "size_bytes")
    known = ("default_seconds", "kind_key", "extents")
    is_wrong = sa.and_(insert.excluded.seconds.is_(None), insert.excluded.failure.contains(WRONG_RESULT))
    seconds = sa.case((is_wrong, None), else_=sa.func.coalesce(insert.excluded.seconds, _R.seconds))
    upsert = insert.on_conflict_do_update(
        index_elements=["tenant", "key", "trace_digest"],
        set_={name: insert.excluded[name] for name in renewed}
        | {name: sa.func.coalesce(insert.excluded[name], _R[name]) for name in known}
        | {"seconds": seconds, "failure": sa.case((seconds.is_(None), insert.excluded.failure), else_=None)},
    )
    connection.execute(upsert, ordered)
    _prune(connection, ordered[0]["tenant"], sorted({row["key"] for row in ordered}))


def _is_wrong(row: Mapping[str, Any]) -> bool:
    return WRONG_RESULT in (row["failure"] or "")


def delete_unused_workloads(
    database: Database, connection: sa.Connection, condition: sa.ColumnElement[bool]
) -> None:
    """Delete the modules of functions that have no records, and that no search has named lately.

    A search names a function before it stores records of it, in transactions that this one may not see.
    """
    columns = TUNING_WORKLOADS.c
    used = sa.exists().where(_R.tenant == columns.tenant, _R.workload == columns.workload)
    lately = seen_within(database, connection, UNUSED_SECONDS, columns.named_at)
    unused = sa.and_(condition, sa.or_(columns.named_at.is_(None), ~lately), ~used)
    connection.execute(sa.delete(TUNING_WORKLOADS).where(unused))


def record_row(
    tenant: Tenant, key: Digest, scope: SearchScope, trial: MeasuredTrial, shared: bool, job_id: JobId | None
) -> dict[str, Any]:
    """The values of a record's row."""
    failure = None if trial.failure is None else trial.failure.translate(_UNSTORABLE)
    return {
        "id": uuid.uuid4().hex,
        "tenant": tenant,
        "key": key,
        "trace_digest": trial.digest,
        "workload": trial.workload,
        "function": trial.function,
        "target": scope.target,
        "processor": processor_of(scope.target),
        "threads": scope.threads,
        "compiler": scope.compiler,
        "space": trial.space,
        "trace": trial.trace,
        "arguments": trial.arguments,
        "tvm_target": scope.tvm_target,
        "seconds": trial.seconds,
        "default_seconds": trial.default_seconds,
        "kind_key": None if trial.kind is None else scope.key_of_kind(trial.kind),
        "extents": list(trial.extents) or None,
        "failure": failure,
        "won": False,
        "shared": shared,
        "compilation": job_id,
        "created_at": now(),
        "size_bytes": sum(
            len(text.encode()) for text in (trial.trace, trial.arguments, scope.tvm_target, failure or "")
        ),
    }


def processor_of(target: str) -> str:
    """The processor or GPU architecture in a record's target."""
    words = target.split(" ")
    return words[min(1, len(words) - 1)][:64]


def _chosen(rows: Iterable[sa.Row[Any]], keys: Mapping[Digest, str], limit: int) -> list[sa.Row[Any]]:
    """For each function, the records that won, then the fastest, each trace once, within the limits."""
    found: dict[str, dict[Digest, sa.Row[Any]]] = {}
    left = MAX_FOUND_CHARACTERS
    for row in sorted(rows, key=lambda row: (not row.has_won, row.seconds)):
        of_function = found.setdefault(keys[row.key], {})
        if len(of_function) < limit and row.trace_digest not in of_function and row.characters <= left:
            left -= row.characters
            of_function[row.trace_digest] = row
    return [row for of_function in found.values() for row in of_function.values()]


def _batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[start : start + KEYS_AT_ONCE] for start in range(0, len(keys), KEYS_AT_ONCE))


def _row(
    tenant: Tenant, scope: SearchScope, trial: MeasuredTrial, shared: bool, job_id: JobId
) -> dict[str, Any]:
    return record_row(tenant, scope.key(trial.workload), scope, trial, shared, job_id)


def _prune(connection: sa.Connection, tenant: Tenant, keys: Sequence[Digest]) -> None:
    """Keep the best records of each key that ran, and the newest that failed.

    Rows that another writer has changed are left to the next pruning, so that no writer waits here.
    """
    ran = _R.seconds.is_not(None)
    order = (_R.won.desc(), _R.seconds, sa.case((ran, None), else_=_R.created_at).desc(), _R.id)
    place = sa.func.row_number().over(partition_by=(_R.key, ran), order_by=order)
    kept = sa.case((ran, MAX_OF_A_KEY), else_=MAX_FAILED_OF_A_KEY)
    for some in _batches(keys):
        of_keys = sa.and_(_R.tenant == tenant, _R.key.in_(some))
        placed = sa.select(_R.id, place.label("place"), kept.label("kept")).where(of_keys).subquery()
        surplus = sa.select(placed.c.id).where(placed.c.place > placed.c.kept)
        free = sa.select(_R.id).where(_R.id.in_(surplus)).with_for_update(skip_locked=True)
        connection.execute(sa.delete(TUNING_RECORDS).where(_R.id.in_(free)))


def insert_into(database: Database, table: sa.Table) -> Any:
    """An insertion that may say what to do on a conflict, in the database's dialect."""
    return sqlite.insert(table) if database.is_sqlite else postgresql.insert(table)
