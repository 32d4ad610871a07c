"""The workers that are alive: each renews its own row every few seconds."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

import sqlalchemy as sa

from bessemer.contract.service import Worker
from bessemer.store.database import Database
from bessemer.store.rows.lifecycle import cancel_requested_of
from bessemer.store.rows.tables import WORKERS, Moment


class Workers:
    """Every method is one transaction and raises ``StoreUnavailableError`` where the database is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def beat(self, worker: Worker) -> None:
        """Say that a worker is alive: it was seen now, by the database's clock."""
        values = {"document": worker.model_dump(mode="json"), "seen_at": self._database.clock}
        with self._database.write() as connection:
            known = connection.execute(sa.update(WORKERS).where(WORKERS.c.id == worker.id).values(values))
            if known.rowcount == 0:
                connection.execute(sa.insert(WORKERS).values({"id": worker.id, **values}))

    def live(self, within_seconds: float) -> tuple[Worker, ...]:
        """The workers that were seen within so many seconds, by id."""
        with self._database.read() as connection:
            is_live = seen_within(self._database, connection, within_seconds)
            query = sa.select(WORKERS.c.document, WORKERS.c.seen_at).where(is_live).order_by(WORKERS.c.id)
            rows = connection.execute(query).all()
        return tuple(Worker.read({**row.document, "seen_at": row.seen_at}) for row in rows)

    def beats(self) -> Mapping[str, datetime]:
        """When each worker that never left was seen last, by id; unavailable while no beat can be written."""
        with self._database.read() as connection:
            self._database.require_writable(connection)
            rows = connection.execute(sa.select(WORKERS.c.id, WORKERS.c.seen_at)).all()
        return {row.id: row.seen_at for row in rows}

    @contextmanager
    def leaving(self, worker_id: str, seen_at: datetime) -> Iterator[bool]:
        """Forget a worker that was not seen since; holds its row meanwhile, and keeps it where this raises.

        What it was asked to stop ends as cancelled.

        Yields:
            Whether it was this caller that forgot it: of several at once only one hands its tasks over.
        """
        unseen = sa.and_(WORKERS.c.id == worker_id, WORKERS.c.seen_at == seen_at)
        with self._database.write() as connection:
            is_ours = connection.execute(sa.delete(WORKERS).where(unseen)).rowcount == 1
            if is_ours:
                cancel_requested_of(connection, worker_id)
            yield is_ours

    @contextmanager
    def away(self, worker_id: str) -> Iterator[bool]:
        """Let no worker come or leave for as long as the context lasts.

        Yields:
            Whether a worker has no row: nobody hands its tasks over meanwhile, and it takes no others.
        """
        named = sa.select(WORKERS.c.id).where(WORKERS.c.id == worker_id)
        with self._database.write() as connection:
            self._database.hold_still(connection, WORKERS)
            yield connection.execute(named).one_or_none() is None


def seen_within(database: Database, connection: sa.Connection, seconds: float) -> sa.ColumnElement[bool]:
    """Whether a row is of a worker that was seen within so many seconds, by the database's clock."""
    moment = connection.execute(sa.select(sa.type_coerce(database.clock, Moment))).scalar_one()
    return WORKERS.c.seen_at >= moment - timedelta(seconds=seconds)
