"""What a shared library asks of the dynamic loader, read from its ELF dynamic section.

The layout is that of the System V ABI, 64-bit little-endian: the file header, the program headers, and in
``PT_DYNAMIC`` pairs of (tag, value) whose strings lie in the table at ``DT_STRTAB``.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_RPATH, _DT_RUNPATH = 1, 5, 10, 15, 29


@dataclass(frozen=True)
class Dependencies:
    """The libraries that a library names, and where it wants them looked for."""

    needed: tuple[str, ...]
    search_path: str | None


class _Segment(NamedTuple):
    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    file_bytes: int
    memory_bytes: int
    align: int


def read_dependencies(path: Path) -> Dependencies:
    """Read ``DT_NEEDED`` and ``DT_RUNPATH`` (or ``DT_RPATH``).

    Raises:
        ValueError: the file is no 64-bit little-endian ELF file.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        segments = _segments(file)
        entries = _dynamic_entries(file, segments)
        strings = _string_table(file, segments, entries)
    search = [_text(strings, value) for tag, value in entries if tag in (_DT_RPATH, _DT_RUNPATH)]
    return Dependencies(
        needed=tuple(_text(strings, value) for tag, value in entries if tag == _DT_NEEDED),
        search_path=search[-1] if search else None,
    )


def _segments(file: BinaryIO) -> tuple[_Segment, ...]:
    raw = file.read(_HEADER.size)
    if len(raw) < _HEADER.size or not raw.startswith(_ELF64_LITTLE):
        raise ValueError("no 64-bit little-endian ELF file")
    header = _HEADER.unpack(raw)
    offset, entry_bytes, count = header[5], header[9], header[10]
    file.seek(offset)
    table = file.read(entry_bytes * count)
    if entry_bytes != _PROGRAM_HEADER.size or len(table) != entry_bytes * count:
        raise ValueError("the table of program headers is damaged")
    return tuple(_Segment(*fields) for fields in _PROGRAM_HEADER.iter_unpack(table))


def _dynamic_entries(file: BinaryIO, segments: tuple[_Segment, ...]) -> tuple[tuple[int, int], ...]:
    for segment in segments:
        if segment.kind == _PT_DYNAMIC:
            file.seek(segment.offset)
            raw = file.read(segment.file_bytes)
            return tuple(_DYNAMIC.iter_unpack(raw[: len(raw) - len(raw) % _DYNAMIC.size]))
    return ()


def _string_table(
    file: BinaryIO, segments: tuple[_Segment, ...], entries: tuple[tuple[int, int], ...]
) -> bytes:
    values = dict(entries)
    if _DT_STRTAB not in values:
        return b""
    file.seek(_file_offset(segments, values[_DT_STRTAB]))
    return file.read(values.get(_DT_STRSZ, 0))


def _file_offset(segments: tuple[_Segment, ...], address: int) -> int:
    for segment in segments:
        if segment.kind == _PT_LOAD and 0 <= address - segment.address < segment.file_bytes:
            return segment.offset + address - segment.address
    raise ValueError("the table of strings lies outside the file")


def _text(strings: bytes, start: int) -> str:
    return strings[start:].split(b"\0", 1)[0].decode("utf-8", "replace")
