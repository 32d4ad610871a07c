"""The data of the only tenant of tests that need no other, and attempts at its rows."""

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.store.queue_port import Task
from bessemer.store.rows.lifecycle import Attempt, Rows
from bessemer.store.store import Store, TenantStore


def own(store: Store) -> TenantStore:
    """The default tenant's data."""
    return store.for_tenant(DEFAULT_TENANT)


def started(rows: Rows, row_id: str, worker: str = "w1") -> Attempt:
    """A new attempt at a row that is not final."""
    attempt = rows.start(row_id, worker)
    assert attempt is not None
    return attempt


def inspection_of(store: Store, digest: str, tenant: str = DEFAULT_TENANT) -> Task:
    """The inspection of a tenant's model."""
    task = store.for_tenant(tenant).models.task(digest)
    assert task is not None
    return task
