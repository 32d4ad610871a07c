"""The queued jobs, and how long recent jobs took: the input of queue positions."""

from collections.abc import Mapping
from typing import NamedTuple

import sqlalchemy as sa

from bessemer.contract.access import Tenant
from bessemer.contract.base import JobId
from bessemer.contract.job import JobState
from bessemer.contract.queue import TaskKind
from bessemer.store.database import Database
from bessemer.store.rows.tables import JOBS

QUEUED = JOBS.c.state == sa.literal_column(f"'{JobState.QUEUED.value}'")
_ENDED = JOBS.c.state.in_(
    [sa.literal_column(f"'{state.value}'") for state in (JobState.SUCCEEDED, JobState.FAILED)]
)
"""With literals, the database sees that a partial index applies."""


class QueuedGroup(NamedTuple):
    """The queued jobs of a tenant and a kind, with the same needs and the same priority.

    Attributes:
        ranks: each job's number among the tenant's queued jobs, in the order in which workers take them.
    """

    tenant: Tenant
    kind: TaskKind
    needs: str | None
    priority: int
    ranks: Mapping[JobId, int]


class QueuedJobs:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is unreachable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def groups(self) -> tuple[QueuedGroup, ...]:
        """Every queued job, in no particular order.

        The database joins each group to one text: reading thousands of rows would block the interpreter's
        lock for the threads that answer requests.
        """
        rank = sa.func.row_number().over(
            partition_by=JOBS.c.tenant, order_by=(JOBS.c.priority.desc(), JOBS.c.created_at, JOBS.c.id)
        )
        queued = sa.select(
            JOBS.c.tenant, JOBS.c.kind, JOBS.c.needs, JOBS.c.priority, JOBS.c.id, rank.label("rank")
        )
        each = queued.where(QUEUED).subquery()
        group = (each.c.tenant, each.c.kind, each.c.needs, each.c.priority)
        words = sa.cast(each.c.rank, sa.String).concat(" ").concat(each.c.id)
        with self._database.read() as connection:
            rows = connection.execute(
                sa.select(*group, sa.func.aggregate_strings(words, " ").label("ranks")).group_by(*group)
            ).all()
        return tuple(
            QueuedGroup(row.tenant, TaskKind(row.kind), row.needs, row.priority, _to_ranks(row.ranks))
            for row in rows
        )

    def recent_seconds(self, tenant: Tenant, kind: TaskKind, limit: int) -> tuple[float, ...]:
        """The durations of the jobs of a tenant and a kind that ended last, latest first."""
        query = (
            sa.select(JOBS.c.started_at, JOBS.c.finished_at)
            .where(JOBS.c.tenant == tenant, JOBS.c.kind == kind.value, _ENDED, JOBS.c.started_at.is_not(None))
            .order_by(JOBS.c.finished_at.desc())
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple((finished_at - started_at).total_seconds() for started_at, finished_at in rows)


def _to_ranks(text: str) -> dict[JobId, int]:
    """Parse the alternating numbers and ids of a group."""
    words = text.split(" ")
    return dict(zip(words[1::2], map(int, words[::2]), strict=True))
