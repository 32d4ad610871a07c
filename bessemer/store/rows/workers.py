"""Live workers: each renews its own row every few seconds."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

import sqlalchemy as sa

from bessemer.contract.service import Worker
from bessemer.store.database import Database
from bessemer.store.rows.lifecycle import cancel_requested_of
from bessemer.store.rows.tables import WORKERS, UtcTime


class Workers:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is unreachable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def beat(self, worker: Worker) -> None:
        """Record a worker's heartbeat, by the database's clock."""
        values = {"document": worker.model_dump(mode="json"), "seen_at": self._database.clock}
        with self._database.write() as connection:
            known = connection.execute(sa.update(WORKERS).where(WORKERS.c.id == worker.id).values(values))
            if known.rowcount == 0:
                connection.execute(sa.insert(WORKERS).values({"id": worker.id, **values}))

    def live(self, within_seconds: float) -> tuple[Worker, ...]:
        """The workers with a heartbeat within this time, by id."""
        with self._database.read() as connection:
            is_live = seen_within(self._database, connection, within_seconds)
            query = sa.select(WORKERS.c.document, WORKERS.c.seen_at).where(is_live).order_by(WORKERS.c.id)
            rows = connection.execute(query).all()
        return tuple(Worker.read({**row.document, "seen_at": row.seen_at}) for row in rows)

    def beats(self) -> Mapping[str, datetime]:
        """The last heartbeat of each worker, by id. Raises while heartbeats cannot be written."""
        with self._database.read() as connection:
            self._database.require_writable(connection)
            rows = connection.execute(sa.select(WORKERS.c.id, WORKERS.c.seen_at)).all()
        return {row.id: row.seen_at for row in rows}

    @contextmanager
    def removing(self, worker_id: str, seen_at: datetime) -> Iterator[bool]:
        """Delete the row of a worker without a later heartbeat, unless the context raises.

        The rows that it was asked to stop end as cancelled.

        Yields:
            Whether this caller deletes it: of several callers, only one hands its tasks back.
        """
        unseen = sa.and_(WORKERS.c.id == worker_id, WORKERS.c.seen_at == seen_at)
        with self._database.write() as connection:
            is_ours = connection.execute(sa.delete(WORKERS).where(unseen)).rowcount == 1
            if is_ours:
                cancel_requested_of(connection, worker_id)
            yield is_ours

    @contextmanager
    def holding_absent(self, worker_id: str) -> Iterator[bool]:
        """Block changes to the workers' rows inside the context.

        Yields:
            Whether a worker has no row: inside the context, it cannot return and take tasks.
        """
        named = sa.select(WORKERS.c.id).where(WORKERS.c.id == worker_id)
        with self._database.write() as connection:
            self._database.lock_table(connection, WORKERS)
            yield connection.execute(named).one_or_none() is None


def seen_within(
    database: Database,
    connection: sa.Connection,
    seconds: float,
    seen_at: sa.Column[datetime] = WORKERS.c.seen_at,
) -> sa.ColumnElement[bool]:
    """Whether a worker, or a device, was heard from within this time, by the database's clock."""
    moment = connection.execute(sa.select(sa.type_coerce(database.clock, UtcTime))).scalar_one()
    return seen_at >= moment - timedelta(seconds=seconds)
