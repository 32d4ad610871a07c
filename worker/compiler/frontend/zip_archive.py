"""Checks a zip archive before torch opens it.

torch stores tensors uncompressed and deflates only TorchScript's source. An archive that expands hugely,
names paths outside itself, or describes an entry in two different ways did not come from torch.
"""

import struct
import zipfile
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from bessemer.contract.problem import ErrorCode
from worker.errors import JobError

MAX_ENTRIES = 100_000
MAX_DIRECTORY_BYTES = 64 << 20
MAX_EXPANSION = 16
"""Maximum expanded bytes per archive byte; TorchScript's source reaches about 10."""
EXPANSION_SLACK_BYTES = 16 << 20

LOCAL_HEADER = struct.Struct("<4s5H3L2H")
END_OF_DIRECTORY = struct.Struct("<4s4H2LH")
END_SIGNATURE = b"PK\x05\x06"
CHUNK_BYTES = 1 << 20
ENCRYPTED = 0x1
DOS_FOLDER = 0x10
"""torch reads nothing from an entry with this attribute, and returns uninitialized memory."""
CUT_OFF = "its end is missing, the file may be truncated"


@dataclass(frozen=True)
class Archive:
    """The entry names of an archive that passed the checks, without the common root folder."""

    names: frozenset[str]

    def has_folder(self, folder: str) -> bool:
        """Whether the archive has an entry in ``folder``."""
        return any(name.startswith(f"{folder}/") for name in self.names)


def check_archive(path: Path) -> Archive:
    """Check a zip archive without expanding more bytes than its directory declares.

    Raises:
        JobError: ``model-damaged`` if it cannot be read or a checksum fails, ``model-unsafe-archive`` if its
            structure is one that torch never writes.
    """
    with path.open("rb") as file:
        try:
            _check_directory_size(file)
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
                _check_whole(entries)
                _check_names(entries)
                _check_expansion(entries, path.stat().st_size)
                _check_layout(file, entries, archive.start_dir)
                _check_content(archive, entries)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            OverflowError,
            ValueError,
            struct.error,
            NotImplementedError,
        ) as error:
            raise JobError(ErrorCode.MODEL_DAMAGED, f"the zip archive cannot be read: {error}") from error
    return _strip_root([entry.filename for entry in entries])


def read_entry(path: Path, name: str, limit_bytes: int = 1 << 20) -> bytes | None:
    """The first bytes of an entry of a checked archive, by its name without the root folder.

    Returns:
        At most ``limit_bytes`` bytes, or None if the entry does not exist.
    """
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if name in (entry.filename, entry.filename.partition("/")[2]):
                return _start_of(archive, entry, limit_bytes)
    return None


def read_folder(path: Path, folder: str, limit_bytes: int = 16 << 20) -> dict[str, bytes]:
    """The first bytes of each entry in a folder of a checked archive, by name without the root folder."""
    with zipfile.ZipFile(path) as archive:
        named = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
        return {
            name: _start_of(archive, entry, limit_bytes)
            for name, entry in named.items()
            if name.startswith(f"{folder}/")
        }


def _start_of(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limit_bytes: int) -> bytes:
    if entry.CRC == 0:
        del entry.CRC  # so that zipfile does not compare it
    with archive.open(entry) as content:
        return content.read(limit_bytes)


def _unsafe(detail: str) -> JobError:
    return JobError(ErrorCode.MODEL_UNSAFE_ARCHIVE, detail)


def _check_whole(entries: list[zipfile.ZipInfo]) -> None:
    """Refuse an archive that starts later: a truncated .pt2 ends in the nested archive of sample inputs."""
    if not entries:
        raise zipfile.BadZipFile("it is empty")
    if min(entry.header_offset for entry in entries) > 0:
        raise zipfile.BadZipFile(CUT_OFF)


def _check_directory_size(file: BinaryIO) -> None:
    size = file.seek(0, 2)
    file.seek(max(0, size - END_OF_DIRECTORY.size - 0xFFFF))
    tail = file.read()
    start = tail.rfind(END_SIGNATURE)
    if start < 0 or len(tail) - start < END_OF_DIRECTORY.size:
        raise zipfile.BadZipFile(CUT_OFF)
    directory_bytes = END_OF_DIRECTORY.unpack_from(tail, start)[5]
    if MAX_DIRECTORY_BYTES < directory_bytes < 0xFFFFFFFF:
        raise _unsafe(f"the archive's directory has {directory_bytes} bytes, more than {MAX_DIRECTORY_BYTES}")


def _check_names(entries: list[zipfile.ZipInfo]) -> None:
    if len(entries) > MAX_ENTRIES:
        raise _unsafe(f"it has {len(entries)} entries, more than {MAX_ENTRIES}")
    seen: set[str] = set()
    for entry in entries:
        if not entry.filename:
            raise _unsafe("it has an entry without a name")
        path = PurePosixPath(entry.orig_filename)
        if path.is_absolute() or ".." in path.parts or set("\\\0") & set(entry.orig_filename):
            raise _unsafe(f"entry {entry.orig_filename[:100]!r} points outside the archive")
        if entry.filename in seen:
            raise _unsafe(f"entry {entry.filename[:100]!r} occurs twice")
        seen.add(entry.filename)


def _check_expansion(entries: list[zipfile.ZipInfo], archive_bytes: int) -> None:
    expanded = sum(entry.file_size for entry in entries)
    if expanded > archive_bytes * MAX_EXPANSION + EXPANSION_SLACK_BYTES:
        raise _unsafe(f"its {archive_bytes} bytes would expand to {expanded}")
    for entry in entries:
        if entry.flag_bits & ENCRYPTED:
            raise _unsafe(f"entry {entry.filename[:100]!r} is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _unsafe(f"entry {entry.filename[:100]!r} uses compression method {entry.compress_type}")
        if entry.file_size and (entry.is_dir() or entry.external_attr & DOS_FOLDER):
            raise _unsafe(f"entry {entry.filename[:100]!r} is a folder with content")
        if entry.compress_type == zipfile.ZIP_STORED and entry.file_size != entry.compress_size:
            raise _unsafe(f"entry {entry.filename[:100]!r} is uncompressed but declares two sizes")


def _check_layout(file: BinaryIO, entries: list[zipfile.ZipInfo], directory_start: int) -> None:
    """Check that each entry has a header of the same name, and that no two entries overlap."""
    spans = sorted((_span(file, entry) for entry in entries), key=lambda span: span[0])
    for (_, end), (start, _) in pairwise([*spans, (directory_start, directory_start)]):
        if end > start:
            raise _unsafe("entries overlap each other or the directory")


def _span(file: BinaryIO, entry: zipfile.ZipInfo) -> tuple[int, int]:
    file.seek(entry.header_offset)
    header = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    if header[0] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"entry {entry.filename[:100]!r} has no header at its offset")
    name_bytes, extra_bytes = header[9], header[10]
    name = file.read(name_bytes).decode("utf-8", "replace")
    if name != entry.orig_filename:
        raise _unsafe(f"entry {entry.filename[:100]!r} is named {name[:100]!r} in its own header")
    start = entry.header_offset
    return start, start + LOCAL_HEADER.size + name_bytes + extra_bytes + entry.compress_size


def _check_content(archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo]) -> None:
    """Expand every entry and discard it, to check its length and checksum.

    ``torch.serialization.set_crc32_options(False)`` writes zero checksums, which are not compared.
    """
    for entry in entries:
        if entry.CRC == 0 and entry.compress_type == zipfile.ZIP_STORED:
            continue
        length = 0
        with archive.open(entry) as content:
            while chunk := content.read(CHUNK_BYTES):
                length += len(chunk)
        if length != entry.file_size:
            raise _unsafe(
                f"entry {entry.filename[:100]!r} has {length} bytes, but declares {entry.file_size}"
            )


def _strip_root(names: list[str]) -> Archive:
    roots = {name.partition("/")[0] for name in names}
    if len(roots) == 1 and all("/" in name for name in names):
        root = f"{roots.pop()}/"
        return Archive(frozenset(name.removeprefix(root) for name in names))
    return Archive(frozenset(names))
