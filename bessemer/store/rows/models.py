"""Uploaded models and their inspections."""

from typing import Any

import sqlalchemy as sa

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.base import Digest, now
from bessemer.contract.listing import EVERY_MODEL, ModelFilter
from bessemer.contract.model import Inspection, Model, ModelPage, ModelState
from bessemer.contract.problem import Problem
from bessemer.store.rows.filters import model_conditions, starts_with
from bessemer.store.rows.lifecycle import INSPECTION_LIFECYCLE, Rows
from bessemer.store.rows.paging import read_page
from bessemer.store.rows.tables import MODELS

_SHOWN_COLUMNS = tuple(MODELS.c[name] for name in Model.model_fields)


class Models(Rows):
    """Models: one row for each digest and tenant. A row's attempts are its inspections."""

    lifecycle = INSPECTION_LIFECYCLE

    def add(
        self, digest: Digest, size_bytes: int, tenant: str = DEFAULT_TENANT, name: str | None = None
    ) -> Model:
        """Insert a model to be inspected. If it exists, give it the name unless it has one."""
        values = {
            "tenant": tenant,
            "digest": digest,
            "name": name,
            "size_bytes": size_bytes,
            "state": ModelState.INSPECTING.value,
            "created_at": now(),
            "used_at": now(),
        }
        model: Model | None = None
        while model is None:  # a model that is deleted in between is inserted again
            try:
                with self._database.write() as connection:
                    connection.execute(sa.insert(MODELS).values(values))
            except sa.exc.IntegrityError:
                named = {"used_at": now(), "name": sa.func.coalesce(MODELS.c.name, name)}
                with self._database.write() as connection:
                    self._set(connection, _is(digest, tenant), named)
            model = self.get(digest, tenant)
        return model

    def get(self, digest: Digest, tenant: str = DEFAULT_TENANT) -> Model | None:
        """A model; None if it does not exist."""
        with self._database.read() as connection:
            row = connection.execute(sa.select(*_SHOWN_COLUMNS).where(_is(digest, tenant))).one_or_none()
        return None if row is None else _to_model(row)

    def page(
        self,
        limit: int,
        cursor: str | None = None,
        wanted: ModelFilter = EVERY_MODEL,
        tenant: str = DEFAULT_TENANT,
    ) -> ModelPage:
        """Models, newest first. Models that arrive between two pages neither repeat nor hide any.

        Raises:
            CursorInvalidError: ``cursor`` is not the ``next`` of an earlier page.
        """
        query = sa.select(*_SHOWN_COLUMNS).where(MODELS.c.tenant == tenant, *model_conditions(wanted))
        page = read_page(self._database, query, (MODELS.c.created_at, MODELS.c.digest), limit, cursor)
        return ModelPage(items=tuple(map(_to_model, page.rows)), next=page.next)

    def touch(self, digest: Digest, tenant: str = DEFAULT_TENANT) -> bool:
        """Note that a model is used, so that it is kept; False if it does not exist."""
        with self._database.write() as connection:
            return self._set(connection, _is(digest, tenant), {"used_at": now()})

    def starting(self, prefix: str, limit: int, tenant: str = DEFAULT_TENANT) -> tuple[Digest, ...]:
        """The digests that start with ``prefix``, in order, at most ``limit``."""
        named = sa.and_(MODELS.c.tenant == tenant, starts_with(MODELS.c.digest, prefix))
        query = sa.select(MODELS.c.digest).where(named).order_by(MODELS.c.digest).limit(limit)
        with self._database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def inspect_again(self, digest: Digest, tenant: str = DEFAULT_TENANT) -> bool:
        """Queue a rejected model for another inspection, unless the model itself is defective.

        Returns:
            Whether it was queued.
        """
        rejected = self.get(digest, tenant)
        if rejected is None or rejected.state is not ModelState.REJECTED or rejected.defective:
            return False
        waiting = sa.and_(_is(digest, tenant), MODELS.c.state == ModelState.REJECTED.value)
        values = {
            "state": ModelState.INSPECTING.value,
            "problem": None,
            "enqueued_at": None,
            "waits_since": now(),
            "worker": None,
            "attempt": MODELS.c.attempt + 1,  # so that the last attempt no longer owns the row
            "lost_attempts": 0,
        }
        with self._database.write() as connection:
            return self._set(connection, waiting, values)

    def finish_inspection(self, digest: Digest, attempt: int, found: Inspection | Problem) -> None:
        """Make a model ready, or reject it."""
        document = found.model_dump(mode="json")
        if isinstance(found, Inspection):
            self._finish(digest, attempt, ModelState.READY.value, {"inspection": document})
        else:
            self._finish(digest, attempt, ModelState.REJECTED.value, {"problem": document})


def _to_model(row: sa.Row[Any]) -> Model:
    return Model.read(dict(row._mapping))


def _is(digest: Digest, tenant: str) -> sa.ColumnElement[bool]:
    return sa.and_(MODELS.c.tenant == tenant, MODELS.c.digest == digest)
