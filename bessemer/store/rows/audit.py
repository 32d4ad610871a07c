"""The audit log: rows are inserted, read, and deleted when they are old, but never changed."""

from datetime import timedelta

import sqlalchemy as sa

from bessemer.contract.audit import AuditEntry, AuditPage
from bessemer.contract.base import now
from bessemer.store.database import Database
from bessemer.store.rows.tables import AUDIT

BATCH = 1000
_COLUMNS = tuple(AUDIT.c[name] for name in AuditEntry.model_fields)


class Audit:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is unreachable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(
        self,
        subject: str,
        tenant: str | None,
        action: str,
        resource: str,
        status: int = 0,
        request_id: str | None = None,
        address: str | None = None,
    ) -> None:
        """Append an entry; ``AuditEntry`` describes the arguments."""
        values = {
            "at": now(),
            "subject": _storable(subject, 200),
            "tenant": tenant,
            "action": _storable(action, 200),
            "resource": _storable(resource, 400),
            "status": status,
            "request_id": request_id,
            "address": None if address is None else _storable(address, 64),
        }
        with self._database.write() as connection:
            connection.execute(sa.insert(AUDIT).values(values))

    def page(self, limit: int, before: int | None = None) -> AuditPage:
        """Entries with a number below ``before``, newest first."""
        query = sa.select(*_COLUMNS).order_by(AUDIT.c.id.desc()).limit(limit + 1)
        if before is not None:
            query = query.where(AUDIT.c.id < before)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        items = tuple(AuditEntry.read(dict(row._mapping)) for row in rows[:limit])
        return AuditPage(items=items, next=items[-1].id if len(rows) > limit else None)

    def expire(self, older_than_seconds: float) -> int:
        """Delete some of the entries that are this old; returns how many, 0 if none are left."""
        before = now() - timedelta(seconds=older_than_seconds)
        some = sa.select(AUDIT.c.id).where(AUDIT.c.at < before).limit(BATCH)
        with self._database.write() as connection:
            return connection.execute(sa.delete(AUDIT).where(AUDIT.c.id.in_(some))).rowcount


def _storable(text: str, most: int) -> str:
    """The start of a client's text without NUL and lone surrogates, which PostgreSQL does not store."""
    return text[:most].encode(errors="replace").decode().replace("\0", "?")
