"""Where a library holds large parameters, so that loading it need not read them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

from bessemer.bundle.manifest import HeldParameters
from worker.compiler.codegen.standalone.elf_object import section_place
from worker.compiler.codegen.standalone.sources import MIN_HUGE_BYTES, PARAMETERS_SECTION

_CHUNK_BYTES = 1 << 20


def held_parameters(library: Path) -> HeldParameters | None:
    """The place of the parameters in an ELF file, and the digest of the rest; None if they are small.

    Raises:
        OSError: the library cannot be read.
    """
    with library.open("rb") as file:
        place = section_place(file, PARAMETERS_SECTION)
        if place is None or place.size_bytes < MIN_HUGE_BYTES:
            return None
        rest = _digest_around(file, *place)
        return HeldParameters(offset=place.offset, size_bytes=place.size_bytes, rest_digest=rest)


def _digest_around(file: BinaryIO, offset: int, size: int) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    digest.update(file.read(offset))
    file.seek(offset + size)
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
