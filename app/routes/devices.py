"""Devices: the list, and the calls of the devices themselves."""

import asyncio
from collections.abc import Iterator
from time import monotonic
from typing import Annotated

import zstandard
from fastapi import APIRouter, Body, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from app.http.bodies import DocumentRoute
from app.http.problems import refuse
from app.identity.caller import CallerDep
from app.openapi import document as documentation
from app.openapi.document import described, problems
from app.service import ServiceDep
from bessemer.contract.access import Scope
from bessemer.contract.device import (
    Device,
    DeviceEntry,
    DeviceId,
    DeviceList,
    DeviceOutput,
    DeviceRequest,
    DeviceResult,
    DeviceTask,
)
from bessemer.contract.problem import ErrorCode

router = APIRouter(prefix="/v1/devices", tags=["devices"], route_class=DocumentRoute)

MAX_WAIT_SECONDS = 30.0
POLL_SECONDS = 0.5
SIGHTS_PER_LEASE = 5
CHUNK_BYTES = 1 << 20
MAX_WINDOW_BYTES = 1 << 27
TAR = "application/x-tar"
_DESCRIPTION = "The device's id, which registering returned."
DevicePath = Annotated[
    DeviceId, Path(alias="device", description=_DESCRIPTION, examples=[documentation.DEVICE.id])
]
TaskPath = Annotated[DeviceId, Path(alias="task", description="The task's id.", examples=["0" * 32])]
Wait = Annotated[
    float,
    Query(
        ge=0,
        le=MAX_WAIT_SECONDS,
        allow_inf_nan=False,
        description="Seconds to wait for a task.",
        examples=[20],
    ),
]
TASK = DeviceTask(
    id="5d41402abc4b2a76b9719d911017c592",
    digest=documentation.OTHER_DIGEST,
    repeat=200,
    repeat_seconds=1.0,
    timeout_seconds=120.0,
    memory_bytes=1 << 33,
    disk_bytes=1 << 34,
)
RESULT = DeviceResult(
    entries=(
        DeviceEntry(
            name="main",
            outputs=(DeviceOutput(name="output", elements=10, mismatches=0, max_absolute_error=2.4e-7),),
            open_ms=1.8,
            first_ms=0.35,
            times_ms=(0.21, 0.2, 0.2),
        ),
    ),
    threads=4,
    peak_memory_bytes=9_437_184,
)
RegisterBody = Annotated[
    DeviceRequest,
    Body(
        openapi_examples={
            "a board": {
                "summary": "A Raspberry Pi",
                "value": documentation.DEVICE_REQUEST.model_dump(mode="json"),
            }
        }
    ),
]
ResultBody = Annotated[
    DeviceResult,
    Body(openapi_examples={"verified": {"summary": "A result", "value": RESULT.model_dump(mode="json")}}),
]
KNOWN = (ErrorCode.NOT_FOUND, ErrorCode.REQUEST_INVALID)
HELD = (*KNOWN, ErrorCode.STATE_CONFLICT)


@router.get(
    "",
    summary="List the devices",
    responses=documentation.answer(200, "The devices.", DeviceList(items=(documentation.DEVICE,)))
    | problems(ErrorCode.REQUEST_INVALID),
)
def list_devices(service: ServiceDep) -> DeviceList:
    """List the live devices that your compilations may use: your tenant's and the shared ones."""
    return DeviceList(items=service.data.devices.live())


@router.post(
    "",
    status_code=201,
    summary="Register a device",
    responses=documentation.answer(201, "The device.", documentation.DEVICE, "The URL of the device.")
    | problems(ErrorCode.REQUEST_INVALID, ErrorCode.REQUEST_TOO_LARGE, ErrorCode.QUOTA_EXCEEDED),
    openapi_extra={"requestBody": {"description": "What the device is."}},
)
def register_device(
    service: ServiceDep, caller: CallerDep, response: Response, request: RegisterBody
) -> Device:
    """Register a device, which then asks for tasks. It replaces one of the same name.

    `python -m worker.device` does this. A device serves its tenant only, or all tenants if the key has the
    scope `shared-device` or `admin`.
    """
    shared = caller.scope.includes(Scope.SHARED_DEVICE)
    device = service.data.devices.register(request, shared)
    response.headers["Location"] = f"/v1/devices/{device.id}"
    return device


@router.delete(
    "/{device}",
    status_code=204,
    summary="Remove a device",
    responses=described(204, "The device is removed.") | problems(*KNOWN),
)
def remove_device(service: ServiceDep, device_id: DevicePath) -> None:
    """Remove a device that stops. Another device gets its task, if it has one."""
    if not service.data.devices.remove(device_id):
        raise refuse(ErrorCode.NOT_FOUND, f"Device {device_id} is not registered.")


@router.post(
    "/{device}/task",
    summary="Take a task",
    responses=documentation.answer(200, "The task.", TASK)
    | described(204, "There is none.")
    | problems(*KNOWN),
    response_model=DeviceTask,
)
async def take_device_task(
    service: ServiceDep, request: Request, device_id: DevicePath, wait: Wait = 0.0
) -> DeviceTask | Response:
    """Take a task, or return the task that the device already has. The device's lease applies to the task.

    The request also counts as a heartbeat of the device.
    """
    devices, deadline, seen_at = service.data.devices, monotonic() + wait, 0.0
    every_seconds = service.settings.device_lost_seconds / SIGHTS_PER_LEASE
    while True:
        if not seen_at or monotonic() - seen_at >= every_seconds:
            await run_in_threadpool(devices.seen, device_id)
            seen_at = monotonic()
        task = await run_in_threadpool(devices.take, device_id)
        if task is not None:
            return task
        rest = min(POLL_SECONDS, deadline - monotonic())
        if rest <= 0 or service.stopping.is_set() or await request.is_disconnected():
            return Response(status_code=204)
        await asyncio.sleep(rest)


@router.post(
    "/{device}/tasks/{task}/lease",
    status_code=204,
    summary="Renew the lease of a task",
    responses=described(204, "The lease is renewed.") | problems(*HELD),
)
def renew_device_task(service: ServiceDep, device_id: DevicePath, task_id: TaskPath) -> None:
    """Say that the device still works on its task. 409: it no longer has the task, and should stop."""
    if not service.data.devices.renew(device_id, task_id):
        raise refuse(ErrorCode.STATE_CONFLICT, _not_held(device_id, task_id))


@router.get(
    "/{device}/tasks/{task}/bundle",
    summary="Download the bundle of a task",
    response_class=Response,
    responses=described(200, "The files of the bundle, as a tar archive.", {TAR: {}}) | problems(*HELD),
)
def get_device_bundle(service: ServiceDep, device_id: DevicePath, task_id: TaskPath) -> Response:
    """Download the bundle of the device's task, unpacked from zstd, which Python's library may lack."""
    found = service.data.devices.bundle(device_id, task_id)
    if found is None:
        raise refuse(ErrorCode.STATE_CONFLICT, _not_held(device_id, task_id))
    return StreamingResponse(_unpacked(service.bundle_chunks(*found)), media_type=TAR)


@router.post(
    "/{device}/tasks/{task}/result",
    status_code=204,
    summary="End a task",
    responses=described(204, "The result is kept.") | problems(*HELD, ErrorCode.REQUEST_TOO_LARGE),
    openapi_extra={"requestBody": {"description": "What the device found."}},
)
def end_device_task(
    service: ServiceDep, device_id: DevicePath, task_id: TaskPath, result: ResultBody
) -> None:
    """End the device's task with what the bundle's program printed. 409: it no longer has the task."""
    if not service.data.devices.finish(device_id, task_id, result):
        raise refuse(ErrorCode.STATE_CONFLICT, _not_held(device_id, task_id))


def _not_held(device_id: str, task_id: str) -> str:
    return f"Device {device_id} does not have task {task_id}, or no longer has it."


class _Chunks:
    """A readable file over the chunks of a blob."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes; none at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._rest = chunk
        size = len(self._rest) if size < 0 else size
        given, self._rest = self._rest[:size], self._rest[size:]
        return given


def _unpacked(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes in a zstd archive, in parts of bounded size."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    with decompressor.stream_reader(_Chunks(chunks), read_across_frames=True) as stream:  # type: ignore[arg-type]
        while part := stream.read(CHUNK_BYTES):
            yield part
