"""A worker's inspection, made by calling the store."""

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.model import Inspection
from bessemer.contract.problem import Problem
from bessemer.store.store import Store
from tests.tenant_data import inspection_of, started


def inspected(store: Store, digest: str, found: Inspection | Problem, tenant: str = DEFAULT_TENANT) -> None:
    """Inspect a model, as a worker does."""
    model_id = inspection_of(store, digest, tenant).id
    attempt = started(store.models, model_id)
    store.models.finish_inspection(model_id, attempt, found)
