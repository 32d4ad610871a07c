"""Operations on compilations and on the server."""

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO
from urllib.parse import quote

from bessemer.bundle.manifest import ARCHIVE
from bessemer.client.inputs import validated
from bessemer.client.steps import Call, Flow, Work, exchange, fetch
from bessemer.client.unpacking import unpack
from bessemer.contract.code import CodeKind, listed_name
from bessemer.contract.device import DeviceList, platforms_of
from bessemer.contract.extension import ExtensionPage
from bessemer.contract.group import Comparison, Group
from bessemer.contract.job import LOG, Artifact, Compilation, CompilationPage, JobState
from bessemer.contract.listing import CompilationQuery, ModelQuery
from bessemer.contract.model import ModelPage
from bessemer.contract.problem import ErrorCode
from bessemer.contract.queue import QUEUES, job_kind
from bessemer.contract.request import CompilationRequest, Verification
from bessemer.contract.service import WorkerList, missing
from bessemer.errors import (
    BessemerError,
    BundleError,
    CompilationCancelledError,
    CompilationFailedError,
    InvalidArgumentError,
    NoWorkerError,
    RequestRefusedError,
)

EMPTY_LOG = Artifact(
    name=LOG, digest=hashlib.sha256().hexdigest(), size_bytes=0, media_type="text/plain; charset=utf-8"
)
"""What a server that does not list it sends for a compilation that printed nothing."""

NO_LABELS: Mapping[str, str | None] = MappingProxyType({})


def get_compilation(job_id: str) -> Flow[Compilation]:
    """Get a compilation."""
    return fetch(Compilation, Call("GET", compilation_path(job_id)))


def cancel(job_id: str, keep_best: bool = False) -> Flow[Compilation]:
    """Cancel a compilation, or only its search."""
    params = {"keep_best": "true"} if keep_best else {}
    return fetch(Compilation, Call("POST", f"{compilation_path(job_id)}/cancel", params=params))


def get_group(group_id: str) -> Flow[Group]:
    """Get a group."""
    return fetch(Group, Call("GET", group_path(group_id)))


def get_comparison(group_id: str) -> Flow[Comparison]:
    """Get the comparison of a group's results."""
    path = f"{group_path(group_id)}/report"
    return fetch(Comparison, Call("GET", path, headers={"Accept": "application/json"}))


def cancel_group(group_id: str) -> Flow[Group]:
    """Cancel the compilations of a group."""
    return fetch(Group, Call("POST", f"{group_path(group_id)}/cancel"))


def compilation_pages(**filters: object) -> Callable[[str | None], Flow[CompilationPage]]:
    """A function that gets the page of compilations at a cursor, or raises ``InvalidArgumentError``."""

    def page(cursor: str | None) -> Flow[CompilationPage]:
        query = validated(CompilationQuery, {**filters, "cursor": cursor})
        return fetch(CompilationPage, Call("GET", "/v1/compilations", params=query.parameters()))

    return page


def model_pages(**filters: object) -> Callable[[str | None], Flow[ModelPage]]:
    """A function that gets the page of models at a cursor; see ``compilation_pages``."""

    def page(cursor: str | None) -> Flow[ModelPage]:
        query = validated(ModelQuery, {**filters, "cursor": cursor})
        return fetch(ModelPage, Call("GET", "/v1/models", params=query.parameters()))

    return page


def extension_page(cursor: str | None) -> Flow[ExtensionPage]:
    """Get the page of extensions at a cursor."""
    query = {} if cursor is None else {"cursor": cursor}
    return fetch(ExtensionPage, Call("GET", "/v1/extensions", params=query))


def selectors(labels: Mapping[str, str | None]) -> tuple[str, ...]:
    """Labels as the filters of a list: ``team=vision``, or ``team`` for any value."""
    return tuple(key if value is None else f"{key}={value}" for key, value in labels.items())


def get_workers() -> Flow[WorkerList]:
    """List the live workers."""
    return fetch(WorkerList, Call("GET", "/v1/workers"))


def get_devices() -> Flow[DeviceList]:
    """List the live devices that the caller's compilations may use."""
    return fetch(DeviceList, Call("GET", "/v1/devices"))


def require_worker(request: CompilationRequest) -> Flow[None]:
    """Raise ``NoWorkerError`` unless a live worker, busy or not, can run a compilation, and its device is
    live.
    """
    try:
        workers = yield from get_workers()
    except RequestRefusedError as error:
        if error.problem.code is ErrorCode.FORBIDDEN:
            return
        raise
    needs, queue = request.needs, QUEUES[job_kind(request)]
    lacking = missing(needs, queue, workers.items)
    if lacking is not None and workers.items:
        devices = yield from get_devices()
        lacking = missing(needs, queue, workers.items, platforms_of(devices.items))
    if lacking is not None:
        unverified = request.model_copy(update={"verification": Verification.NONE})
        can_be_unverified = request.is_verified and missing(unverified.needs, queue, workers.items) is None
        raise NoWorkerError(lacking, can_be_unverified)
    if request.device is not None:
        yield from _require_device(request.device)


def _require_device(name: str) -> Flow[None]:
    devices = yield from get_devices()
    live = [f"{device.name} ({device.platform})" for device in devices.items]
    if not any(device.name == name for device in devices.items):
        others = f"live devices: {', '.join(live)}" if live else "no device is live"
        raise NoWorkerError(f"the device '{name}', which is not live; {others}")


def download(compilation: Compilation, directory: Path) -> Flow[Path]:
    """Download the bundle, check it and unpack it."""
    with tempfile.TemporaryDirectory(prefix="bessemer-") as folder:
        archive = yield from download_artifact(compilation, ARCHIVE, Path(folder) / ARCHIVE)
        unpacked: Path = yield Work(lambda: unpack(archive, directory))
    return unpacked


def download_artifact(compilation: Compilation, name: str, path: Path) -> Flow[Path]:
    """Download one artifact and check its digest."""
    artifact = _artifact(compilation, name)
    url = f"{compilation_path(compilation.id)}/artifacts/{quote(name)}"
    return (yield from download_checked(url, artifact, path))


def download_checked(url: str, artifact: Artifact, path: Path) -> Flow[Path]:
    """Download a file. Raises ``BundleError`` if it does not match its digest."""
    partial = path.with_name(f"{path.name}.partial")
    yield Work(lambda: partial.parent.mkdir(parents=True, exist_ok=True))
    try:
        with partial.open("wb") as file:
            sink = _Sink(file)
            yield from exchange(Call("GET", url, sink=sink.write, started=sink.restart))
        if sink.digest() != artifact.digest:
            raise BundleError(
                f"{artifact.name} was damaged in transit: its digest is not {artifact.digest}; download it "
                "again"
            )
        yield Work(lambda: partial.replace(path))
    finally:
        partial.unlink(missing_ok=True)
    return path


def get_ir_text(job_id: str, step: int | str, diff: bool) -> Flow[str]:
    """Get the module after a step, or the changes of the step."""
    path = f"{compilation_path(job_id)}/ir/{quote(str(step), safe='')}" + ("/diff" if diff else "")
    reply = yield from exchange(Call("GET", path))
    return reply.body.decode(errors="replace")


def get_code_text(job_id: str, function: str, kind: CodeKind) -> Flow[str]:
    """Get a function's code."""
    path = f"{compilation_path(job_id)}/code/{quote(listed_name(function), safe='')}/{kind.value}"
    reply = yield from exchange(Call("GET", path))
    return reply.body.decode(errors="replace")


def get_logs(job_id: str) -> Flow[str]:
    """Get a compilation's output."""
    reply = yield from exchange(Call("GET", f"{compilation_path(job_id)}/logs"))
    return reply.body.decode(errors="replace")


def finished(compilation: Compilation) -> Compilation:
    """Return a compilation that succeeded; raise the error of one that did not."""
    if compilation.state is JobState.FAILED:
        raise CompilationFailedError(compilation)
    if compilation.state is JobState.CANCELLED:
        raise CompilationCancelledError(compilation)
    return compilation


class _Sink:
    """A file that hashes what it writes, and starts again for each attempt."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hasher = hashlib.sha256()

    def restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._hasher = hashlib.sha256()

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._hasher.update(chunk)

    def digest(self) -> str:
        return self._hasher.hexdigest()


def _artifact(compilation: Compilation, name: str) -> Artifact:
    for artifact in compilation.artifacts:
        if artifact.name == name:
            return artifact
    if name == LOG and compilation.state is JobState.SUCCEEDED:
        return EMPTY_LOG
    where = f"compilation {compilation.id} ({compilation.state}) has no artifact '{name}'"
    if not compilation.state.final:
        raise InvalidArgumentError(f"{where} yet: wait until it ends")
    names = ", ".join(artifact.name for artifact in compilation.artifacts) or "none"
    if compilation.state is JobState.SUCCEEDED:
        raise InvalidArgumentError(f"{where}; it has {names}")
    raise BessemerError(f"{where}; it has {names}")


def compilation_path(job_id: str) -> str:
    """The path of a compilation's URL."""
    return f"/v1/compilations/{quote(job_id, safe='')}"


def group_path(group_id: str) -> str:
    """The path of a group's URL."""
    return f"/v1/groups/{quote(group_id, safe='')}"
