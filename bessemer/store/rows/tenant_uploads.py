"""A tenant's uploads by digest: what models and extensions share."""

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import sqlalchemy as sa

from bessemer.contract.base import Digest, now
from bessemer.store.errors import ModelInUseError
from bessemer.store.rows.filters import may_need_upload, starts_with, uploads_of
from bessemer.store.rows.paging import RowPage, read_page
from bessemer.store.rows.tables import JOBS
from bessemer.store.rows.tenant_rows import Shown, TenantRows

MAX_SHOWN_JOBS = 3


class TenantUploads(TenantRows[Shown]):
    """A tenant's uploads. A file that another tenant has uploaded, too, is a row of its own here."""

    _in_use: ClassVar[type[ModelInUseError]]
    at_upload: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """The values of other columns of a new row."""

    def add(self, digest: Digest, size_bytes: int, name: str | None = None) -> Shown:
        """Insert an upload. If it exists, give it the name unless it has one."""
        values = {
            **self.at_upload,
            "id": uuid.uuid4().hex,
            "tenant": self.tenant,
            "digest": digest,
            "name": name,
            "size_bytes": size_bytes,
            "created_at": now(),
            "used_at": now(),
        }
        upload: Shown | None = None
        while upload is None:  # an upload that is deleted in between is inserted again
            try:
                with self._database.write() as connection:
                    connection.execute(sa.insert(self._table).values(values))
            except sa.exc.IntegrityError:
                named = sa.func.coalesce(self._table.c.name, name)
                self._update(self._named(digest), {"used_at": now(), "name": named})
            upload = self.get(digest)
        return upload

    def touch(self, digest: Digest) -> bool:
        """Note that an upload is used, so that it is kept; False if the tenant has no such upload."""
        return self._update(self._named(digest), {"used_at": now()})

    def starting(self, prefix: str, limit: int) -> tuple[Digest, ...]:
        """The digests that start with ``prefix``, in order, at most ``limit``."""
        named = sa.and_(self._owned, starts_with(self.name, prefix))
        query = sa.select(self.name).where(named).order_by(self.name).limit(limit)
        with self._database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def delete(self, digest: Digest) -> bool:
        """Delete an upload.

        Returns:
            Whether the tenant had the upload.

        Raises:
            ModelInUseError: jobs that are not final need the upload.
        """
        needing = (
            sa.select(JOBS.c.id, JOBS.c.request)
            .where(may_need_upload(digest), JOBS.c.tenant == self.tenant)
            .order_by(JOBS.c.created_at)
        )
        with self._database.write() as connection:
            self._database.lock_table(connection, JOBS)
            found = connection.execute(needing)
            jobs = tuple(job for job, request in found if digest in uploads_of(request))
            if jobs:
                raise self._in_use(digest, jobs[:MAX_SHOWN_JOBS])
            return connection.execute(sa.delete(self._table).where(self._named(digest))).rowcount > 0

    def _page(self, limit: int, cursor: str | None, *conditions: sa.ColumnElement[bool]) -> RowPage:
        """Uploads, newest first. Uploads that arrive between two pages neither repeat nor hide any."""
        query = sa.select(*self.shown_columns).where(self._owned, *conditions)
        return read_page(self._database, query, (self._table.c.created_at, self.name), limit, cursor)

    def _update(self, condition: sa.ColumnElement[bool], values: dict[str, Any]) -> bool:
        """Change columns; returns whether a row met the condition."""
        with self._database.write() as connection:
            return connection.execute(sa.update(self._table).where(condition).values(values)).rowcount > 0

    @property
    def _table(self) -> sa.Table:
        return self.name.table
