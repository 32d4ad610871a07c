"""Writes an ELF object that holds only data, as an assembler would, but without copying the data.

An assembler reads the data into memory and grows that step by step: for half a gigabyte of parameters, it
takes longer than compiling all kernels of the model.

::

    header                      of the class, machine and flags of another object for the same target
    the section of the data     aligned to pages
    .symtab .strtab .shstrtab   one symbol, global in the library and hidden outside
    .note.GNU-stack             empty: no code here needs an executable stack
    section headers
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MAGIC = b"\x7fELF\x02\x01"
"""Of 64 bits, the least significant byte first, as on all targets."""

_RELOCATABLE, _PROGBITS, _SYMTAB, _STRTAB, _ALLOCATED = 1, 1, 2, 3, 2
_GLOBAL_OBJECT, _HIDDEN = 1 << 4 | 1, 2
_OTHER_NAMES = (b".symtab", b".strtab", b".shstrtab", b".note.GNU-stack")


@dataclass(frozen=True)
class Hole:
    """Data that is written later. Until then it is zeros that take no space."""

    size_bytes: int


Chunk = memoryview | bytes | Hole


class Place(NamedTuple):
    """Where a section lies in a file."""

    offset: int
    size_bytes: int


@dataclass(frozen=True)
class DataSection:
    """A section of read-only data: its name, the symbol of its first byte, and its alignment in bytes."""

    name: str
    symbol: str
    alignment: int


def write_data_object(path: Path, like: Path, section: DataSection, chunks: Iterable[Chunk]) -> None:
    """Write an object whose only symbol names its read-only data.

    Args:
        path: the object to write.
        like: an object for the same target.
        section: where the data lies.
        chunks: the data.

    Raises:
        ValueError: ``like`` is not an ELF object of 64 bits.
    """
    with like.open("rb") as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size or not head.startswith(_MAGIC):
        raise ValueError(f"{like} is not an ELF object of 64 bits")
    ident, _, machine, version, _, _, _, flags, *_ = _HEADER.unpack(head)
    all_names = (b"", section.name.encode(), *_OTHER_NAMES)
    offsets = tuple(accumulate((len(name) + 1 for name in all_names), initial=0))
    names = b"".join(name + b"\0" for name in all_names)
    strings = b"\0" + section.symbol.encode() + b"\0"
    with path.open("wb") as file:
        data = _written(file, chunks, section.alignment)
        defined = _SYMBOL.pack(1, _GLOBAL_OBJECT, _HIDDEN, 1, 0, data[1])
        symbols = _written(file, (bytes(_SYMBOL.size), defined), 8)
        sections = (
            bytes(_SECTION.size),
            _section(offsets[1], _PROGBITS, data, align=section.alignment, flags=_ALLOCATED),
            _section(offsets[2], _SYMTAB, symbols, align=8, link=3, info=1, entry=_SYMBOL.size),
            _section(offsets[3], _STRTAB, _written(file, (strings,), 1)),
            _section(offsets[4], _STRTAB, _written(file, (names,), 1)),
            _section(offsets[5], _PROGBITS, (file.tell(), 0)),
        )
        first, _ = _written(file, sections, 8)
        sizes = (_HEADER.size, 0, 0, _SECTION.size, len(sections), all_names.index(b".shstrtab"))
        file.seek(0)
        file.write(_HEADER.pack(ident, _RELOCATABLE, machine, version, 0, 0, first, flags, *sizes))


def section_place(file: BinaryIO, name: str) -> Place | None:
    """Where a section lies in an open file; None if that is not an ELF file or lacks it."""
    try:
        section = ELFFile(file).get_section_by_name(name)
    except ELFError:
        return None
    return None if section is None else Place(int(section["sh_offset"]), int(section["sh_size"]))


def _written(file: BinaryIO, chunks: Iterable[Chunk], align: int) -> tuple[int, int]:
    """Append chunks at a multiple of ``align`` after the header; returns the first byte and the size."""
    start = max(file.tell(), _HEADER.size)
    start += -start % align
    file.seek(start)
    for chunk in chunks:
        if isinstance(chunk, Hole):
            file.seek(chunk.size_bytes, os.SEEK_CUR)
        else:
            file.write(chunk)
    return start, file.tell() - start


def _section(
    name: int,
    kind: int,
    place: tuple[int, int],
    align: int = 1,
    flags: int = 0,
    link: int = 0,
    info: int = 0,
    entry: int = 0,
) -> bytes:
    return _SECTION.pack(name, kind, flags, 0, *place, link, info, align, entry)
