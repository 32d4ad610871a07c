"""Deletes rows: for clients, and by the retention settings. ``blobs.sweep`` deletes unreferenced blobs."""

from datetime import timedelta

import sqlalchemy as sa

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.base import Digest, JobId, now
from bessemer.contract.job import JobState
from bessemer.store.database import Database
from bessemer.store.errors import JobNotFinalError, ModelInUseError
from bessemer.store.rows.lifecycle import JOB_LIFECYCLE
from bessemer.store.rows.tables import INVOCATIONS, JOBS, MODELS

BATCH = 200
_FINAL = [state.value for state in JobState if state.final]


class Removal:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def delete_job(self, job_id: JobId) -> bool:
        """Delete a final job, its events and its invocations.

        Returns:
            Whether the job existed.

        Raises:
            JobNotFinalError: the job is not final.
        """
        with self._database.write() as connection:
            deleted = connection.execute(
                sa.delete(JOBS).where(JOBS.c.id == job_id, JOBS.c.state.in_(_FINAL))
            ).rowcount
            if deleted:
                return True
            state = connection.execute(
                sa.select(JOBS.c.state).where(JOBS.c.id == job_id)
            ).scalar_one_or_none()
        if state is None:
            return False
        raise JobNotFinalError(job_id, state)

    def withdraw(self, job_id: JobId) -> None:
        """Delete a job that has not been enqueued yet."""
        with self._database.write() as connection:
            connection.execute(
                sa.delete(JOBS).where(
                    JOBS.c.id == job_id, JOBS.c.state == JobState.QUEUED.value, JOBS.c.enqueued_at.is_(None)
                )
            )

    def delete_model(self, digest: Digest, tenant: str = DEFAULT_TENANT) -> bool:
        """Delete a model.

        Returns:
            Whether the model existed.

        Raises:
            ModelInUseError: jobs that are not final need the model.
        """
        needing = (
            sa.select(JOBS.c.id)
            .where(JOBS.c.model == digest, JOBS.c.tenant == tenant, JOB_LIFECYCLE.in_progress)
            .order_by(JOBS.c.created_at)
            .limit(3)
        )
        model = sa.and_(MODELS.c.tenant == tenant, MODELS.c.digest == digest)
        with self._database.write() as connection:
            self._database.lock_table(connection, JOBS)
            jobs = tuple(connection.execute(needing).scalars())
            if jobs:
                raise ModelInUseError(digest, jobs)
            return connection.execute(sa.delete(MODELS).where(model)).rowcount > 0

    def expire_jobs(self, older_than_seconds: float) -> int:
        """Delete some of the jobs and invocations that ended this long ago; returns how many, or 0."""
        before = now() - timedelta(seconds=older_than_seconds)
        jobs = sa.select(JOBS.c.id).where(JOBS.c.finished_at < before).limit(BATCH)
        runs = sa.select(INVOCATIONS.c.id).where(INVOCATIONS.c.finished_at < before).limit(BATCH)
        with self._database.write() as connection:
            deleted = connection.execute(sa.delete(JOBS).where(JOBS.c.id.in_(jobs))).rowcount
            return (
                deleted
                + connection.execute(sa.delete(INVOCATIONS).where(INVOCATIONS.c.id.in_(runs))).rowcount
            )

    def expire_models(self, unused_seconds: float) -> int:
        """Delete some of the models unused for this long; returns how many, 0 if none are left."""
        before = now() - timedelta(seconds=unused_seconds)
        needed = sa.exists().where(
            JOBS.c.model == MODELS.c.digest, JOBS.c.tenant == MODELS.c.tenant, JOB_LIFECYCLE.in_progress
        )
        unused = (
            sa.select(MODELS.c.tenant, MODELS.c.digest).where(MODELS.c.used_at < before, ~needed).limit(BATCH)
        )
        with self._database.write() as connection:
            self._database.lock_table(connection, JOBS)
            rows = [tuple(row) for row in connection.execute(unused)]
            keys = sa.tuple_(MODELS.c.tenant, MODELS.c.digest)
            return connection.execute(sa.delete(MODELS).where(keys.in_(rows))).rowcount if rows else 0
