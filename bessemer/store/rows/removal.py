"""Deletes rows of all tenants by the retention settings. ``blobs.sweep`` deletes unreferenced blobs."""

from datetime import timedelta

import sqlalchemy as sa

from bessemer.contract.base import now
from bessemer.store.database import Database
from bessemer.store.rows.filters import may_need_model
from bessemer.store.rows.tables import INVOCATIONS, JOBS, MODELS

BATCH = 200


class Removal:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
        """Delete some of the models unused for this long; returns how many, 0 if none are left.

        A model stays while a job that has not ended mentions its digest, in a label for example.
        """
        before = now() - timedelta(seconds=unused_seconds)
        needed = sa.exists().where(may_need_model(MODELS.c.digest), JOBS.c.tenant == MODELS.c.tenant)
        unused = sa.select(MODELS.c.id).where(MODELS.c.used_at < before, ~needed).limit(BATCH)
        with self._database.write() as connection:
            self._database.lock_table(connection, JOBS)
            return connection.execute(sa.delete(MODELS).where(MODELS.c.id.in_(unused))).rowcount
