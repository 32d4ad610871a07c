"""Where a library holds large parameters, so that loading it need not read them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from bessemer.bundle.manifest import HeldParameters
from worker.compiler.codegen.standalone.sources import MIN_HUGE_BYTES, PARAMETERS_SECTION

_CHUNK_BYTES = 1 << 20


def held_parameters(library: Path) -> HeldParameters | None:
    """The place of the parameters in an ELF file, and the digest of the rest; None if they are small.

    Raises:
        OSError: the library cannot be read.
    """
    with library.open("rb") as file:
        try:
            section = ELFFile(file).get_section_by_name(PARAMETERS_SECTION)
        except ELFError:
            return None
        if section is None or section["sh_size"] < MIN_HUGE_BYTES:
            return None
        offset, size = int(section["sh_offset"]), int(section["sh_size"])
        return HeldParameters(offset=offset, size_bytes=size, rest_digest=_digest_around(file, offset, size))


def _digest_around(file: BinaryIO, offset: int, size: int) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    digest.update(file.read(offset))
    file.seek(offset + size)
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
