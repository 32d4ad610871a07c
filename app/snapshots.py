"""Reads snapshots of the module. A job wrote them: whatever they say, only so much of them is held."""

from __future__ import annotations

import io

import zstandard
from pydantic import ValidationError

from app.http.lookup import named_artifact
from app.http.problems import RefusalError, refuse
from app.service import Service
from bessemer.contract.ir import IR_INDEX, IR_TEXTS, MAX_INDEX_BYTES, IrListing, IrStep, IrText
from bessemer.contract.job import Artifact, Compilation
from bessemer.contract.nearest import did_you_mean
from bessemer.contract.problem import ErrorCode

MAX_WINDOW_BYTES = 1 << 23
"""More than any text of ours needs; a frame that asks for more is refused."""


def read_listing(service: Service, job: Compilation) -> IrListing:
    """The list of a compilation's snapshots. Blocks.

    Raises:
        RefusalError: 404 where the request did not ask for them, or none was taken (yet).
        BlobMissingError: the artifact's bytes were deleted.
    """
    artifact = _snapshot_artifact(job, IR_INDEX)
    if artifact.size_bytes > MAX_INDEX_BYTES:
        raise _unreadable(job)
    data = b"".join(service.store.artifacts.stream(artifact.digest))
    try:
        return IrListing.read_json(data)
    except ValidationError as error:
        raise _unreadable(job) from error


def named_step(job: Compilation, listing: IrListing, step: str) -> IrStep:
    """The step with that number, or else with that name.

    Raises:
        RefusalError: 404 where there is none, or where several have the name.
    """
    found = [entry for entry in listing.items if str(entry.step) == step]
    found = found or [entry for entry in listing.items if entry.name == step]
    if len(found) == 1:
        return found[0]
    if found:
        numbers = ", ".join(str(entry.step) for entry in found)
        detail = f"Compilation {job.id} has several steps named {step}: name one by its number, {numbers}."
    else:
        near = did_you_mean(step, (entry.name for entry in listing.items))
        detail = f"Compilation {job.id} has no step {step}: it has {len(listing.items)}, from 0{near}"
    raise refuse(ErrorCode.NOT_FOUND, detail)


def read_text(service: Service, job: Compilation, text: IrText) -> bytes:
    """One text, unpacked. Blocks.

    Raises:
        RefusalError: 404 where it is not what the list says.
        BlobMissingError: the artifact's bytes were deleted.
    """
    artifact = _snapshot_artifact(job, IR_TEXTS) if text.packed_bytes else None
    if artifact is None:
        return b""
    end = text.offset + text.packed_bytes
    if end > artifact.size_bytes:
        raise _unreadable(job)
    packed = b"".join(service.store.artifacts.stream(artifact.digest, text.offset, end))
    return _unpacked(job, packed, text.text_bytes)


def _unpacked(job: Compilation, packed: bytes, size: int) -> bytes:
    unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    try:
        with unpacker.stream_reader(io.BytesIO(packed)) as reader:
            data = reader.read(size)
    except zstandard.ZstdError as error:
        raise _unreadable(job) from error
    if len(data) != size:
        raise _unreadable(job)
    return data


def _snapshot_artifact(job: Compilation, name: str) -> Artifact:
    if not job.request.inspect.ir:
        detail = f"Compilation {job.id} kept no IR: ask for it with `inspect.ir`."
        raise refuse(ErrorCode.NOT_FOUND, detail)
    return named_artifact(job, name)


def _unreadable(job: Compilation) -> RefusalError:
    return refuse(ErrorCode.NOT_FOUND, f"The snapshots of compilation {job.id} cannot be read.")
