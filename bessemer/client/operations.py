"""What the client asks of compilations and of the server, each as one operation."""

import hashlib
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from bessemer.bundle.manifest import ARCHIVE
from bessemer.client.inputs import validation_message
from bessemer.client.steps import Call, Flow, Work, exchange, parse
from bessemer.client.unpacking import unpack
from bessemer.contract.capability import needs_of
from bessemer.contract.ir import IrListing
from bessemer.contract.job import Artifact, Compilation, CompilationPage, JobState
from bessemer.contract.listing import CompilationQuery, ModelQuery
from bessemer.contract.model import ModelFormat, ModelPage, ModelState
from bessemer.contract.queue import QUEUES, job_kind
from bessemer.contract.report import Report
from bessemer.contract.request import CompilationRequest
from bessemer.contract.service import Readiness, TargetList, WorkerList, missing
from bessemer.errors import (
    BundleError,
    CompilationCancelledError,
    CompilationFailedError,
    InvalidArgumentError,
    NoWorkerError,
)

__all__ = [
    "cancel",
    "compilation_path",
    "delete",
    "delete_model",
    "download",
    "download_artifact",
    "download_checked",
    "finished",
    "get_compilation",
    "get_ir",
    "get_ir_text",
    "get_logs",
    "get_readiness",
    "get_report",
    "get_targets",
    "get_workers",
    "make_model_query",
    "make_query",
    "model_page",
    "page",
    "require_worker",
]


Query = TypeVar("Query", CompilationQuery, ModelQuery)

NO_LABELS: Mapping[str, str | None] = MappingProxyType({})


def get_compilation(job_id: str) -> Flow[Compilation]:
    """A compilation as it stands."""
    reply = yield from exchange(Call("GET", compilation_path(job_id)))
    return parse(Compilation, reply.body)


def page(query: CompilationQuery) -> Flow[CompilationPage]:
    """A page of compilations, newest first."""
    reply = yield from exchange(Call("GET", "/v1/compilations", params=query.parameters()))
    return parse(CompilationPage, reply.body)


def make_query(
    state: JobState | None,
    name: str | None,
    labels: Mapping[str, str | None],
    model: str | None,
    target: str | None,
    created_after: datetime | None,
    created_before: datetime | None,
) -> CompilationQuery:
    """The first page of a list.

    Raises:
        InvalidArgumentError: a value is not valid.
    """
    given = {
        "state": state,
        "name": name,
        "label": tuple(key if value is None else f"{key}={value}" for key, value in labels.items()),
        "model": model,
        "target": target,
        "created_after": created_after,
        "created_before": created_before,
    }
    return _checked(CompilationQuery, given)


def cancel(job_id: str) -> Flow[Compilation]:
    """Ask for the end of a compilation."""
    reply = yield from exchange(Call("POST", f"{compilation_path(job_id)}/cancel"))
    return parse(Compilation, reply.body)


def delete(job_id: str) -> Flow[None]:
    """Delete a compilation that has ended."""
    yield from exchange(Call("DELETE", compilation_path(job_id)))


def delete_model(digest: str) -> Flow[None]:
    """Delete a model that no compilation needs any more."""
    yield from exchange(Call("DELETE", f"/v1/models/{quote(digest, safe='')}"))


def model_page(query: ModelQuery) -> Flow[ModelPage]:
    """A page of models, newest first."""
    reply = yield from exchange(Call("GET", "/v1/models", params=query.parameters()))
    return parse(ModelPage, reply.body)


def make_model_query(
    state: ModelState | None,
    name: str | None,
    model_format: ModelFormat | None,
    created_after: datetime | None,
    created_before: datetime | None,
) -> ModelQuery:
    """The first page of a list of models.

    Raises:
        InvalidArgumentError: a value is not valid.
    """
    given = {
        "state": state,
        "name": name,
        "format": model_format,
        "created_after": created_after,
        "created_before": created_before,
    }
    return _checked(ModelQuery, given)


def _checked(kind: type[Query], given: Mapping[str, object]) -> Query:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise InvalidArgumentError(validation_message(error)) from error


def get_targets() -> Flow[TargetList]:
    """The presets."""
    reply = yield from exchange(Call("GET", "/v1/targets"))
    return parse(TargetList, reply.body)


def get_workers() -> Flow[WorkerList]:
    """The workers that live."""
    reply = yield from exchange(Call("GET", "/v1/workers"))
    return parse(WorkerList, reply.body)


def require_worker(request: CompilationRequest) -> Flow[None]:
    """Return where a live worker takes a compilation; it may be busy.

    Raises:
        NoWorkerError: none does.
    """
    workers = yield from get_workers()
    lacking = missing(needs_of(request.target), QUEUES[job_kind(request)], workers.items)
    if lacking is not None:
        raise NoWorkerError(lacking)


def get_readiness() -> Flow[Readiness]:
    """Whether the server takes requests, and which workers live."""
    reply = yield from exchange(Call("GET", "/readyz"), accept=frozenset({503}))
    return parse(Readiness, reply.body)


def download(compilation: Compilation, directory: Path) -> Flow[Path]:
    """Fetch the bundle, check it and unpack it."""
    with tempfile.TemporaryDirectory(prefix="bessemer-") as folder:
        archive = yield from download_artifact(compilation, ARCHIVE, Path(folder) / ARCHIVE)
        unpacked: Path = yield Work(lambda: unpack(archive, directory))
    return unpacked


def download_artifact(compilation: Compilation, name: str, path: Path) -> Flow[Path]:
    """Fetch one artifact into a file and check its digest.

    Raises:
        InvalidArgumentError: the compilation has no such artifact.
        BundleError: the bytes differ from the digest.
    """
    artifact = _artifact(compilation, name)
    url = f"{compilation_path(compilation.id)}/artifacts/{quote(name)}"
    return (yield from download_checked(url, artifact, path))


def download_checked(url: str, artifact: Artifact, path: Path) -> Flow[Path]:
    """Fetch a file and check its digest.

    Raises:
        BundleError: the bytes differ from the digest.
    """
    partial = path.with_name(f"{path.name}.partial")
    yield Work(lambda: partial.parent.mkdir(parents=True, exist_ok=True))
    try:
        with partial.open("wb") as file:
            sink = _Sink(file)
            yield from exchange(Call("GET", url, sink=sink.write, started=sink.restart))
        if sink.digest() != artifact.digest:
            raise BundleError(f"{artifact.name} was damaged on its way: its digest is not {artifact.digest}")
        yield Work(lambda: partial.replace(path))
    finally:
        partial.unlink(missing_ok=True)
    return path


def get_ir(job_id: str) -> Flow[IrListing]:
    """The list of a compilation's snapshots."""
    reply = yield from exchange(Call("GET", f"{compilation_path(job_id)}/ir"))
    return parse(IrListing, reply.body)


def get_ir_text(job_id: str, step: int | str, diff: bool) -> Flow[str]:
    """The module after a step, or what the step changed."""
    path = f"{compilation_path(job_id)}/ir/{quote(str(step), safe='')}" + ("/diff" if diff else "")
    reply = yield from exchange(Call("GET", path))
    return reply.body.decode(errors="replace")


def get_logs(job_id: str) -> Flow[str]:
    """What a compilation printed."""
    reply = yield from exchange(Call("GET", f"{compilation_path(job_id)}/logs"))
    return reply.body.decode(errors="replace")


def get_report(job_id: str) -> Flow[Report]:
    """The report of a compilation."""
    headers = {"Accept": "application/json"}
    reply = yield from exchange(Call("GET", f"{compilation_path(job_id)}/report", headers=headers))
    return parse(Report, reply.body)


def finished(compilation: Compilation) -> Compilation:
    """The compilation, where it succeeded.

    Raises:
        CompilationFailedError, CompilationCancelledError: it did not.
    """
    if compilation.state is JobState.FAILED:
        raise CompilationFailedError(compilation)
    if compilation.state is JobState.CANCELLED:
        raise CompilationCancelledError(compilation)
    return compilation


class _Sink:
    """A file that is hashed as it is written, from the start again where an attempt broke off."""

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
    where = f"compilation {compilation.id} ({compilation.state}) has no artifact '{name}'"
    if not compilation.state.final:
        raise InvalidArgumentError(f"{where} yet: wait for its end")
    names = ", ".join(artifact.name for artifact in compilation.artifacts) or "none"
    raise InvalidArgumentError(f"{where}; it has {names}")


def compilation_path(job_id: str) -> str:
    """The address of a compilation."""
    return f"/v1/compilations/{quote(job_id, safe='')}"
