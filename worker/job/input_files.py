"""Reads files of arrays that a client uploaded, as hostile input inside the sandbox."""

from __future__ import annotations

import contextlib
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from bessemer.bundle import run
from bessemer.contract.problem import ErrorCode
from worker.errors import JobError, failure_of, ran_out_of_memory

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

ZIP_MAGIC = b"PK"
ARRAY_MAGIC = b"\x93NUMPY"
MAX_DETAIL_CHARACTERS = 1000
MAX_DTYPE_CHARACTERS = 32
DTYPES = ", ".join(run.SAFETENSORS_DTYPES)


def read_inputs(path: Path) -> Arrays:
    """Read an ``.npz`` or a ``.safetensors`` file; bfloat16 becomes its bits in uint16.

    Raises:
        JobError: ``inputs-unreadable``, or ``limit-memory`` if they are too large.
    """
    with path.open("rb") as file:
        start = file.read(len(ARRAY_MAGIC))
    if start == ARRAY_MAGIC:
        detail = (
            "the body is a single array without a name; write an .npz file of named arrays with `numpy.savez`"
        )
        raise JobError(ErrorCode.INPUTS_UNREADABLE, detail)
    try:
        return run.load_arrays(path) if start.startswith(ZIP_MAGIC) else _read_safetensors(path)
    except Exception as error:
        if ran_out_of_memory(error) and (name := _array_without_its_data(path)) is not None:
            detail = f"the body is not a readable .npz file: '{name}' is larger by its header than its data"
            raise JobError(ErrorCode.INPUTS_UNREADABLE, detail) from error
        detail = str(error) if isinstance(error, run.InputError) else _unreadable(error)
        detail = detail.replace(str(path), "the body")[:MAX_DETAIL_CHARACTERS]
        raise failure_of(ErrorCode.INPUTS_UNREADABLE, error, detail) from error


def _array_without_its_data(path: Path) -> str | None:
    """An array of an ``.npz`` file whose header claims more bytes than follow; None if there is none."""
    formats = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with contextlib.suppress(Exception), zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            with archive.open(info) as member:
                shape, _, dtype = formats[np.lib.format.read_magic(member)](member)
            if math.prod(shape) * dtype.itemsize > info.file_size:
                return info.filename.removesuffix(".npy")
    return None


def _unreadable(error: Exception) -> str:
    reason = "its header is not JSON" if isinstance(error, (RecursionError, UnicodeDecodeError)) else error
    return f"the body is not a readable .npz or .safetensors file: {reason}"


def _read_safetensors(path: Path) -> Arrays:
    header, data = run.split_safetensors(np.memmap(path, np.uint8, "r"))
    return {name: _tensor(name, entry, data) for name, entry in header.items()}


def _tensor(name: str, entry: dict[str, object], data: Array) -> Array:
    start, end = map(int, entry["data_offsets"])  # type: ignore[call-overload]
    shape = tuple(map(int, entry["shape"]))  # type: ignore[call-overload]
    dtype = str(entry["dtype"])
    if dtype not in run.SAFETENSORS_DTYPES:
        raise ValueError(f"'{name}' has the dtype {dtype[:MAX_DTYPE_CHARACTERS]}, not one of {DTYPES}")
    spec = run.Spec(name, shape, run.SAFETENSORS_DTYPES[dtype])
    if not 0 <= start <= end <= data.size:
        raise ValueError(f"the data of '{name}' lies outside the file")
    return data[start:end].view(spec.numpy_dtype).reshape(spec.shape)
