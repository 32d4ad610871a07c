"""Inspections of uploaded models, as workers write them."""

from typing import Any

from bessemer.contract.base import Digest
from bessemer.contract.model import Inspection, ModelState
from bessemer.contract.problem import Problem
from bessemer.store.rows.lifecycle import INSPECTION_LIFECYCLE, Attempt, Rows


class Models(Rows):
    """Models of all tenants: one row for each tenant and digest. A row's attempts are its inspections."""

    lifecycle = INSPECTION_LIFECYCLE

    def digest(self, model_id: str) -> Digest | None:
        """The digest of a model's file; None if the model does not exist."""
        digest: Digest | None = self._value(self.lifecycle.named(model_id), "digest")
        return digest

    def finish_inspection(self, model_id: str, attempt: Attempt, found: Inspection | Problem) -> None:
        """Make a model ready, or reject it."""
        document = found.model_dump(mode="json")
        if isinstance(found, Inspection):
            self._finish(model_id, attempt, ModelState.READY.value, {"inspection": _without_nul(document)})
        else:
            self._finish(model_id, attempt, ModelState.REJECTED.value, {"problem": document})


def _without_nul(value: Any) -> Any:
    """The document without NULs, because PostgreSQL refuses to look for a field in one that has any."""
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(each) for key, each in value.items()}
    return [_without_nul(each) for each in value] if isinstance(value, list) else value
