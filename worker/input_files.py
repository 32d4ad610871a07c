"""Files of arrays that a client uploaded, read as hostile input inside the sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bessemer.bundle import run
from bessemer.contract.problem import ErrorCode
from worker.errors import failure_of

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

ZIP_MAGIC = b"PK"


def read_inputs(path: Path) -> Arrays:
    """Read an ``.npz`` or a ``.safetensors`` file; bfloat16 gives its bits in uint16.

    Raises:
        JobError: ``inputs-unreadable``; ``limit-memory`` where they are too many.
    """
    with path.open("rb") as file:
        is_zip = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
    try:
        return run.load_arrays(path) if is_zip else _read_safetensors(path)
    except Exception as error:
        reason = str(error) if isinstance(error, run.InputError) else f"{type(error).__name__}: {error}"
        detail = reason.replace(str(path), "the body")
        raise failure_of(ErrorCode.INPUTS_UNREADABLE, error, detail) from error


def _read_safetensors(path: Path) -> Arrays:
    header, data = run.split_safetensors(np.memmap(path, np.uint8, "r"))
    return {name: _tensor(name, entry, data) for name, entry in header.items()}


def _tensor(name: str, entry: dict[str, object], data: Array) -> Array:
    start, end = map(int, entry["data_offsets"])  # type: ignore[call-overload]
    shape = tuple(map(int, entry["shape"]))  # type: ignore[call-overload]
    spec = run.Spec(name, shape, run.SAFETENSORS_DTYPES[str(entry["dtype"])])
    if not 0 <= start <= end <= data.size:
        raise ValueError(f"the bytes of '{name}' lie outside the file")
    return data[start:end].view(spec.numpy_dtype).reshape(spec.shape)
