"""Unpacks a bundle in a job's own folder, as hostile input inside the sandbox."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from bessemer.bundle.archive import BundleArchive, open_archive
from bessemer.bundle.manifest import MANIFEST, Manifest
from bessemer.contract.problem import ErrorCode
from worker.errors import JobError, failure_of
from worker.job.folder import JobFolder


class Unpacked(NamedTuple):
    """The folder of an unpacked bundle, which has only files and folders, and the SHA-256 of each file."""

    bundle: Path
    digests: Mapping[str, str]


def unpacked(folder: JobFolder, code: ErrorCode) -> Unpacked:
    """Unpack the bundle that is a job's model.

    Raises:
        JobError: the bundle is not an archive, has other entries, or does not fit in the job's folder.
    """
    bundle, digests = folder.scratch / "bundle", dict[str, str]()
    try:
        with open_archive(folder.model) as archive:
            for member in archive:
                safe = _checked(member, bundle)
                path = bundle / safe.name
                if safe.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                else:
                    digests[path.relative_to(bundle).as_posix()] = _write(archive, safe, path)
    except Exception as error:  # tarfile raises many kinds for damaged bytes
        raise failure_of(code, error, f"the bundle cannot be unpacked: {error}") from error
    return Unpacked(bundle, digests)


def _checked(member: tarfile.TarInfo, bundle: Path) -> tarfile.TarInfo:
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise tarfile.SpecialFileError(member)
    return tarfile.data_filter(member, str(bundle))


def _write(archive: BundleArchive, member: tarfile.TarInfo, path: Path) -> str:
    digest = archive.extract(member, path)
    path.chmod(member.mode)
    return digest


def read_manifest(bundle: Path, code: ErrorCode) -> Manifest:
    """The manifest of an unpacked bundle.

    Raises:
        JobError: it is missing or not a manifest.
    """
    try:
        return Manifest.model_validate_json((bundle / MANIFEST).read_bytes())
    except (OSError, ValidationError) as error:
        raise JobError(code, f"the bundle's manifest cannot be read: {error}") from error
