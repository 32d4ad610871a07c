"""Reference inputs and outputs as NumPy archives."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bessemer.contract.tensor import TensorSpec

if TYPE_CHECKING:
    from worker.compiler.values import Arrays, Captured


def write_arrays(path: Path, specs: tuple[TensorSpec, ...], arrays: Arrays) -> None:
    """Write an ``.npz`` with one array for each spec, under its name.

    ``numpy.savez`` takes names as keyword arguments, so that an array of the name ``file`` would be refused;
    hence the archive is written here. bfloat16, which NumPy lacks, is stored as its bits in uint16.
    Equal arrays give equal bytes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "", specs, arrays)


def write_reference(path: Path, captured: Captured) -> None:
    """Write inputs and outputs into one ``.npz``, as ``inputs/NAME`` and ``outputs/NAME``."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "inputs/", captured.input_specs, captured.inputs)
        _add(archive, "outputs/", captured.output_specs, captured.references)


def _add(archive: zipfile.ZipFile, folder: str, specs: tuple[TensorSpec, ...], arrays: Arrays) -> None:
    for spec, array in zip(specs, arrays, strict=True):
        with archive.open(zipfile.ZipInfo(f"{folder}{spec.name}.npy"), "w", force_zip64=True) as member:
            np.lib.format.write_array(member, _storable(array), allow_pickle=False)


def _storable(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array
