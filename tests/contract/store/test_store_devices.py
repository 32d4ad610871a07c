"""Devices, their tasks and leases."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from store_samples import DIGEST, a_request

from bessemer.contract.device import Device, DeviceRequest, DeviceResult, DeviceTask
from bessemer.store.errors import DeviceUnknownError, FencedError, TooManyDevicesError
from bessemer.store.rows import tenant_devices
from bessemer.store.rows.device_tasks import DeviceTaskState, DeviceTaskStatus, Wanted, new_task_id
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.rows.tables import DEVICES
from bessemer.store.store import Store
from tests.tenant_data import started

VISION, SPEECH = "vision", "speech"
JOB = "job-00000001"
ARM = Wanted(VISION, "aarch64")
RESULT = DeviceResult(failure="it crashed")


def a_board(
    name: str = "pi", platform: str = "aarch64", features: tuple[str, ...] = (), processor: str = ""
) -> DeviceRequest:
    return DeviceRequest(
        name=name,
        platform=platform,
        features=features,
        processor=processor,
        cores=4,
        memory_bytes=1 << 30,
    )


def registered(
    store: Store, request: DeviceRequest | None = None, tenant: str = VISION, shared: bool = False
) -> Device:
    devices = store.for_tenant(tenant).devices
    return devices.register(request or a_board(), shared)


def a_task() -> DeviceTask:
    return DeviceTask(
        id=new_task_id(),
        digest=DIGEST,
        repeat=10,
        repeat_seconds=1,
        timeout_seconds=60,
        memory_bytes=1 << 30,
        disk_bytes=1 << 30,
    )


def offered(store: Store, wanted: Wanted = ARM, job: str = JOB, task: DeviceTask | None = None) -> DeviceTask:
    task = task or a_task()
    store.for_tenant(wanted.tenant).jobs.submit(job, a_request())
    store.device_tasks.submit(job, started(store.jobs, job), task, wanted)
    return task


def taken(store: Store, device: Device, tenant: str = VISION) -> DeviceTask | None:
    return store.for_tenant(tenant).devices.take(device.id)


def status(store: Store, task: DeviceTask) -> DeviceTaskStatus:
    found = store.device_tasks.status(task.id)
    assert found is not None
    return found


def test_a_device_is_what_it_said_when_it_registered(store: Store) -> None:
    device = registered(store, a_board(features=("asimd",)))
    (shown,) = store.for_tenant(VISION).devices.live()
    assert shown == device
    assert (shown.name, shown.platform, shown.features, shown.shared) == ("pi", "aarch64", ("asimd",), False)


def test_a_task_of_a_kind_goes_to_a_device_of_that_kind(store: Store) -> None:
    old = registered(store, a_board("old", processor="A53"))
    new = registered(store, a_board("new", processor="A72"))
    twin = registered(store, a_board("twin", processor="A72"))
    wanted = replace(ARM, kind=new.kind)
    assert [device.name for device in store.device_tasks.fitting(wanted)] == ["new", "twin"]
    task = offered(store, wanted)
    assert taken(store, old) is None
    assert status(store, task).wanted == wanted
    assert taken(store, twin) == task


def test_a_tenant_sees_its_own_devices_and_the_shared_ones(store: Store) -> None:
    registered(store, a_board("own"))
    registered(store, a_board("farm"), SPEECH, shared=True)
    registered(store, a_board("secret"), SPEECH)
    names = [device.name for device in store.for_tenant(VISION).devices.live()]
    assert names == ["farm", "own"]
    assert store.for_tenant(VISION).devices.names() == {"farm", "own"}
    platforms = store.device_tasks.live_platforms()
    assert (platforms.of("others"), platforms.of(SPEECH)) == ({"aarch64"}, {"aarch64"})


def test_a_silent_device_is_not_live(store: Store) -> None:
    device = registered(store)
    with store.database.write() as connection:
        connection.execute(sa.update(DEVICES).values(seen_at=device.seen_at - timedelta(minutes=1)))
    assert store.for_tenant(VISION).devices.live() == ()
    assert store.for_tenant(VISION).devices.names() == {device.name}
    assert store.device_tasks.live_platforms().of(VISION) == frozenset()
    store.for_tenant(VISION).devices.seen(device.id)
    assert len(store.for_tenant(VISION).devices.live()) == 1


def test_a_tenant_has_a_limited_number_of_devices(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_devices, "MOST_DEVICES", 2)
    for name in ("a", "b", "b"):
        registered(store, a_board(name))
    with pytest.raises(TooManyDevicesError):
        registered(store, a_board("c"))
    registered(store, a_board("c"), SPEECH)


@pytest.mark.parametrize(
    ("request_", "wanted", "tenant", "shared", "fits"),
    [
        (a_board(), ARM, VISION, False, True),
        (a_board(), ARM, SPEECH, False, False),
        (a_board(), ARM, SPEECH, True, True),
        (a_board(platform="riscv64"), ARM, VISION, False, False),
        (a_board(platform="aarch64-musl"), ARM, VISION, False, False),
        (a_board(), replace(ARM, name="pi"), VISION, False, True),
        (a_board(), replace(ARM, name="other"), VISION, False, False),
        (a_board(), replace(ARM, features=frozenset({"sve"})), VISION, False, False),
        (a_board(features=("sve",)), replace(ARM, features=frozenset({"sve"})), VISION, False, True),
        (a_board(), replace(ARM, unfit=frozenset({"pi"})), VISION, False, False),
    ],
)
def test_a_device_takes_what_it_can_run_and_may_see(
    store: Store, request_: DeviceRequest, wanted: Wanted, tenant: str, shared: bool, fits: bool
) -> None:
    task = offered(store, wanted)
    device = registered(store, request_, tenant, shared)
    assert taken(store, device, tenant) == (task if fits else None)


@pytest.mark.parametrize(("name", "fits"), [(None, False), ("pi", True), ("other", False)])
def test_an_emulated_device_measures_candidates_only_if_it_is_named(
    store: Store, name: str | None, fits: bool
) -> None:
    wanted = replace(ARM, name=name, measures=True)
    device = registered(store, a_board().model_copy(update={"emulated": True}))
    task = offered(store, wanted, task=a_task().model_copy(update={"kind": "measure"}))
    assert [found.name for found in store.device_tasks.fitting(wanted)] == (["pi"] if fits else [])
    assert taken(store, device) == (task if fits else None)


def test_a_task_for_one_device_can_be_opened_to_all(store: Store) -> None:
    task = offered(store, replace(ARM, name="gone"))
    device = registered(store)
    assert taken(store, device) is None
    store.device_tasks.open_to_all(task.id)
    assert status(store, task).wanted == ARM
    assert taken(store, device) == task


def test_one_of_two_devices_gets_a_task_and_gets_it_again_until_it_ends(store: Store) -> None:
    first, second = (registered(store, a_board(name)) for name in ("a", "b"))
    assert taken(store, first) is None
    task = offered(store)
    assert taken(store, first) == task
    assert (taken(store, second), taken(store, first)) == (None, task)
    assert [device.busy for device in store.for_tenant(VISION).devices.live()] == [True, False]
    assert store.for_tenant(VISION).devices.bundle(first.id, task.id) == (VISION, DIGEST)
    assert store.for_tenant(VISION).devices.bundle(second.id, task.id) is None
    assert not store.for_tenant(VISION).devices.finish(second.id, task.id, RESULT)
    assert store.for_tenant(VISION).devices.finish(first.id, task.id, RESULT)
    found = status(store, task)
    assert (found.state, found.result, found.attempt) == (DeviceTaskState.ENDED, RESULT, 1)
    assert found.device is not None
    assert found.device.name == "a"
    assert taken(store, first) is None


def test_a_shared_device_gets_the_bundle_of_another_tenant_for_its_task_only(store: Store) -> None:
    task = offered(store)
    farm = registered(store, a_board("farm"), SPEECH, shared=True)
    devices = store.for_tenant(SPEECH).devices
    assert devices.bundle(farm.id, task.id) is None
    assert devices.take(farm.id) == task
    assert devices.bundle(farm.id, task.id) == (VISION, DIGEST)
    devices.finish(farm.id, task.id, RESULT)
    assert devices.bundle(farm.id, task.id) is None


def test_a_lost_devices_task_goes_to_another_and_its_result_is_refused(store: Store) -> None:
    first, second = (registered(store, a_board(name)) for name in ("a", "b"))
    task = offered(store)
    taken(store, first)
    assert store.device_tasks.take_back(task.id, 1)
    assert not store.device_tasks.take_back(task.id, 1)
    assert taken(store, second) == task
    assert (status(store, task).attempt, status(store, task).lost_attempts) == (2, 1)
    devices = store.for_tenant(VISION).devices
    assert not devices.renew(first.id, task.id)
    assert not devices.finish(first.id, task.id, RESULT)
    assert devices.renew(second.id, task.id)
    assert not store.device_tasks.take_back(task.id, 1)


def test_a_renewed_lease_shows(store: Store) -> None:
    device = registered(store)
    task = offered(store)
    taken(store, device)
    before = status(store, task).renewed_at
    assert store.for_tenant(VISION).devices.renew(device.id, task.id)
    assert status(store, task).renewed_at != before


@pytest.mark.parametrize(
    ("leave", "lost_attempts"),
    [
        (lambda store, device: store.for_tenant(VISION).devices.remove(device.id), 0),
        (lambda store, _: registered(store), 1),
    ],
    ids=["stops", "starts again"],
)
def test_a_device_that_leaves_gives_its_task_back(
    store: Store, leave: Callable[[Store, Device], object], lost_attempts: int
) -> None:
    device = registered(store)
    task = offered(store)
    taken(store, device)
    leave(store, device)
    found = status(store, task)
    assert (found.state, found.lost_attempts) == (DeviceTaskState.QUEUED, lost_attempts)
    with pytest.raises(DeviceUnknownError):
        taken(store, device)
    assert not store.for_tenant(VISION).devices.remove(device.id)


def test_an_unfit_device_does_not_get_a_task_again(store: Store) -> None:
    device = registered(store)
    task = offered(store)
    taken(store, device)
    store.for_tenant(VISION).devices.finish(device.id, task.id, DeviceResult(failure="SIGILL", unfit=True))
    store.device_tasks.give_to_others(task.id, "pi")
    assert taken(store, device) is None
    assert taken(store, registered(store, a_board("other"))) == task
    assert status(store, task).wanted == replace(ARM, unfit=frozenset({"pi"}))


def test_no_device_works_for_an_attempt_that_has_ended(store: Store) -> None:
    device, devices = registered(store), store.for_tenant(VISION).devices
    task = offered(store)
    assert taken(store, device) == task
    again = started(store.jobs, JOB, "w2")
    assert not devices.renew(device.id, task.id)
    assert not devices.finish(device.id, task.id, RESULT)
    assert taken(store, device) is None
    assert store.device_tasks.delete_obsolete() == 1
    newer = a_task()
    store.device_tasks.submit(JOB, again, newer, ARM)
    assert taken(store, device) == newer
    assert store.device_tasks.delete_obsolete() == 0


def test_a_deleted_jobs_tasks_go_with_it(store: Store) -> None:
    task = offered(store)
    attempt: Attempt = started(store.jobs, JOB, "w2")
    store.jobs.cancel_finished(JOB, attempt)
    assert store.for_tenant(VISION).jobs.delete(JOB)
    assert store.device_tasks.status(task.id) is None
    with pytest.raises(FencedError):
        store.jobs.cancel_finished(JOB, attempt)


def test_another_tenants_device_does_not_exist(store: Store) -> None:
    device = registered(store)
    attacker = store.for_tenant(SPEECH).devices
    for call in (
        lambda: attacker.take(device.id),
        lambda: attacker.seen(device.id),
        lambda: attacker.renew(device.id, "0" * 32),
        lambda: attacker.finish(device.id, "0" * 32, RESULT),
        lambda: attacker.bundle(device.id, "0" * 32),
    ):
        with pytest.raises(DeviceUnknownError):
            call()
    assert not attacker.remove(device.id)
