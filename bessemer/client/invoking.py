"""Invocations: run a compiled library on the server."""

import os
import shutil
import struct
import tempfile
import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from bessemer.client.operations import compilation_path, download_checked
from bessemer.client.outages import Outage
from bessemer.client.sources import Source, file_source, memory_source
from bessemer.client.steps import Call, Flow, Sleep, Work, fetch
from bessemer.contract.invocation import Invocation, InvocationPage
from bessemer.contract.job import JobState
from bessemer.errors import InvalidArgumentError, InvocationCancelledError, InvocationFailedError

Arrays = Mapping[str, Any] | str | os.PathLike[str] | bytes
"""An array or ``.npy`` path for each name; or the path or bytes of one ``.npz`` or ``.safetensors`` file."""

FIRST_POLL_SECONDS = 0.02
LONGEST_POLL_SECONDS = 1.0
PAGE_SIZE = 50
NPY_MAGIC = b"\x93NUMPY"


def submit(job_id: str, inputs: Arrays, runs: int, entry: str | None) -> Flow[Invocation]:
    """Submit an invocation."""
    with tempfile.TemporaryDirectory(prefix="bessemer-") as folder:
        source: Source = yield Work(lambda: _source(inputs, Path(folder)))
        return (yield from _post(job_id, source, runs, entry))


def get(job_id: str, invocation_id: str) -> Flow[Invocation]:
    """Get an invocation."""
    return fetch(Invocation, Call("GET", _path(job_id, invocation_id)))


def wait(invocation: Invocation) -> Flow[Invocation]:
    """Wait until an invocation ends, and raise its error unless it succeeded."""
    wait_seconds, outage = FIRST_POLL_SECONDS, Outage()
    while not invocation.state.final:
        yield Sleep(wait_seconds)
        wait_seconds = min(2 * wait_seconds, LONGEST_POLL_SECONDS)
        with outage.tolerated():
            invocation = yield from get(invocation.compilation, invocation.id)
    if invocation.state is JobState.CANCELLED:
        raise InvocationCancelledError(invocation)
    if invocation.state is not JobState.SUCCEEDED:
        raise InvocationFailedError(invocation)
    return invocation


def cancel(job_id: str, invocation_id: str) -> Flow[Invocation]:
    """Cancel an invocation."""
    return fetch(Invocation, Call("POST", f"{_path(job_id, invocation_id)}/cancel"))


def page(job_id: str, cursor: str | None) -> Flow[InvocationPage]:
    """Get a page of a compilation's invocations, newest first."""
    params = {"limit": str(PAGE_SIZE)} | ({"cursor": cursor} if cursor else {})
    return fetch(InvocationPage, Call("GET", f"{compilation_path(job_id)}/invocations", params=params))


def download_outputs(invocation: Invocation, path: Path) -> Flow[Path]:
    """Download the outputs as ``.npz`` and check their digest."""
    if invocation.artifact is None:
        raise InvalidArgumentError(f"invocation {invocation.id} ({invocation.state}) has no outputs")
    url = f"{_path(invocation.compilation, invocation.id)}/outputs"
    return (yield from download_checked(url, invocation.artifact, path))


def write_inputs(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays, or ``.npy`` files given by their paths, as one ``.npz``.

    Raises:
        InvalidArgumentError: a file is not a ``.npy`` file, or a value is not an array.
    """
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                if isinstance(value, str | os.PathLike):
                    _copy_array(Path(value), member)
                elif type(value) is int and -(2**63) <= value < 2**63:
                    _write_number(value, member)
                else:
                    _write_array(name, value, member)


def _post(job_id: str, source: Source, runs: int, entry: str | None) -> Flow[Invocation]:
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(source.size_bytes),
        "Idempotency-Key": uuid.uuid4().hex,
    }
    call = Call(
        "POST",
        f"{compilation_path(job_id)}/invocations",
        params={"runs": str(runs)} | ({} if entry is None else {"entry": entry}),
        headers=headers,
        chunks=lambda: source.chunks(None),
    )
    return fetch(Invocation, call)


def _source(inputs: Arrays, folder: Path) -> Source:
    if isinstance(inputs, bytes):
        return memory_source(inputs)
    if isinstance(inputs, Mapping):
        path = folder / "inputs.npz"
        write_inputs(path, inputs)
        return file_source(path)
    return file_source(inputs)


def _copy_array(path: Path, member: IO[bytes]) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(NPY_MAGIC))
            if magic != NPY_MAGIC:
                raise InvalidArgumentError(f"{path} is not a .npy file")
            member.write(magic)
            shutil.copyfileobj(file, member)
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error.strerror}") from error


def _write_number(value: int, member: IO[bytes]) -> None:
    """Write an int64 scalar; numpy may be missing here."""
    header = "{'descr': '<i8', 'fortran_order': False, 'shape': (), }".ljust(117) + "\n"
    member.write(NPY_MAGIC + bytes((1, 0)) + struct.pack("<H", len(header)) + header.encode())
    member.write(struct.pack("<q", value))


def _write_array(name: str, value: Any, member: IO[bytes]) -> None:
    import numpy as np

    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"input '{name}' is not an array: {error}") from error
    if array.dtype.hasobject:
        raise InvalidArgumentError(f"input '{name}' is not an array of numbers")
    np.lib.format.write_array(member, array, allow_pickle=False)


def _path(job_id: str, invocation_id: str) -> str:
    return f"{compilation_path(job_id)}/invocations/{quote(invocation_id, safe='')}"
