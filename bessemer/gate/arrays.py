"""Read NumPy archives without NumPy, because a pipeline installs only the client."""

import ast
import re
import shutil
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO

MAGIC = b"\x93NUMPY"
MAX_HEADER_BYTES = 1 << 16
CHUNK_ELEMENTS = 1 << 16
BFLOAT16 = "<u2"
"""The bits of bfloat16. No output is a real array of uint16."""

FORMATS = {
    "<f2": "e",
    "<f4": "f",
    "<f8": "d",
    "|i1": "b",
    "<i2": "h",
    "<i4": "i",
    "<i8": "q",
    "|u1": "B",
    "|b1": "?",
    "<c8": "ff",
    "<c16": "dd",
    BFLOAT16: "H",
}
"""The ``struct`` format of each dtype; complex numbers are two floats."""


class ArraysError(ValueError):
    """A file is not an archive of arrays that this module can read."""


@dataclass(frozen=True)
class Array:
    """One array of an open archive, read in chunks; ``member`` is its file."""

    archive: zipfile.ZipFile
    member: str

    def header(self) -> "Header":
        """Read the dtype and the shape."""
        with _opened(self.archive, self.member) as file:
            return _read_header(file, self.member)

    def chunks(self) -> Iterator[tuple[float, ...]]:
        """Read the elements in C order."""
        with _opened(self.archive, self.member) as file:
            header = _read_header(file, self.member)
            left = prod(header.shape)
            while left > 0:
                count = min(left, CHUNK_ELEMENTS)
                yield header.unpack(_exactly(file, count * header.item_bytes, self.member))
                left -= count


@dataclass(frozen=True)
class Header:
    """The dtype and the shape of an array."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def is_float(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return FORMATS[self.dtype][0] in "efd" or self.dtype == BFLOAT16

    @property
    def is_complex(self) -> bool:
        """Whether the elements are complex numbers."""
        return len(FORMATS[self.dtype]) == 2

    @property
    def item_bytes(self) -> int:
        """The size of an element."""
        return struct.calcsize(FORMATS[self.dtype])

    def unpack(self, data: bytes) -> tuple[float, ...]:
        """Decode elements; the parts of a complex number follow each other."""
        if self.dtype != BFLOAT16:
            letters = FORMATS[self.dtype]
            return struct.unpack(f"<{len(data) // self.item_bytes * len(letters)}{letters[0]}", data)
        widened = bytearray(2 * len(data))
        widened[2::4], widened[3::4] = data[0::2], data[1::2]
        return struct.unpack(f"<{len(data) // 2}f", widened)


@contextmanager
def reading(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive. Raises ``ArraysError`` if it cannot be read."""
    with _naming(path):
        archive = zipfile.ZipFile(path)
    with archive:
        yield archive


def arrays_of(archive: zipfile.ZipFile, folder: str) -> dict[str, Array]:
    """The arrays whose names start with ``folder``, without it."""
    pattern = re.compile(rf"{re.escape(folder)}(?P<name>[^/]+)\.npy")
    matches = filter(None, map(pattern.fullmatch, archive.namelist()))
    return {match["name"]: Array(archive, match[0]) for match in matches}


def copy_arrays(source: Path, folder: str, target: Path) -> None:
    """Copy the arrays of a folder to a new archive. Raises ``ArraysError`` if the folder has none."""
    with reading(source) as archive, zipfile.ZipFile(target, "w") as copy:
        found = arrays_of(archive, folder)
        if not found:
            raise ArraysError(f"{source} has no array whose name starts with '{folder}'")
        for name, array in found.items():
            with (
                _opened(archive, array.member) as old,
                copy.open(f"{name}.npy", "w", force_zip64=True) as new,
            ):
                shutil.copyfileobj(old, new)


@contextmanager
def _opened(archive: zipfile.ZipFile, member: str) -> Iterator[IO[bytes]]:
    with _naming(archive.filename), archive.open(member) as file:
        yield file


@contextmanager
def _naming(path: object) -> Iterator[None]:
    """Add the archive's path to errors, because a comparison reads two archives."""
    try:
        yield
    except ArraysError:
        raise
    except Exception as error:  # zipfile and its decompressors raise many kinds for damaged bytes
        raise ArraysError(f"{path} cannot be read as an .npz file: {error}") from error


def _read_header(file: IO[bytes], member: str) -> Header:
    start = _exactly(file, len(MAGIC) + 2, member)
    if not start.startswith(MAGIC):
        raise ArraysError(f"{member} is not a .npy file")
    size_format = "<H" if start[-2] == 1 else "<I"
    (size,) = struct.unpack(size_format, _exactly(file, struct.calcsize(size_format), member))
    if size > MAX_HEADER_BYTES:
        raise ArraysError(f"{member} has a header of {size} bytes")
    return _parse_header(_exactly(file, size, member), member)


def _parse_header(text: bytes, member: str) -> Header:
    try:
        fields = ast.literal_eval(text.decode("latin-1").strip())
        dtype, in_fortran_order = fields["descr"], fields["fortran_order"]
        shape = tuple(int(size) for size in fields["shape"])
    except (
        ArithmeticError,
        LookupError,
        MemoryError,
        RecursionError,
        SyntaxError,
        TypeError,
        ValueError,
    ) as error:
        raise ArraysError(f"{member} has a header that cannot be read: {error}") from error
    if not isinstance(dtype, str) or dtype not in FORMATS:
        raise ArraysError(
            f"{member} has the unsupported dtype {str(dtype)[:64]!r}; supported: {', '.join(FORMATS)}"
        )
    if in_fortran_order and len(shape) > 1:
        raise ArraysError(f"{member} is in Fortran order; save `numpy.ascontiguousarray` of it")
    return Header(dtype, shape)


def _exactly(file: IO[bytes], size: int, member: str) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise ArraysError(f"{member} ends too early")
    return data
