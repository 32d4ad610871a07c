"""Deletes rows of all tenants by the retention settings. ``blobs.sweep`` deletes unreferenced blobs."""

from datetime import datetime, timedelta

import sqlalchemy as sa

from bessemer.contract.base import now
from bessemer.store.database import Database
from bessemer.store.rows.filters import may_need_upload
from bessemer.store.rows.tables import EXTENSIONS, INVOCATIONS, JOBS, MODELS

BATCH = 200


class Removal:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is unreachable."""

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

    def expire_uploads(self, unused_seconds: float) -> int:
        """Delete some of the models and extensions unused for this long; returns how many, or 0.

        An upload stays while a job that has not ended mentions its digest, in a label for example.
        """
        before = now() - timedelta(seconds=unused_seconds)
        with self._database.write() as connection:
            self._database.lock_table(connection, JOBS)
            return sum(connection.execute(_unused(table, before)).rowcount for table in (MODELS, EXTENSIONS))


def _unused(table: sa.Table, before: datetime) -> sa.Delete:
    needed = sa.exists().where(may_need_upload(table.c.digest), JOBS.c.tenant == table.c.tenant)
    unused = sa.select(table.c.id).where(table.c.used_at < before, ~needed).limit(BATCH)
    return sa.delete(table).where(table.c.id.in_(unused))
