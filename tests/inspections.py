"""A worker's inspection, made by calling the store."""

from bessemer.contract.model import Inspection
from bessemer.contract.problem import Problem
from bessemer.store.store import Store


def inspected(store: Store, digest: str, found: Inspection | Problem) -> None:
    """Inspect a model, as a worker does."""
    attempt = store.models.start(digest, "w1")
    assert attempt is not None
    store.models.finish_inspection(digest, attempt, found)
