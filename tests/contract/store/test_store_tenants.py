"""Every method of a tenant's store leaves other tenants' data alone."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from store_samples import A_COST_MODEL, ARTIFACTS, DIGEST, PACKED, a_problem, a_request, an_import

from bessemer.contract.device import DeviceRequest, DeviceResult, DeviceTask
from bessemer.contract.listing import CompilationFilter
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.store.blobs.hashing import Blob
from bessemer.store.blobs.sweep import SweepResult, sweep_blobs
from bessemer.store.errors import BlobMissingError, DeviceUnknownError, IdempotencyConflictError
from bessemer.store.rows.device_tasks import Wanted, new_task_id
from bessemer.store.rows.secrets import SECRET_BYTES
from bessemer.store.rows.tables import METADATA
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, TenantStore, open_store
from tests.inspections import inspected
from tests.tenant_data import started

VICTIM, ATTACKER = "victim", "attacker"
CONTENT = b"a model of the victim's"
DONE, QUEUED, RUNNING, RUN = "job-00000001", "job-00000002", "job-00000003", "invocation-1"
GROUP, MEMBER = "group-000001", "job-00000004"
BOARD = DeviceRequest(name="board", platform="aarch64", cores=4, memory_bytes=1)
RESULT = DeviceResult(failure="it crashed")
UNKNOWN = "unknown"
"""The result of a call that raises ``DeviceUnknownError``."""
MISSING = "missing"
"""The result of a call that raises ``BlobMissingError``."""
CONFLICT = "conflict"
"""The result of a call that raises ``IdempotencyConflictError``."""


@dataclass(frozen=True)
class World:
    """The store, and the victim's files.

    Attributes:
        blob: the victim's model.
        folder: a place for files.
        device: the victim's device.
        task: what that device does for the victim.
    """

    store: Store
    blob: Blob
    folder: Path
    device: str
    task: str


async def chunks() -> AsyncIterator[bytes]:
    yield CONTENT


def copied(path: Path) -> Path:
    return Path(shutil.copy(path, path.with_name("copy")))


def labelled() -> CompilationFilter:
    return CompilationFilter(label=("team",))


ATTACKS: dict[str, tuple[Callable[[TenantStore, World], object], object]] = {
    "jobs.get": (lambda own, _: own.jobs.get(DONE), None),
    "jobs.task": (lambda own, _: own.jobs.task(QUEUED), None),
    "jobs.submit": (lambda own, world: own.jobs.submit(QUEUED, of(world)), CONFLICT),
    "jobs.submit_group": (lambda own, world: own.jobs.submit_group(GROUP, {MEMBER: of(world)}), CONFLICT),
    "jobs.group": (lambda own, _: own.jobs.group(GROUP), ()),
    "jobs.groups_starting": (lambda own, _: own.jobs.groups_starting("group-", 9), ()),
    "jobs.delete_group": (lambda own, _: own.jobs.delete_group(GROUP), False),
    "jobs.starting": (lambda own, _: own.jobs.starting("job-", 9), ()),
    "jobs.page": (
        lambda own, _: (own.jobs.page(9).items, own.jobs.page(9, None, labelled()).items),
        ((), ()),
    ),
    "jobs.events_after": (lambda own, _: own.jobs.events_after(DONE, 0), ()),
    "jobs.log_tail": (lambda own, _: own.jobs.log_tail(DONE), ""),
    "jobs.request_cancel": (lambda own, _: own.jobs.request_cancel(QUEUED), None),
    "jobs.request_best": (lambda own, _: own.jobs.request_best(QUEUED), None),
    "jobs.delete": (lambda own, _: own.jobs.delete(DONE), False),
    "jobs.withdraw": (lambda own, _: own.jobs.withdraw(QUEUED), None),
    "models.get": (lambda own, world: own.models.get(world.blob.digest), None),
    "models.task": (lambda own, world: own.models.task(world.blob.digest), None),
    "models.add": (lambda own, world: own.models.add(world.blob.digest, 1, "mine").size_bytes, 1),
    "models.page": (lambda own, _: own.models.page(9).items, ()),
    "models.touch": (lambda own, world: own.models.touch(world.blob.digest), False),
    "models.starting": (lambda own, world: own.models.starting(world.blob.digest[:4], 9), ()),
    "models.inspect_again": (lambda own, world: own.models.inspect_again(world.blob.digest), False),
    "models.delete": (lambda own, world: own.models.delete(world.blob.digest), False),
    "extensions.get": (lambda own, world: own.extensions.get(world.blob.digest), None),
    "extensions.add": (lambda own, world: own.extensions.add(world.blob.digest, 1, "mine").size_bytes, 1),
    "extensions.page": (lambda own, _: own.extensions.page(9).items, ()),
    "extensions.touch": (lambda own, world: own.extensions.touch(world.blob.digest), False),
    "extensions.starting": (lambda own, world: own.extensions.starting(world.blob.digest[:4], 9), ()),
    "extensions.delete": (lambda own, world: own.extensions.delete(world.blob.digest), False),
    "invocations.get": (lambda own, _: own.invocations.get(RUN), None),
    "invocations.task": (lambda own, _: own.invocations.task(RUN), None),
    "invocations.submit": (lambda own, _: own.invocations.submit("invocation-2", DONE, DIGEST, 1, 1), None),
    "invocations.starting": (lambda own, _: own.invocations.starting(DONE, "invo", 9), ()),
    "invocations.page": (lambda own, _: own.invocations.page(DONE, 9).items, ()),
    "invocations.request_cancel": (lambda own, _: own.invocations.request_cancel(RUN), None),
    "artifacts.size": (lambda own, world: own.artifacts.size(world.blob.digest), None),
    "artifacts.stream": (lambda own, world: own.artifacts.stream(world.blob.digest), MISSING),
    "artifacts.fetch_to": (
        lambda own, world: own.artifacts.fetch_to(world.blob.digest, world.folder / "stolen"),
        MISSING,
    ),
    "artifacts.put_file": (
        lambda own, world: own.artifacts.put_file(world.folder / "model").size_bytes,
        len(CONTENT),
    ),
    "artifacts.take_file": (
        lambda own, world: own.artifacts.take_file(copied(world.folder / "model")).size_bytes,
        len(CONTENT),
    ),
    "artifacts.put_open": (
        lambda own, _: own.artifacts.put_open(BytesIO(CONTENT), 100).size_bytes,
        len(CONTENT),
    ),
    "artifacts.put_bytes": (
        lambda own, _: own.artifacts.put_bytes(CONTENT).size_bytes,
        len(CONTENT),
    ),
    "artifacts.put_stream": (
        lambda own, _: asyncio.run(own.artifacts.put_stream(chunks(), None, 100)).size_bytes,
        len(CONTENT),
    ),
    "parts.missing": (lambda own, world: own.parts.missing([world.blob.digest]) != (), True),
    "parts.stored_bytes": (lambda own, _: own.parts.stored_bytes(), 0),
    "parts.joined": (lambda own, world: list(own.parts.joined([world.blob.digest])), MISSING),
    "parts.delete": (lambda own, world: own.parts.delete([world.blob.digest]), None),
    "parts.put_stream": (
        lambda own, world: asyncio.run(own.parts.put_stream(chunks(), world.blob.digest, 100)),
        None,
    ),
    "devices.live": (lambda own, _: own.devices.live(), ()),
    "devices.names": (lambda own, _: own.devices.names(), frozenset()),
    "devices.register": (lambda own, _: own.devices.register(BOARD, False).name, "board"),
    "devices.remove": (lambda own, world: own.devices.remove(world.device), False),
    "devices.take": (lambda own, world: own.devices.take(world.device), UNKNOWN),
    "devices.seen": (lambda own, world: own.devices.seen(world.device), UNKNOWN),
    "devices.renew": (lambda own, world: own.devices.renew(world.device, world.task), UNKNOWN),
    "devices.finish": (lambda own, world: own.devices.finish(world.device, world.task, RESULT), UNKNOWN),
    "devices.bundle": (lambda own, world: own.devices.bundle(world.device, world.task), UNKNOWN),
    "cost_model.get": (lambda own, _: own.cost_model.get(), None),
    "records.page": (lambda own, _: own.records.page(9).items, ()),
    "records.export": (lambda own, _: own.records.export(), ()),
    "records.delete": (lambda own, _: own.records.delete(), 0),
    "records.add": (lambda own, _: own.records.add((an_import(),), {"1": PACKED}, shared=True), None),
    "usage.running_jobs": (lambda own, _: own.usage.running_jobs(), 0),
    "usage.queued_jobs": (lambda own, _: own.usage.queued_jobs(), 0),
    "usage.stored_bytes": (lambda own, _: own.usage.stored_bytes(), 0),
    "usage.record_bytes": (lambda own, _: own.usage.record_bytes(), 0),
    "usage.worker_seconds": (lambda own, _: own.usage.worker_seconds(), 0),
}
"""What each method gives a tenant that asks for another's data."""


def of(world: World) -> Any:
    return a_request().model_copy(update={"model": world.blob.digest, "labels": {"team": "victims"}})


@pytest.fixture
def world(store: Store, tmp_path: Path) -> World:
    """The victim has a rejected model, a failed job and its run, a group, a queued and a running job."""
    victim = store.for_tenant(VICTIM)
    (tmp_path / "model").write_bytes(CONTENT)
    blob = victim.artifacts.put_file(tmp_path / "model")
    device = victim.devices.register(BOARD, shared=False)
    found = World(store, blob, tmp_path, device.id, new_task_id())
    victim.models.add(blob.digest, blob.size_bytes, "victims")
    victim.extensions.add(blob.digest, blob.size_bytes, "victims.py")
    inspected(store, blob.digest, make_problem(ErrorCode.WORKER_LOST, "no"), VICTIM)
    for job_id in (DONE, QUEUED):
        victim.jobs.submit(job_id, of(found))
    attempt = started(store.jobs, DONE)
    store.logs.write(DONE, attempt, "the victim's output")
    store.jobs.fail(DONE, attempt, a_problem(), ARTIFACTS)
    victim.invocations.submit(RUN, DONE, DIGEST, 1, 1)
    victim.jobs.submit_group(GROUP, {MEMBER: of(found)})
    victim.jobs.request_cancel(MEMBER)
    victim.jobs.submit(RUNNING, of(found))
    task = DeviceTask(
        id=found.task,
        digest=DIGEST,
        repeat=1,
        repeat_seconds=1,
        timeout_seconds=1,
        memory_bytes=1,
        disk_bytes=1,
    )
    store.device_tasks.submit(RUNNING, started(store.jobs, RUNNING), task, Wanted(VICTIM, "aarch64"))
    assert victim.devices.take(device.id) == task
    store.worker_time.add(VICTIM, 5.0)
    asyncio.run(victim.parts.put_stream(chunks(), found.blob.digest, 100))
    victim.records.add((an_import(),), {"1": PACKED}, shared=True)
    store.cost_models.put(VICTIM, "1.1", A_COST_MODEL, b"{}", A_COST_MODEL.trained_at)
    return found


def rows_of_the_victim(world: World) -> dict[str, list[Any]]:
    """All rows but the attacker's."""
    with world.store.database.read() as connection:
        return {
            table.name: [
                tuple(row)
                for row in connection.execute(sa.select(table).order_by(*table.primary_key.columns))
                if getattr(row, "tenant", VICTIM) == VICTIM
            ]
            for table in METADATA.sorted_tables
        }


def test_every_method_of_a_tenants_store_is_attacked(store: Store) -> None:
    own = store.for_tenant(ATTACKER)
    parts = {name: part for name, part in vars(own).items() if name != "tenant"}
    methods = {
        f"{name}.{method}"
        for name, part in parts.items()
        for method in dir(part)
        if not method.startswith("_") and callable(getattr(part, method)) and method != "document"
    }
    assert set(ATTACKS) == methods


@pytest.mark.parametrize("method", ATTACKS)
def test_a_tenant_neither_sees_nor_changes_what_another_has(world: World, method: str) -> None:
    attack, expected = ATTACKS[method]
    before = rows_of_the_victim(world)
    assert result_of(lambda: attack(world.store.for_tenant(ATTACKER), world)) == expected
    assert rows_of_the_victim(world) == before
    assert b"".join(world.store.for_tenant(VICTIM).artifacts.stream(world.blob.digest)) == CONTENT
    assert b"".join(world.store.for_tenant(VICTIM).parts.joined([world.blob.digest])) == CONTENT
    assert not (world.folder / "stolen").exists()


PARTS = ("parts.put_stream", "parts.delete")
SAME_FOR_ALL = ("add", "put_file", "take_file", "put_open", "put_bytes", "register")


@pytest.mark.parametrize("method", [name for name in ATTACKS if not name.endswith(SAME_FOR_ALL)])
def test_the_owner_gets_another_result(world: World, method: str) -> None:
    attack, expected = ATTACKS[method]
    own = world.store.for_tenant(VICTIM)
    if method in (
        "jobs.withdraw",
        "artifacts.put_stream",
        "artifacts.fetch_to",
        "parts.put_stream",
        "parts.delete",
    ):
        attack(own, world)
    elif method in ("models.delete", "extensions.delete"):
        with pytest.raises(Exception, match=r"need (model|extension)"):
            attack(own, world)
    else:
        assert result_of(lambda: attack(own, world)) != expected


def result_of(call: Callable[[], object]) -> object:
    with contextlib.suppress(BlobMissingError, IdempotencyConflictError, DeviceUnknownError):
        return call()
    try:
        call()
    except BlobMissingError:
        return MISSING
    except IdempotencyConflictError:
        return CONFLICT
    except DeviceUnknownError:
        return UNKNOWN
    raise AssertionError


def test_equal_models_of_two_tenants_are_inspected_apart(store: Store) -> None:
    tenants = [store.for_tenant(name) for name in (VICTIM, ATTACKER)]
    for own in tenants:
        own.models.add(DIGEST, 1)
    tasks = [own.models.task(DIGEST) for own in tenants]
    attempts = [started(store.models, task.id) for task in tasks if task is not None]
    assert [attempt.tenant for attempt in attempts] == [VICTIM, ATTACKER]
    assert len({task.id for task in tasks if task is not None}) == 2
    assert {store.models.digest(task.id) for task in tasks if task is not None} == {DIGEST}


def test_a_blob_is_kept_only_for_the_tenants_whose_rows_refer_to_it(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    tenants = [store.for_tenant(name) for name in (VICTIM, ATTACKER)]
    (digest,) = {own.artifacts.put_file(tmp_path / "file").digest for own in tenants}
    victim = tenants[0]
    victim.models.add(digest, len(CONTENT))
    assert sweep_blobs(store.database, store.artifacts, -1, 3600) == SweepResult(trashed=1)
    assert [own.artifacts.size(digest) for own in tenants] == [len(CONTENT), None]
    assert victim.models.delete(digest)
    assert sweep_blobs(store.database, store.artifacts, -1, -1).trashed == 1


def test_models_of_one_tenant_expire_though_a_job_of_another_needs_their_digest(world: World) -> None:
    attacker = world.store.for_tenant(ATTACKER)
    attacker.models.add(world.blob.digest, 1)
    assert world.store.removal.expire_uploads(-1) == 1
    assert attacker.models.get(world.blob.digest) is None
    assert world.store.for_tenant(VICTIM).models.get(world.blob.digest) is not None


def test_stores_that_open_at_the_same_moment_agree_on_a_secret(settings: StoreSettings) -> None:
    stores = [open_store(settings) for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        secrets = set(pool.map(lambda number: stores[number % 2].secret("ids"), range(16)))
    assert [len(secret) for secret in secrets] == [SECRET_BYTES]
    assert stores[0].secret("another") not in secrets
    for opened in stores:
        opened.close()
