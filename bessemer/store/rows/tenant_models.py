"""A tenant's uploaded models."""

from types import MappingProxyType

import sqlalchemy as sa

from bessemer.contract.base import Digest, now
from bessemer.contract.listing import EVERY_MODEL, ModelFilter
from bessemer.contract.model import Model, ModelPage, ModelState
from bessemer.store.errors import ModelInUseError
from bessemer.store.rows.filters import model_conditions
from bessemer.store.rows.lifecycle import INSPECTION_LIFECYCLE
from bessemer.store.rows.tables import MODELS
from bessemer.store.rows.tenant_rows import TenantTaskRows
from bessemer.store.rows.tenant_uploads import TenantUploads


class TenantModels(TenantUploads[Model], TenantTaskRows[Model]):
    """A tenant's models by digest. A new model is to be inspected."""

    lifecycle = INSPECTION_LIFECYCLE
    name = MODELS.c.digest
    document = Model
    shown_columns = tuple(MODELS.c[name] for name in Model.model_fields)
    _in_use = ModelInUseError
    at_upload = MappingProxyType({"state": ModelState.INSPECTING.value})

    def page(self, limit: int, cursor: str | None = None, wanted: ModelFilter = EVERY_MODEL) -> ModelPage:
        """Models, newest first.

        Raises:
            CursorInvalidError: ``cursor`` is not the ``next`` of an earlier page.
        """
        page = self._page(limit, cursor, *model_conditions(wanted))
        return ModelPage(items=tuple(map(self._shown, page.rows)), next=page.next)

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
