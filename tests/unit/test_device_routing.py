"""Which workers and devices a compilation for another platform can use."""

import httpx
import pytest

from bessemer.client import Client
from bessemer.contract.access import Scope
from bessemer.contract.base import Document, now
from bessemer.contract.capability import Capability, Needs, lacks
from bessemer.contract.device import Device, DeviceList, platforms_of, serving
from bessemer.contract.queue import QueueName
from bessemer.contract.request import CompilationRequest
from bessemer.contract.service import Worker, WorkerList, missing, takers_of
from bessemer.errors import NoWorkerError
from bessemer.store.rows.device_tasks import LivePlatforms
from tests.workers import some_worker

ARM = Needs("aarch64", "generic")
CAPABILITY = Capability(architecture="x86_64", foreign=("aarch64",), processors={"znver4": ("avx512f",)})


def a_worker(capability: Capability = CAPABILITY) -> Worker:
    return some_worker(mcpu="znver3", capability=capability)


def a_device(name: str, platform: str) -> Device:
    return Device(
        name=name,
        platform=platform,
        cores=1,
        memory_bytes=1,
        id="0" * 32,
        shared=False,
        registered_at=now(),
        seen_at=now(),
        lease_seconds=30,
    )


def test_the_devices_of_a_platform_serve_it() -> None:
    devices = [a_device("pi", "aarch64"), a_device("alpine", "aarch64-musl"), a_device("pi-2", "aarch64")]
    assert [device.name for device in serving("aarch64", devices)] == ["pi", "pi-2"]
    assert platforms_of(devices) == {"aarch64", "aarch64-musl"}
    assert serving("riscv64", devices) == ()


@pytest.mark.parametrize(
    ("needs", "platforms", "lacking"),
    [
        (ARM, (), ("aarch64",)),
        (ARM, ("aarch64",), ()),
        (ARM, ("aarch64-musl",), ("aarch64",)),
        (Needs("aarch64-musl", "generic"), ("aarch64-musl",), ()),
        (Needs("x86_64-musl", "x86-64-v3"), ("x86_64-musl",), ()),
        (Needs("x86_64-musl", "x86-64-v3"), (), ("x86_64-musl",)),
        (Needs("x86_64", "znver4"), ("x86_64",), ("avx512f",)),
        (Needs("sparc", "generic"), (), ()),
    ],
)
def test_a_worker_lacks_no_platform_that_a_device_runs(
    needs: Needs, platforms: tuple[str, ...], lacking: tuple[str, ...]
) -> None:
    assert lacks(CAPABILITY, needs, platforms) == lacking


@pytest.mark.parametrize(
    ("queue", "platforms", "takers"),
    [
        (QueueName.COMPILE, ("aarch64",), 1),
        (QueueName.COMPILE, (), 0),
        (QueueName.QUICK, ("aarch64",), 0),
    ],
)
def test_devices_help_with_compilations_only(
    queue: QueueName, platforms: tuple[str, ...], takers: int
) -> None:
    assert len(takers_of(ARM, queue, [a_worker()], platforms)) == takers
    assert (missing(ARM, queue, [a_worker()], platforms) is None) == bool(takers)


def test_what_is_missing_names_the_device_that_would_help() -> None:
    assert missing(ARM, QueueName.COMPILE, [a_worker()]) == (
        "a worker whose processor can run code for aarch64 generic, or a device of the platform aarch64: "
        "w1 (znver3) lacks aarch64"
    )
    assert missing(Needs("x86_64", "znver4"), QueueName.COMPILE, [a_worker()]) == (
        "a worker whose processor can run code for x86_64 znver4: w1 (znver3) lacks avx512f"
    )


def test_a_tenant_uses_its_own_platforms_and_the_shared_ones() -> None:
    live = LivePlatforms(shared=frozenset({"riscv64"}), own=frozenset({("vision", "aarch64")}))
    assert (live.of("vision"), live.of("speech")) == ({"aarch64", "riscv64"}, {"riscv64"})


@pytest.mark.parametrize(
    ("scope", "allows"),
    [
        (Scope.READ, {Scope.READ}),
        (Scope.COMPILE, {Scope.READ, Scope.COMPILE, Scope.DEVICE}),
        (Scope.DEVICE, {Scope.DEVICE}),
        (Scope.SHARED_DEVICE, {Scope.DEVICE, Scope.SHARED_DEVICE}),
        (Scope.ADMIN, set(Scope)),
    ],
)
def test_a_scope_allows_what_it_says(scope: Scope, allows: set[Scope]) -> None:
    assert {other for other in Scope if scope.includes(other)} == allows


def test_a_named_device_that_is_not_live_is_reported_before_anything_is_sent() -> None:
    answers: dict[str, Document] = {
        "/v1/workers": WorkerList(items=(a_worker(Capability(architecture="x86_64")),)),
        "/v1/devices": DeviceList(items=(a_device("pi-4", "aarch64"),)),
    }
    request = CompilationRequest.model_validate({"model": "0" * 64, "target": "x86-64-v3", "device": "pi-5"})

    def handler(asked: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=answers[asked.url.path].model_dump_json())

    with (
        Client("http://service", transport=httpx.MockTransport(handler)) as client,
        pytest.raises(NoWorkerError, match=r"'pi-5', which is not live; live devices: pi-4 \(aarch64\)"),
    ):
        client.require_worker(request)


@pytest.mark.parametrize(
    ("target", "can_be_unverified"), [("apple-m1", True), ("cortex-a72", True), ("cuda-sm_90", False)]
)
def test_a_target_that_no_worker_runs_may_be_compiled_unverified(
    target: str, can_be_unverified: bool
) -> None:
    """No worker here has the CUDA compilers."""
    answers: dict[str, Document] = {
        "/v1/workers": WorkerList(items=(a_worker(),)),
        "/v1/devices": DeviceList(items=()),
    }
    request = CompilationRequest.model_validate({"model": "0" * 64, "target": target})

    def handler(asked: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=answers[asked.url.path].model_dump_json())

    with (
        Client("http://service", transport=httpx.MockTransport(handler)) as client,
        pytest.raises(NoWorkerError) as refused,
    ):
        client.require_worker(request)
    assert refused.value.can_be_unverified is can_be_unverified
