"""The time that workers spend on each tenant's tasks. Deleting a task's row does not give it back."""

import sqlalchemy as sa

from bessemer.contract.access import Tenant
from bessemer.contract.base import now
from bessemer.store.database import Database

_ADD = sa.text(
    "INSERT INTO worker_time (tenant, day, seconds) VALUES (:tenant, :day, :seconds) "
    "ON CONFLICT (tenant, day) DO UPDATE SET seconds = worker_time.seconds + excluded.seconds"
).bindparams(sa.bindparam("day", type_=sa.Date))


class WorkerTime:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is unreachable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, tenant: Tenant, seconds: float) -> None:
        """Add to a tenant's time of today (UTC)."""
        with self._database.write() as connection:
            connection.execute(_ADD, {"tenant": tenant, "day": now().date(), "seconds": seconds})
