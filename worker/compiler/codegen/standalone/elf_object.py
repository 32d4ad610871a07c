"""Writes ELF objects that hold only data, and inserts data into linked libraries, without copying the data.

An assembler reads the data into memory and grows that step by step: for half a gigabyte of parameters, it
takes longer than compiling all kernels of the model.

::

    header                      of the class, machine and flags of another object for the same target
    the section of the data     aligned to pages
    .symtab .strtab .shstrtab   one symbol, global in the library and hidden outside
    .note.GNU-stack             empty: no code here needs an executable stack
    section headers

A linker copies data page by page. So an object can also reserve a section, which takes no space until its
data is inserted into the linked library. A linker script makes it the last section in memory::

    linked                                   with the data

    code and other sections                  code and other sections
    the reserved section: no bytes           the data
    .symtab, …, section headers              .symtab, …, section headers, at new offsets
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MAGIC = b"\x7fELF\x02\x01"
"""64-bit and little-endian, as on all targets."""

_RELOCATABLE, _PROGBITS, _SYMTAB, _STRTAB, _NOBITS, _ALLOCATED = 1, 1, 2, 3, 8, 2
_GLOBAL_OBJECT, _HIDDEN = 1 << 4 | 1, 2
_OTHER_NAMES = (b".symtab", b".strtab", b".shstrtab", b".note.GNU-stack")
_WORD32, _WORD64 = struct.Struct("<I"), struct.Struct("<Q")
_TABLE_AT = 40
"""Where the file's header holds the offset of the section headers."""
_TABLE_ALIGNMENT = 8
_TYPE_AT, _SECTION_OFFSET_AT = 4, 24
"""Where a section header holds the section's type, and its offset in the file."""
_SEGMENT_OFFSET_AT, _FILE_SIZE_AT = 8, 32
"""Where a program header holds its segment's offset in the file, and how many bytes are there."""
_PART_BYTES = 4 << 20
"""Linux caches data in huge pages if it is written in large parts, as it caches a user's copy of a bundle."""


@dataclass(frozen=True)
class Reserved:
    """Room for data that ``insert_data`` writes into the linked library."""

    size_bytes: int


Chunk = memoryview | bytes


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


def write_data_object(
    path: Path, like: Path, section: DataSection, content: Iterable[Chunk] | Reserved
) -> None:
    """Write an object whose only symbol names its read-only data.

    Args:
        path: the object to write.
        like: an object for the same target.
        section: where the data lies.
        content: the data, or the room to reserve for it.

    Raises:
        ValueError: ``like`` is not a 64-bit ELF object.
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
        if isinstance(content, Reserved):
            kind, data = _NOBITS, (file.seek(_HEADER.size), content.size_bytes)
        else:
            kind, data = _PROGBITS, _written(file, content, section.alignment)
        defined = _SYMBOL.pack(1, _GLOBAL_OBJECT, _HIDDEN, 1, 0, data[1])
        symbols = _written(file, (bytes(_SYMBOL.size), defined), 8)
        sections = (
            bytes(_SECTION.size),
            _section(offsets[1], kind, data, align=section.alignment, flags=_ALLOCATED),
            _section(offsets[2], _SYMTAB, symbols, align=8, link=3, info=1, entry=_SYMBOL.size),
            _section(offsets[3], _STRTAB, _written(file, (strings,), 1)),
            _section(offsets[4], _STRTAB, _written(file, (names,), 1)),
            _section(offsets[5], _PROGBITS, (file.tell(), 0)),
        )
        first, _ = _written(file, sections, 8)
        sizes = (_HEADER.size, 0, 0, _SECTION.size, len(sections), all_names.index(b".shstrtab"))
        file.seek(0)
        file.write(_HEADER.pack(ident, _RELOCATABLE, machine, version, 0, 0, first, flags, *sizes))


def write_placing_script(folder: Path, section: str) -> Path:
    """Write a linker script that makes a section the last in memory, and changes nothing else."""
    script = folder / f"{section.strip('.')}.ld"
    script.write_text(f"SECTIONS {{ {section} : {{ *({section}) }} }} INSERT AFTER .bss;\n")
    return script


def insert_data(library: Path, name: str, content: Iterable[Chunk]) -> None:
    """Write the data of a reserved section into a linked library, whose last section in memory it is.

    Args:
        library: the library, which is replaced.
        name: the section.
        content: the data, as much as was reserved.

    Raises:
        ValueError: the section is not reserved, or not the last in memory, or has another size.
    """
    copy = library.with_name(f"{library.name}.copy")
    with library.open("rb") as linked, copy.open("wb", buffering=_PART_BYTES) as file:
        elf = ELFFile(linked)
        reserved = _reserved_section(elf, name)
        start, size = int(reserved["sh_offset"]), int(reserved["sh_size"])
        linked.seek(0)
        file.write(linked.read(start))
        file.writelines(content)
        if file.tell() - start != size:
            raise ValueError(f"{name} has room for {size} bytes, not {file.tell() - start}")
        moved_by = size + -size % _TABLE_ALIGNMENT
        file.seek(start + moved_by)
        shutil.copyfileobj(linked, file, _PART_BYTES)
        for place, value in _changed_headers(elf, reserved, moved_by):
            file.seek(place)
            file.write(value)
    copy.chmod(library.stat().st_mode)
    copy.replace(library)


def _reserved_section(elf: ELFFile, name: str) -> Section:
    section = elf.get_section_by_name(name)
    if section is None or section["sh_type"] != "SHT_NOBITS":
        raise ValueError(f"{name} is not a reserved section")
    for other in elf.iter_sections():
        if other["sh_flags"] & _ALLOCATED and other["sh_addr"] > section["sh_addr"]:
            raise ValueError(f"{other.name} follows {name} in memory")
    return section


def _changed_headers(elf: ELFFile, reserved: Section, moved_by: int) -> Iterator[tuple[int, bytes]]:
    """The places and bytes of what changes in a file's headers when a section gets its data."""
    start, table = reserved["sh_offset"], elf["e_shoff"] + moved_by
    yield _TABLE_AT, _WORD64.pack(table)
    for index, section in enumerate(elf.iter_sections()):
        header = table + index * _SECTION.size
        if section.name == reserved.name:
            yield header + _TYPE_AT, _WORD32.pack(_PROGBITS)
        elif section["sh_offset"] >= start and not section["sh_flags"] & _ALLOCATED:
            yield header + _SECTION_OFFSET_AT, _WORD64.pack(section["sh_offset"] + moved_by)
    for index, segment in enumerate(elf.iter_segments()):
        header = elf["e_phoff"] + index * elf["e_phentsize"]
        if segment["p_type"] == "PT_LOAD" and segment["p_vaddr"] == reserved["sh_addr"]:
            yield header + _FILE_SIZE_AT, _WORD64.pack(reserved["sh_size"])
        elif segment["p_offset"] >= start and segment["p_filesz"]:
            yield header + _SEGMENT_OFFSET_AT, _WORD64.pack(segment["p_offset"] + moved_by)


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
    file.writelines(chunks)
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
