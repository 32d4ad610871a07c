"""The devices' part of the API: what a device may ask, and what a lying one cannot do."""

import asyncio
import io
import json
import tarfile
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard
from app_samples import look_anew, request, worker
from callers import client_of
from fastapi import FastAPI

from app.service import Service
from bessemer.contract.access import DEFAULT_TENANT, Scope
from bessemer.contract.capability import Capability
from bessemer.contract.device import MAX_OUTPUTS, MAX_TIMES, DeviceTask
from bessemer.store.rows.device_tasks import DeviceTaskState, Wanted, new_task_id
from tests.tenant_data import own, started

BOARD = {
    "name": "board",
    "platform": "aarch64",
    "processor": "Cortex-A72",
    "features": ["asimd"],
    "cores": 4,
    "memory_bytes": 1 << 30,
}
OUTPUT = {"name": "y", "elements": 2, "mismatches": 0, "max_absolute_error": 1e-7}
ENTRY = {"name": "main", "outputs": [OUTPUT], "open_ms": 1.5, "first_ms": 0.5, "times_ms": [0.25, 0.5]}
RESULT = {"entries": [ENTRY], "threads": 2, "peak_memory_bytes": 4096}


@pytest.fixture
async def board(api: httpx.AsyncClient) -> str:
    """The path of a registered device."""
    response = await api.post("/v1/devices", json=BOARD)
    assert response.status_code == 201
    return response.headers["location"]


def offered(front: Service, job: str, folder: Path, platform: str = "aarch64") -> DeviceTask:
    """A task of a running job, with a bundle."""
    (folder / "bundle").write_bytes(zstandard.compress(archive()))
    task = DeviceTask(
        id=new_task_id(),
        digest=own(front.store).artifacts.put_file(folder / "bundle").digest,
        repeat=1,
        repeat_seconds=1,
        timeout_seconds=1,
        memory_bytes=1,
        disk_bytes=1,
    )
    attempt = started(front.store.jobs, job)
    front.store.device_tasks.submit(job, attempt, task, Wanted(DEFAULT_TENANT, platform))
    return task


def archive() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        entry = tarfile.TarInfo("run")
        entry.size = 3 << 20
        tar.addfile(entry, io.BytesIO(bytes(entry.size)))
    return made.getvalue()


async def test_a_device_registers_takes_a_task_gets_its_bundle_and_ends_it(
    api: httpx.AsyncClient, front: Service, job: str, board: str, tmp_path: Path
) -> None:
    assert (await api.post(f"{board}/task")).status_code == 204
    task = offered(front, job, tmp_path)
    taken = await api.post(f"{board}/task")
    assert (taken.status_code, DeviceTask.model_validate(taken.json())) == (200, task)
    path = f"{board}/tasks/{task.id}"
    assert (await api.post(f"{path}/lease")).status_code == 204
    bundle = await api.get(f"{path}/bundle")
    assert (bundle.status_code, bundle.headers["content-type"]) == (200, "application/x-tar")
    assert bundle.content == archive()
    (shown,) = (await api.get("/v1/devices")).json()["items"]
    assert (shown["name"], shown["busy"], shown["shared"]) == ("board", True, True)
    assert (await api.post(f"{path}/result", json=RESULT)).status_code == 204
    status = front.store.device_tasks.status(task.id)
    assert status is not None
    assert status.state is DeviceTaskState.ENDED
    for again in ("lease", "result"):
        response = await api.post(f"{path}/{again}", json=RESULT if again == "result" else None)
        assert (response.status_code, response.json()["code"]) == (409, "state-conflict")
    assert (await api.get(f"{path}/bundle")).status_code == 409
    assert (await api.delete(board)).status_code == 204
    assert (await api.delete(board)).status_code == 404
    assert (await api.get("/v1/devices")).json() == {"items": []}


async def test_a_device_that_registers_again_is_another(api: httpx.AsyncClient, board: str) -> None:
    again = await api.post("/v1/devices", json=BOARD)
    assert again.headers["location"] != board
    response = await api.post(f"{board}/task")
    assert (response.status_code, response.json()["code"]) == (404, "not-found")
    assert len((await api.get("/v1/devices")).json()["items"]) == 1


async def test_a_waiting_device_gets_a_task_as_soon_as_there_is_one(
    api: httpx.AsyncClient, front: Service, job: str, board: str, tmp_path: Path
) -> None:
    began = time.monotonic()
    assert (await api.post(f"{board}/task", params={"wait": 0.6})).status_code == 204
    assert time.monotonic() - began >= 0.6
    other = await api.post("/v1/devices", json=BOARD | {"name": "other", "platform": "riscv64"})
    waiting, in_vain = (
        asyncio.create_task(api.post(f"{path}/task", params={"wait": 20}))
        for path in (board, other.headers["location"])
    )
    await asyncio.sleep(0.2)
    task = offered(front, job, tmp_path)
    assert (await waiting).json()["id"] == task.id
    assert not in_vain.done()
    in_vain.cancel()


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a" * 65},
        {"name": "../board"},
        {"platform": "aarch64 "},
        {"platform": "a" * 40},
        {"processor": "x" * 201},
        {"processor": "two\nlines"},
        {"features": ["x"] * 1025},
        {"features": ["a b"]},
        {"cores": 0},
        {"cores": 1.5},
        {"memory_bytes": -1},
        {"memory_bytes": 1 << 60},
        {"emulated": "yes"},
        {"shared": True},
        {"id": "0" * 32},
    ],
)
async def test_a_device_that_says_what_cannot_be_is_refused(
    api: httpx.AsyncClient, wrong: dict[str, Any]
) -> None:
    response = await api.post("/v1/devices", json=BOARD | wrong)
    assert (response.status_code, response.json()["code"]) == (422, "request-invalid")
    assert (await api.get("/v1/devices")).json() == {"items": []}


def entry(**wrong: Any) -> dict[str, Any]:
    return RESULT | {"entries": [ENTRY | wrong]}


def output(**wrong: Any) -> dict[str, Any]:
    return entry(outputs=[OUTPUT | wrong])


@pytest.mark.parametrize(
    "lie",
    [
        [],
        "verified",
        {"verified": True},
        RESULT | {"entries": [ENTRY] * 33},
        RESULT | {"threads": 0},
        RESULT | {"peak_memory_bytes": -1},
        RESULT | {"failure": "x" * 2001},
        entry(times_ms=[1.0] * (MAX_TIMES + 1)),
        entry(times_ms=[-1.0]),
        entry(times_ms=["fast"]),
        entry(first_ms=1e300),
        entry(name="Main; DROP TABLE"),
        entry(outputs=[OUTPUT] * (MAX_OUTPUTS + 1)),
        output(mismatches=-1),
        output(elements=1 << 60),
        output(name="<script>"),
        output(max_absolute_error=-1),
    ],
)
async def test_a_lying_device_is_refused_and_keeps_its_task(
    api: httpx.AsyncClient, front: Service, job: str, board: str, tmp_path: Path, lie: object
) -> None:
    task = offered(front, job, tmp_path)
    await api.post(f"{board}/task")
    response = await api.post(f"{board}/tasks/{task.id}/result", json=lie)
    assert (response.status_code, response.json()["code"]) == (422, "request-invalid")
    status = front.store.device_tasks.status(task.id)
    assert status is not None
    assert status.state is DeviceTaskState.LEASED


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_a_number_that_is_not_finite_is_refused(
    api: httpx.AsyncClient, front: Service, job: str, board: str, tmp_path: Path, number: str
) -> None:
    task = offered(front, job, tmp_path)
    await api.post(f"{board}/task")
    text = json.dumps(RESULT).replace("1.5", number)
    headers = {"Content-Type": "application/json"}
    response = await api.post(f"{board}/tasks/{task.id}/result", content=text, headers=headers)
    assert (response.status_code, response.json()["code"]) == (422, "request-invalid")


async def test_a_result_that_is_too_large_is_refused(
    api: httpx.AsyncClient, front: Service, job: str, board: str, tmp_path: Path
) -> None:
    task = offered(front, job, tmp_path)
    await api.post(f"{board}/task")
    response = await api.post(f"{board}/tasks/{task.id}/result", content=b" " * (2 << 20))
    assert (response.status_code, response.json()["code"]) == (413, "request-too-large")


async def test_a_device_of_another_platform_gets_neither_task_nor_bundle(
    api: httpx.AsyncClient, front: Service, job: str, board: str, tmp_path: Path
) -> None:
    task = offered(front, job, tmp_path, platform="riscv64")
    assert (await api.post(f"{board}/task")).status_code == 204
    assert (await api.get(f"{board}/tasks/{task.id}/bundle")).status_code == 409
    assert (await api.post(f"{board}/tasks/{task.id}/result", json=RESULT)).status_code == 409


@pytest.mark.parametrize(
    ("scope", "register", "listing", "models"),
    [
        (Scope.READ, 403, 200, 200),
        (Scope.COMPILE, 201, 200, 200),
        (Scope.DEVICE, 201, 403, 403),
        (Scope.SHARED_DEVICE, 201, 403, 403),
        (Scope.ADMIN, 201, 200, 200),
    ],
)
async def test_a_devices_key_opens_nothing_else(
    guarded: FastAPI, scope: Scope, register: int, listing: int, models: int
) -> None:
    async with client_of(guarded, "vision", scope) as client:
        registered = await client.post("/v1/devices", json=BOARD)
        assert registered.status_code == register
        if register == 201:
            assert registered.json()["shared"] is (scope in (Scope.SHARED_DEVICE, Scope.ADMIN))
        assert (await client.get("/v1/devices")).status_code == listing
        assert (await client.get("/v1/models")).status_code == models


async def test_the_audit_log_has_what_devices_do_but_no_heartbeats(guarded: FastAPI) -> None:
    async with client_of(guarded, "vision", Scope.DEVICE) as client:
        path = (await client.post("/v1/devices", json=BOARD)).headers["location"]
        await client.post(f"{path}/task")
        await client.post(f"{path}/tasks/{'0' * 32}/lease")
        await client.post(f"{path}/tasks/{'0' * 32}/result", json=RESULT)
        await client.delete(path)
    async with client_of(guarded, "ops", Scope.ADMIN) as admin:
        entries = (await admin.get("/v1/audit")).json()["items"]
    assert [entry["action"] for entry in reversed(entries)] == [
        "POST /v1/devices",
        "POST /v1/devices/{device}/tasks/{task}/result",
        "DELETE /v1/devices/{device}",
    ]


async def test_a_compilation_for_a_platform_waits_until_a_device_of_it_is_live(
    app: FastAPI, api: httpx.AsyncClient, front: Service, model: str
) -> None:
    capability = Capability(architecture="x86_64", foreign=("aarch64",))
    front.store.workers.beat(worker().model_copy(update={"capability": capability}))
    submitted = (await api.post("/v1/compilations", json=request(target="aarch64"))).json()
    assert submitted["queue"]["waiting_for"] == (
        "a worker whose processor can run code for aarch64 generic, or a device of the platform aarch64: "
        "w1 (znver4) lacks aarch64"
    )
    await api.post("/v1/devices", json=BOARD)
    look_anew(app)
    shown = (await api.get(f"/v1/compilations/{submitted['id']}")).json()["queue"]
    assert (shown["waiting_for"], shown["workers"]) == (None, 1)


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ({"device": "pi"}, 202),
        ({"device": "../pi"}, 422),
        ({"device": "pi", "stop_after": "build"}, 422),
        ({"device": "pi", "benchmark": {"compare": True}}, 422),
    ],
)
async def test_a_request_names_a_device_only_for_a_bundle(
    api: httpx.AsyncClient, model: str, wanted: dict[str, Any], status: int
) -> None:
    await api.post("/v1/devices", json=BOARD | {"name": "pi"})
    response = await api.post("/v1/compilations", json=request(**wanted))
    assert response.status_code == status
    if status == 202:
        assert response.json()["request"]["device"] == "pi"


async def test_a_request_for_a_device_that_never_registered_is_refused(
    api: httpx.AsyncClient, model: str
) -> None:
    await api.post("/v1/devices", json=BOARD | {"name": "pi-4"})
    response = await api.post("/v1/compilations", json=request(device="pi4"))
    assert response.status_code == 422
    assert response.json()["errors"] == [
        {
            "field": "device",
            "message": "no device is named 'pi4'; did you mean 'pi-4'? "
            "(start it before you submit; `bessemer devices` lists the live ones)",
        }
    ]
