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


def unpacked(folder: JobFolder, code: ErrorCode) -> Path:
    """The folder of the unpacked bundle; no link in it leads outside.

    Raises:
        JobError: the bundle is not an archive, or does not fit in the job's folder.
    """
    bundle = folder.scratch / "bundle"
    try:
        with (
            folder.model.open("rb") as packed,
            zstandard.ZstdDecompressor().stream_reader(packed) as stream,
            tarfile.open(fileobj=stream, mode="r|") as archive,
        ):
            archive.extractall(bundle, filter="data")
    except (tarfile.TarError, zstandard.ZstdError, EOFError, OSError) as error:
        raise failure_of(code, error, f"the bundle cannot be unpacked: {error}") from error
    return bundle


def read_manifest(bundle: Path, code: ErrorCode) -> Manifest:
    """The manifest of an unpacked bundle.

    Raises:
        JobError: it is missing or not a manifest.
    """
    try:
        return Manifest.model_validate_json((bundle / MANIFEST).read_bytes())
    except (OSError, ValidationError) as error:
        raise JobError(code, f"the bundle's manifest cannot be read: {error}") from error
