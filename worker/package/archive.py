"""Writes a bundle's checksums, its archive, and its reference arrays. Equal content gives equal bytes."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import zipfile
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import zstandard

from bessemer.bundle.manifest import PROGRAM, BundleFile
from bessemer.contract.tensor import DType, TensorSpec

if TYPE_CHECKING:
    from worker.compiler.values import Arrays, Captured


LEVEL = 3
"""Takes 30 ms for the runtime libraries. Level 1 takes 20 ms for 9 % more, level 6 120 ms for 11 % less."""

FAST_LEVEL = -1
"""For data that hardly shrinks: writing and reading are three times as fast as with the other levels."""

LARGE_BYTES = 16 << 20
WORTH = 0.9
"""A large file is compressed if a sample shrinks to less than this part. Float parameters shrink to 0.92."""

MTIME_SECONDS = 315_532_800
"""1980-01-01, the earliest moment that every archiver can represent."""

_CHUNK_BYTES = 1 << 20


def describe(folder: Path, path: str, digest: str | None = None) -> BundleFile:
    """One file with its size and its digest, which is computed if it is not given."""
    source = folder / path
    if digest is None:
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    return BundleFile(path=path, digest=digest, size_bytes=source.stat().st_size)


def checksums(files: tuple[BundleFile, ...]) -> str:
    """The text of ``SHA256SUMS``, as ``sha256sum --check`` reads it."""
    return "".join(f"{file.digest}  {file.path}\n" for file in sorted(files, key=lambda file: file.path))


def write_archive(folder: Path, paths: tuple[str, ...], archive: Path) -> None:
    """Write files of a folder to a ``.tar.zst`` without a leading folder.

    Each run of files of one level is a frame. The archive has no end: the supervisor adds its own files, and
    the end.
    """
    with archive.open("wb") as raw:
        for level, frame in groupby(sorted(paths), key=lambda path: level_of(folder / path)):
            compressor = zstandard.ZstdCompressor(level=level, write_checksum=True, threads=0)
            with compressor.stream_writer(raw, closefd=False) as packed:
                for path in frame:
                    _add(packed, folder / path, path)


def level_of(source: Path) -> int:
    """The level at which to compress a file: a sample from the middle of a large one decides."""
    size = source.stat().st_size
    if size < LARGE_BYTES:
        return LEVEL
    with source.open("rb") as file:
        file.seek(size // 2)
        sample = file.read(_CHUNK_BYTES)
    packed = zstandard.ZstdCompressor(level=LEVEL).compress(sample)
    return LEVEL if len(packed) < WORTH * len(sample) else FAST_LEVEL


def _add(packed: zstandard.ZstdCompressionWriter, source: Path, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = source.stat().st_size
    entry.mode = 0o755 if name == PROGRAM else 0o644
    entry.mtime = MTIME_SECONDS
    packed.write(entry.tobuf(tarfile.PAX_FORMAT))
    with source.open("rb") as file:
        shutil.copyfileobj(file, packed, _CHUNK_BYTES)
    packed.write(b"\0" * (-entry.size % tarfile.BLOCKSIZE))


def write_arrays(path: Path, specs: tuple[TensorSpec, ...], arrays: Arrays) -> None:
    """Write an ``.npz`` with one array for each spec, under its name.

    ``numpy.savez`` takes names as keyword arguments and would refuse an array named ``file``. NumPy lacks
    bfloat16, so its bits are stored as uint16.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        _write_members(archive, "", specs, arrays)


def write_reference(path: Path, entries: Iterable[Captured]) -> None:
    """Write inputs and outputs into one ``.npz``, as ``inputs/NAME`` and ``outputs/NAME``.

    Those of the entry points after the first are ``ENTRY/inputs/NAME`` and ``ENTRY/outputs/NAME``.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for entry in entries:
            folder = "" if entry.is_first else f"{entry.name}/"
            _write_members(archive, f"{folder}inputs/", entry.input_specs, entry.inputs)
            _write_members(archive, f"{folder}outputs/", entry.output_specs, entry.references)


def _write_members(
    archive: zipfile.ZipFile, folder: str, specs: tuple[TensorSpec, ...], arrays: Arrays
) -> None:
    for spec, array in zip(specs, arrays, strict=True):
        with archive.open(zipfile.ZipInfo(f"{folder}{spec.name}.npy"), "w", force_zip64=True) as member:
            np.lib.format.write_array(member, storable(array), allow_pickle=False)


def storable(array: np.ndarray) -> np.ndarray:
    """An array that ``.npy`` can hold: bfloat16 as its bits."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def restored(array: np.ndarray, dtype: DType) -> np.ndarray:
    """An array as it was before ``storable``."""
    return array.view(ml_dtypes.bfloat16) if dtype is DType.BFLOAT16 else array
