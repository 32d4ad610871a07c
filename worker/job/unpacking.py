"""Unpacks a bundle in a job's own folder, as hostile input inside the sandbox."""

from __future__ import annotations

import tarfile
from pathlib import Path

import zstandard
from pydantic import ValidationError

from bessemer.bundle.manifest import MANIFEST, Manifest
from bessemer.contract.problem import ErrorCode
from worker.errors import JobError, failure_of
from worker.job.folder import JobFolder

COPY_BYTES = 4 << 20
"""Linux caches what is written at once in pages of up to 2 MiB, and maps libraries with these."""


def unpacked(folder: JobFolder, code: ErrorCode) -> Path:
    """The folder of the unpacked bundle, which has only files and folders.

    Raises:
        JobError: the bundle is not an archive, has other entries, or does not fit in the job's folder.
    """
    bundle = folder.scratch / "bundle"
    try:
        with (
            folder.model.open("rb") as packed,
            zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as stream,
            tarfile.open(fileobj=stream, mode="r|", bufsize=COPY_BYTES) as archive,
        ):
            archive.copybufsize = COPY_BYTES  # type: ignore[attr-defined]
            archive.extractall(bundle, filter=_plain)
    except Exception as error:  # tarfile raises many kinds for damaged bytes
        raise failure_of(code, error, f"the bundle cannot be unpacked: {error}") from error
    return bundle


def _plain(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise tarfile.SpecialFileError(member)
    return tarfile.data_filter(member, path)


def read_manifest(bundle: Path, code: ErrorCode) -> Manifest:
    """The manifest of an unpacked bundle.

    Raises:
        JobError: it is missing or not a manifest.
    """
    try:
        return Manifest.model_validate_json((bundle / MANIFEST).read_bytes())
    except (OSError, ValidationError) as error:
        raise JobError(code, f"the bundle's manifest cannot be read: {error}") from error
