"""What jobs print: the end of it while they run, and for good where no file of it is kept."""

import sqlalchemy as sa

from bessemer.contract.base import JobId
from bessemer.contract.job import JobState
from bessemer.store.database import Database
from bessemer.store.errors import FencedError
from bessemer.store.rows.tables import JOB_LOGS, JOBS

_UNSTORABLE = str.maketrans({"\0": "\N{REPLACEMENT CHARACTER}"})  # PostgreSQL keeps no NUL in a text


class Logs:
    """Every method is one transaction and raises ``StoreUnavailableError`` where the database is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, job_id: JobId, attempt: int, tail: str) -> None:
        """Keep the end of what an attempt has printed so far.

        Raises:
            FencedError: the attempt no longer owns the job.
        """
        owned = sa.select(JOBS.c.id).where(
            JOBS.c.id == job_id, JOBS.c.attempt == attempt, JOBS.c.state == JobState.RUNNING.value
        )
        text = tail.translate(_UNSTORABLE)
        with self._database.write() as connection:
            if connection.execute(owned.with_for_update()).one_or_none() is None:
                raise FencedError(job_id, attempt)
            kept = connection.execute(sa.update(JOB_LOGS).where(JOB_LOGS.c.job == job_id).values(tail=text))
            if kept.rowcount == 0:
                connection.execute(sa.insert(JOB_LOGS).values(job=job_id, tail=text))

    def read(self, job_id: JobId) -> str:
        """The end of what a job has printed; empty where it printed nothing."""
        with self._database.read() as connection:
            tail: str | None = connection.execute(
                sa.select(JOB_LOGS.c.tail).where(JOB_LOGS.c.job == job_id)
            ).scalar_one_or_none()
        return tail or ""
