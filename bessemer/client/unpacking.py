"""Unpack bundles. The archive comes from the network, so treat it as hostile input."""

import hashlib
import re
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bessemer.bundle.archive import BundleArchive, open_archive
from bessemer.bundle.manifest import CHECKSUMS, MANIFEST, PROVENANCE, BundlePath, Manifest
from bessemer.errors import BundleError

CHECKSUM_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_PATH: TypeAdapter[str] = TypeAdapter(BundlePath)


@dataclass(frozen=True)
class Caps:
    """Limits on an unpacked bundle."""

    files: int = 4096
    total_bytes: int = 32 << 30


def unpack(archive: Path, directory: Path, caps: Caps = Caps()) -> Path:
    """Unpack ``bundle.tar.zst`` and check every file. Existing files of the same names are replaced.

    The directory is created if missing, and unchanged if the bundle is rejected.

    Raises:
        BundleError: the archive is damaged or too large, contains a link, a device or an unsafe path, does
            not match its checksums, or cannot be written.
    """
    # an existing directory may be on another file system than its parent, or its parent may not be writable
    parent = directory.resolve() if directory.is_dir() else directory.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bessemer-", dir=parent) as name:
        folder = Path(name)
        try:
            digests = _extract(archive, folder, caps)
        except BundleError:
            raise
        except Exception as error:  # tarfile raises many kinds for damaged bytes
            raise BundleError(f"{archive.name} cannot be unpacked: {error}") from error
        _check_digests(folder, digests)
        _move_into(folder, directory)
    return directory


def check_bundle(folder: Path) -> Manifest:
    """Check an unpacked bundle against its lists. Raises ``BundleError`` unless every file matches."""
    return _check_digests(folder, {path: digest_of(folder / path) for path in files_of(folder)})


def _check_digests(folder: Path, digests: Mapping[str, str]) -> Manifest:
    actual = {path: digests[path] for path in digests.keys() - PROVENANCE - {CHECKSUMS}}
    compare_digests(CHECKSUMS, _read_checksums(folder), actual)
    manifest = _read_manifest(folder)
    listed = {file.path: file.digest for file in manifest.files}
    compare_digests(MANIFEST, listed, {path: actual[path] for path in actual if path != MANIFEST})
    return manifest


def _extract(archive: Path, folder: Path, caps: Caps) -> dict[str, str]:
    """Write the files of an archive, and return the digest of each."""
    digests: dict[str, str] = {}
    with open_archive(archive) as bundle:
        total, seen = 0, set[str]()
        for member in bundle:
            path = _safe_path(member)
            total += member.size
            if path in seen:
                raise BundleError(f"the bundle contains {path} twice")
            if len(seen) >= caps.files or total > caps.total_bytes:
                raise BundleError(f"the bundle is larger than {caps.total_bytes} bytes or {caps.files} files")
            seen.add(path)
            if member.isdir():
                (folder / path).mkdir(parents=True, exist_ok=True)
            else:
                digests[path] = _write_file(bundle, member, folder / path)
    return digests


def _safe_path(member: tarfile.TarInfo) -> str:
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise BundleError(f"the bundle contains '{member.name}', which is neither a file nor a folder")
    if member.size < 0:
        raise BundleError(f"the bundle contains '{member.name}' of {member.size} bytes")
    try:
        return _PATH.validate_python(member.name.removeprefix("./"))
    except ValidationError:
        raise BundleError(f"the bundle contains the unsafe path '{member.name}'") from None


def _write_file(bundle: BundleArchive, member: tarfile.TarInfo, path: Path) -> str:
    digest = bundle.extract(member, path)
    if member.mode & 0o100:
        path.chmod(0o755)
    return digest


def _move_into(folder: Path, directory: Path) -> None:
    for source in _files(folder):
        destination = directory / source.relative_to(folder)
        destination.parent.mkdir(parents=True, exist_ok=True)
        source.replace(destination)


def _read_checksums(folder: Path) -> dict[str, str]:
    try:
        text = (folder / CHECKSUMS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"the bundle's {CHECKSUMS} cannot be read: {error}") from error
    return dict(_checksum(line) for line in text.splitlines() if line)


def _checksum(line: str) -> tuple[str, str]:
    match = CHECKSUM_LINE.fullmatch(line)
    if match is None:
        raise BundleError(f"{CHECKSUMS} has a malformed line: {line[:80]}")
    return match[2].removeprefix("./"), match[1]


def _read_manifest(folder: Path) -> Manifest:
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError) as error:
        raise BundleError(f"this version cannot read the bundle's {MANIFEST}: {error}") from error


def compare_digests(list_name: str, listed: dict[str, str], actual: dict[str, str]) -> None:
    """Raise ``BundleError`` unless the files are those of a list, with the same digests."""
    for path in sorted(listed.keys() | actual.keys()):
        if path not in actual:
            raise BundleError(f"{path} is listed in {list_name} but missing")
        if path not in listed:
            raise BundleError(f"{path} is not listed in {list_name}")
        if listed[path] != actual[path]:
            raise BundleError(f"{path} differs from its checksum in {list_name}")


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_of(folder: Path) -> set[str]:
    """The paths of a folder's files, relative to it."""
    return {path.relative_to(folder).as_posix() for path in _files(folder)}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
