"""The workers that are alive: each writes its own row every few seconds."""

from datetime import timedelta

import sqlalchemy as sa

from bessemer.contract.base import now
from bessemer.contract.service import Worker
from bessemer.store.database import Database
from bessemer.store.tables import WORKERS


class Workers:
    """Every method is one transaction and raises ``StoreUnavailableError`` where the database is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def beat(self, worker: Worker) -> None:
        """Say that a worker is alive, as of ``worker.seen_at``."""
        values = {"document": worker.model_dump(mode="json"), "seen_at": worker.seen_at}
        with self._database.write() as connection:
            known = connection.execute(sa.update(WORKERS).where(WORKERS.c.id == worker.id).values(values))
            if known.rowcount == 0:
                connection.execute(sa.insert(WORKERS).values({"id": worker.id, **values}))

    def live(self, within_seconds: float) -> tuple[Worker, ...]:
        """The workers that were seen within so many seconds, by id."""
        query = (
            sa.select(WORKERS.c.document)
            .where(WORKERS.c.seen_at >= now() - timedelta(seconds=within_seconds))
            .order_by(WORKERS.c.id)
        )
        with self._database.read() as connection:
            return tuple(Worker.model_validate(document) for document in connection.execute(query).scalars())

    def lost(self, after_seconds: float) -> tuple[str, ...]:
        """The ids of workers that were not seen for so many seconds, and never left."""
        query = sa.select(WORKERS.c.id).where(WORKERS.c.seen_at < now() - timedelta(seconds=after_seconds))
        with self._database.read() as connection:
            return tuple(connection.execute(query.order_by(WORKERS.c.id)).scalars())

    def leave(self, worker_id: str) -> None:
        """Forget a worker that stops, or is lost."""
        with self._database.write() as connection:
            connection.execute(sa.delete(WORKERS).where(WORKERS.c.id == worker_id))
