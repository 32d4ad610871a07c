"""What a tenant uses of the service."""

import sqlalchemy as sa

from bessemer.contract.access import Tenant
from bessemer.contract.base import now
from bessemer.contract.job import JobState
from bessemer.contract.queue import QUEUES, QueueName
from bessemer.store.database import Database
from bessemer.store.rows.lifecycle import JOB_LIFECYCLE
from bessemer.store.rows.queued_jobs import QUEUED
from bessemer.store.rows.tables import EXTENSIONS, INVOCATIONS, JOB_BLOBS, JOBS, MODELS, WORKER_TIME
from bessemer.store.rows.tuning_records import record_bytes

_COMPILATIONS = JOBS.c.kind.in_([kind.value for kind, queue in QUEUES.items() if queue is QueueName.COMPILE])
_STORED = (
    (MODELS.c.digest, MODELS.c.size_bytes),
    (EXTENSIONS.c.digest, EXTENSIONS.c.size_bytes),
    (JOB_BLOBS.c.digest, JOB_BLOBS.c.size_bytes),
    (INVOCATIONS.c.inputs, INVOCATIONS.c.inputs_bytes),
    (INVOCATIONS.c.outputs_digest, INVOCATIONS.c.outputs_bytes),
)


class TenantUsage:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is unreachable."""

    def __init__(self, database: Database, tenant: Tenant) -> None:
        self._database = database
        self._tenant = tenant

    def running_jobs(self) -> int:
        """Compilations that workers have in flight."""
        owned = sa.and_(JOBS.c.tenant == self._tenant, JOB_LIFECYCLE.in_flight, _COMPILATIONS)
        return self._number(sa.select(sa.func.count()).select_from(JOBS).where(owned))

    def queued_jobs(self) -> int:
        """Compilations and invocations that wait for a worker."""
        jobs = sa.select(sa.func.count()).select_from(JOBS).where(JOBS.c.tenant == self._tenant, QUEUED)
        waiting = sa.and_(INVOCATIONS.c.state == JobState.QUEUED.value, INVOCATIONS.c.tenant == self._tenant)
        invocations = sa.select(sa.func.count()).select_from(INVOCATIONS).where(waiting)
        return self._number(sa.select(jobs.scalar_subquery() + invocations.scalar_subquery()))

    def stored_bytes(self) -> int:
        """The size of all files that the tenant's rows refer to; a file counts once."""
        files = sa.union(
            *(
                sa.select(digest.label("digest"), size.label("size_bytes")).where(
                    digest.table.c.tenant == self._tenant, digest.is_not(None)
                )
                for digest, size in _STORED
            )
        ).subquery()
        return self._number(sa.select(sa.func.sum(files.c.size_bytes)))

    def record_bytes(self) -> int:
        """The size of the tenant's tuning records, and of the modules of their functions."""
        with self._database.read() as connection:
            return record_bytes(connection, self._tenant)

    def worker_seconds(self) -> int:
        """The time that workers have spent today (UTC) on tasks that they no longer run."""
        today = sa.and_(WORKER_TIME.c.tenant == self._tenant, WORKER_TIME.c.day == now().date())
        return self._number(sa.select(WORKER_TIME.c.seconds).where(today))

    def _number(self, query: sa.Select[int]) -> int:
        with self._database.read() as connection:
            return int(connection.execute(query).scalar() or 0)
