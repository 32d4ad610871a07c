"""The rows of one tenant, as its users read and cancel them."""

from typing import Any, ClassVar, Generic, TypeVar

import sqlalchemy as sa

from bessemer.contract.access import Tenant
from bessemer.contract.base import Document
from bessemer.store.database import Database
from bessemer.store.queue_port import Task
from bessemer.store.rows.lifecycle import Lifecycle
from bessemer.store.rows.tables import WORKERS

Shown = TypeVar("Shown", bound=Document)


class TenantRows(Generic[Shown]):
    """The rows of one kind that belong to a tenant. Rows of other tenants do not exist here.

    Each method is one transaction and raises ``StoreUnavailableError`` if the database cannot be reached.
    """

    name: ClassVar[sa.Column[str]]
    """The column by which users name a row; unique within a tenant."""
    document: ClassVar[type[Document]]
    shown_columns: ClassVar[tuple[sa.Column[Any], ...]]

    def __init__(self, database: Database, tenant: Tenant) -> None:
        self._database = database
        self.tenant = tenant

    def get(self, name: str) -> Shown | None:
        """A row's document; None if the tenant has no such row."""
        query = sa.select(*self.shown_columns).where(self._named(name))
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else self._shown(row)

    @property
    def _owned(self) -> sa.ColumnElement[bool]:
        """Whether a row belongs to the tenant."""
        return self.name.table.c.tenant == self.tenant

    def _named(self, name: str) -> sa.ColumnElement[bool]:
        """Whether a row belongs to the tenant and has this name."""
        return sa.and_(self.name == name, self._owned)

    def _shown(self, row: sa.Row[Any]) -> Shown:
        shown: Shown = self.document.read(dict(row._mapping))  # type: ignore[assignment]
        return shown


class TenantTaskRows(TenantRows[Shown]):
    """Rows of a tenant that workers handle."""

    lifecycle: ClassVar[Lifecycle]

    def task(self, name: str) -> Task | None:
        """A row's task for the queue; None if the tenant has no such row."""
        with self._database.read() as connection:
            tasks = self.lifecycle.read_tasks(connection, self._named(name))
        return tasks[0] if tasks else None


class CancellableTenantRows(TenantTaskRows[Shown]):
    """Rows of a tenant that its users can cancel."""

    def request_cancel(self, row_id: str) -> Shown | None:
        """Cancel a row at once, or ask the live worker that has it in flight to stop; leave a final row.

        Returns:
            The row's document afterwards; None if the tenant has no such row.
        """
        life, named = self.lifecycle, self._named(row_id)
        with self._database.write() as connection:
            _hold_worker(connection, life, named)
            if not life.cancel(connection, row_id, sa.and_(self._owned, life.unattended)):
                in_flight = sa.and_(named, life.in_flight)
                connection.execute(sa.update(life.table).where(in_flight).values(cancel_requested=True))
        return self.get(row_id)


def _hold_worker(connection: sa.Connection, life: Lifecycle, named: sa.ColumnElement[bool]) -> None:
    """Keep a row's worker from being deleted before it is asked to stop, or wait until it is deleted."""
    worker = sa.select(life.table.c.worker).where(named).scalar_subquery()
    held = sa.select(WORKERS.c.id).where(WORKERS.c.id == worker)
    connection.execute(held.with_for_update(read=True, key_share=True))
