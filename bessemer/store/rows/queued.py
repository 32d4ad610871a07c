"""The jobs that wait, and how long such jobs took of late: what a place in a queue is worked out from."""

from collections.abc import Mapping
from typing import NamedTuple

import sqlalchemy as sa

from bessemer.contract.base import JobId
from bessemer.contract.job import JobState
from bessemer.contract.queue import TaskKind
from bessemer.store.database import Database
from bessemer.store.rows.tables import JOBS

QUEUED = JOBS.c.state == sa.literal_column(f"'{JobState.QUEUED.value}'")
_ENDED = JOBS.c.state.in_(
    [sa.literal_column(f"'{state.value}'") for state in (JobState.SUCCEEDED, JobState.FAILED)]
)
"""As literals: only so does a database see that a partial index will do."""


class WaitingGroup(NamedTuple):
    """The queued jobs of one kind, with the same needs and the same priority.

    Attributes:
        turns: of each job, its number among all queued jobs in the order in which they are to be taken.
    """

    kind: TaskKind
    needs: str | None
    priority: int
    turns: Mapping[JobId, int]


class Waiting:
    """Every method is one transaction and raises ``StoreUnavailableError`` where the database is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def groups(self) -> tuple[WaitingGroup, ...]:
        """Every queued job, in no particular order.

        The database makes one text of each group: a driver would take the interpreter's lock again for every
        row, from threads that answer requests, thousands of times.
        """
        turn = sa.func.row_number().over(order_by=(JOBS.c.priority.desc(), JOBS.c.created_at, JOBS.c.id))
        queued = sa.select(JOBS.c.kind, JOBS.c.needs, JOBS.c.priority, JOBS.c.id, turn.label("turn"))
        each = queued.where(QUEUED).subquery()
        group = (each.c.kind, each.c.needs, each.c.priority)
        words = sa.cast(each.c.turn, sa.String).concat(" ").concat(each.c.id)
        with self._database.read() as connection:
            rows = connection.execute(
                sa.select(*group, sa.func.aggregate_strings(words, " ").label("turns")).group_by(*group)
            ).all()
        return tuple(
            WaitingGroup(TaskKind(row.kind), row.needs, row.priority, _to_turns(row.turns)) for row in rows
        )

    def recent_seconds(self, kind: TaskKind, limit: int) -> tuple[float, ...]:
        """How long the jobs of a kind took that ended last, from start to end, latest first."""
        query = (
            sa.select(JOBS.c.started_at, JOBS.c.finished_at)
            .where(JOBS.c.kind == kind.value, _ENDED, JOBS.c.started_at.is_not(None))
            .order_by(JOBS.c.finished_at.desc())
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple((finished_at - started_at).total_seconds() for started_at, finished_at in rows)


def _to_turns(text: str) -> dict[JobId, int]:
    """Of numbers and ids in turn, as ``groups`` asks for them."""
    words = text.split(" ")
    return dict(zip(words[1::2], map(int, words[::2]), strict=True))
