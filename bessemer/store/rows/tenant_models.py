"""A tenant's uploaded models."""

import uuid
from typing import Any

import sqlalchemy as sa

from bessemer.contract.base import Digest, now
from bessemer.contract.listing import EVERY_MODEL, ModelFilter
from bessemer.contract.model import Model, ModelPage, ModelState
from bessemer.store.errors import ModelInUseError
from bessemer.store.rows.filters import may_need_model, model_conditions, models_of, starts_with
from bessemer.store.rows.lifecycle import INSPECTION_LIFECYCLE
from bessemer.store.rows.paging import read_page
from bessemer.store.rows.tables import JOBS, MODELS
from bessemer.store.rows.tenant_rows import TenantRows

MAX_SHOWN_JOBS = 3


class TenantModels(TenantRows[Model]):
    """A tenant's models by digest. An upload that another tenant has is a row of its own here."""

    lifecycle = INSPECTION_LIFECYCLE
    name = MODELS.c.digest
    document = Model
    shown_columns = tuple(MODELS.c[name] for name in Model.model_fields)

    def add(self, digest: Digest, size_bytes: int, name: str | None = None) -> Model:
        """Insert a model to be inspected. If it exists, give it the name unless it has one."""
        values = {
            "id": uuid.uuid4().hex,
            "tenant": self.tenant,
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
                self._update(
                    self._named(digest), {"used_at": now(), "name": sa.func.coalesce(MODELS.c.name, name)}
                )
            model = self.get(digest)
        return model

    def page(self, limit: int, cursor: str | None = None, wanted: ModelFilter = EVERY_MODEL) -> ModelPage:
        """Models, newest first. Models that arrive between two pages neither repeat nor hide any.

        Raises:
            CursorInvalidError: ``cursor`` is not the ``next`` of an earlier page.
        """
        query = sa.select(*self.shown_columns).where(self._owned, *model_conditions(wanted))
        page = read_page(self._database, query, (MODELS.c.created_at, MODELS.c.digest), limit, cursor)
        return ModelPage(items=tuple(map(self._shown, page.rows)), next=page.next)

    def touch(self, digest: Digest) -> bool:
        """Note that a model is used, so that it is kept; False if the tenant has no such model."""
        return self._update(self._named(digest), {"used_at": now()})

    def starting(self, prefix: str, limit: int) -> tuple[Digest, ...]:
        """The digests that start with ``prefix``, in order, at most ``limit``."""
        named = sa.and_(self._owned, starts_with(MODELS.c.digest, prefix))
        query = sa.select(MODELS.c.digest).where(named).order_by(MODELS.c.digest).limit(limit)
        with self._database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def inspect_again(self, digest: Digest) -> bool:
        """Queue a rejected model for another inspection, unless the model itself is defective.

        Returns:
            Whether it was queued.
        """
        rejected = self.get(digest)
        if rejected is None or rejected.state is not ModelState.REJECTED or rejected.defective:
            return False
        waiting = sa.and_(self._named(digest), MODELS.c.state == ModelState.REJECTED.value)
        values = {
            "state": ModelState.INSPECTING.value,
            "problem": None,
            "enqueued_at": None,
            "waits_since": now(),
            "worker": None,
            "incarnation": None,  # so that the last attempt no longer owns the row
            "lost_attempts": 0,
        }
        return self._update(waiting, values)

    def delete(self, digest: Digest) -> bool:
        """Delete a model.

        Returns:
            Whether the tenant had the model.

        Raises:
            ModelInUseError: jobs that are not final need the model.
        """
        needing = (
            sa.select(JOBS.c.id, JOBS.c.request)
            .where(may_need_model(digest), JOBS.c.tenant == self.tenant)
            .order_by(JOBS.c.created_at)
        )
        with self._database.write() as connection:
            self._database.lock_table(connection, JOBS)
            found = connection.execute(needing)
            jobs = tuple(job for job, request in found if digest in models_of(request))
            if jobs:
                raise ModelInUseError(digest, jobs[:MAX_SHOWN_JOBS])
            return connection.execute(sa.delete(MODELS).where(self._named(digest))).rowcount > 0

    def _update(self, condition: sa.ColumnElement[bool], values: dict[str, Any]) -> bool:
        """Change columns; whether a row met the condition."""
        with self._database.write() as connection:
            return connection.execute(sa.update(MODELS).where(condition).values(values)).rowcount > 0
