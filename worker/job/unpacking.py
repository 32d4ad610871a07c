"""Unpacks a bundle in a job's own folder, as hostile input inside the sandbox."""

from __future__ import annotations

import tarfile
from pathlib import Path

from pydantic import ValidationError

from bessemer.bundle.archive import BundleArchive, open_archive
from bessemer.bundle.manifest import MANIFEST, Manifest
from bessemer.contract.problem import ErrorCode
from worker.errors import JobError, failure_of
from worker.job.folder import JobFolder


def unpacked(folder: JobFolder, code: ErrorCode) -> Path:
    """The folder of the unpacked bundle, which has only files and folders.

    Raises:
        JobError: the bundle is not an archive, has other entries, or does not fit in the job's folder.
    """
    bundle = folder.scratch / "bundle"
    try:
        with open_archive(folder.model) as archive:
            for member in archive:
                _write(archive, _checked(member, bundle), bundle)
    except Exception as error:  # tarfile raises many kinds for damaged bytes
        raise failure_of(code, error, f"the bundle cannot be unpacked: {error}") from error
    return bundle


def _checked(member: tarfile.TarInfo, bundle: Path) -> tarfile.TarInfo:
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise tarfile.SpecialFileError(member)
    return tarfile.data_filter(member, str(bundle))


def _write(archive: BundleArchive, member: tarfile.TarInfo, bundle: Path) -> None:
    path = bundle / member.name
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    archive.extract(member, path)
    path.chmod(member.mode)


def read_manifest(bundle: Path, code: ErrorCode) -> Manifest:
    """The manifest of an unpacked bundle.

    Raises:
        JobError: it is missing or not a manifest.
    """
    try:
        return Manifest.model_validate_json((bundle / MANIFEST).read_bytes())
    except (OSError, ValidationError) as error:
        raise JobError(code, f"the bundle's manifest cannot be read: {error}") from error
