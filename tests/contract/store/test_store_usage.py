"""What a tenant uses, counted on both databases."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy as sa
from store_samples import FIGURES, TARGET, a_request

from bessemer.contract.job import Artifact
from bessemer.contract.stage import Stage
from bessemer.store.rows.tables import WORKER_TIME
from bessemer.store.store import Store, TenantStore
from tests.tenant_data import started

SAME, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def tenant(store: Store) -> TenantStore:
    """A tenant beside another that uses a lot."""
    busy = store.for_tenant("busy")
    busy.models.add(SAME, 1 << 40)
    for number in range(3):
        busy.jobs.submit(f"busy-{number}-job", a_request())
    started(store.jobs, "busy-0-job")
    store.worker_time.add("busy", 1e6)
    return store.for_tenant("vision")


def numbers(tenant: TenantStore) -> tuple[int, int, int, int]:
    used = tenant.usage
    return used.running_jobs(), used.queued_jobs(), used.stored_bytes(), used.worker_seconds()


def test_a_tenant_without_data_uses_nothing(tenant: TenantStore) -> None:
    assert numbers(tenant) == (0, 0, 0, 0)


def test_compilations_and_invocations_count_while_they_wait_and_compilations_while_they_run(
    store: Store, tenant: TenantStore
) -> None:
    for number in range(3):
        tenant.jobs.submit(f"own-{number}-job", a_request())
    tenant.jobs.submit("preflight", a_request().model_copy(update={"stop_after": Stage.TRANSLATE}))
    tenant.invocations.submit("own-run-1", "own-0-job", SAME, 0, 1)
    assert numbers(tenant)[:2] == (0, 5)
    for each in ("own-0-job", "preflight"):
        started(store.jobs, each)
    attempt = started(store.invocations, "own-run-1")
    assert numbers(tenant)[:2] == (1, 2)
    store.invocations.cancel_finished("own-run-1", attempt)
    tenant.jobs.request_cancel("own-1-job")
    assert numbers(tenant)[:2] == (1, 1)


def test_a_file_counts_once_for_each_tenant(store: Store, tenant: TenantStore) -> None:
    tenant.models.add(SAME, 100)
    for name in ("own-0-job", "own-1-job"):
        tenant.jobs.submit(name, a_request())
        files = tuple(Artifact(name=n, digest=d, size_bytes=s, media_type="x/y") for n, d, s in FILES)
        store.jobs.succeed(name, started(store.jobs, name), TARGET, True, FIGURES, files)
    tenant.invocations.submit("own-run-1", "own-0-job", "c" * 64, 1000, 1)
    assert tenant.usage.stored_bytes() == 1120
    store.invocations.succeed("own-run-1", started(store.invocations, "own-run-1"), 1, None, (), OUTPUTS)
    assert tenant.usage.stored_bytes() == 1127
    tenant.models.delete(SAME)
    assert tenant.usage.stored_bytes() == 1127
    for name in ("own-0-job", "own-1-job"):
        tenant.jobs.delete(name)
    assert tenant.usage.stored_bytes() == 0


FILES = (("model", SAME, 100), ("bundle.tar.zst", OTHER, 20))
OUTPUTS = Artifact(name="outputs.npz", digest="d" * 64, size_bytes=7, media_type="application/zip")


def test_worker_time_adds_up_over_a_day_whatever_is_deleted(store: Store, tenant: TenantStore) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: store.worker_time.add("vision", 2.5), range(8)))
    assert tenant.usage.worker_seconds() == 20
    with store.database.write() as connection:
        yesterday = connection.execute(sa.select(WORKER_TIME.c.day)).scalars().first() - timedelta(days=1)
        connection.execute(sa.update(WORKER_TIME).values(day=yesterday))
    assert tenant.usage.worker_seconds() == 0
