"""Shapes and dtypes of the inputs that ``torch.jit.trace`` recorded.

A traced archive keeps them in ``traced_inputs.pkl``, as tensors without data. torch itself never reads that
entry back; it is read here with an unpickler that can make nothing but descriptions.
"""

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from bessemer.contract.tensor import DType, TensorSpec
from worker.compiler.frontend.archive import read_entry

ENTRY = "traced_inputs.pkl"
STORAGE_DTYPES = {
    "HalfStorage": DType.FLOAT16,
    "BFloat16Storage": DType.BFLOAT16,
    "FloatStorage": DType.FLOAT32,
    "DoubleStorage": DType.FLOAT64,
    "CharStorage": DType.INT8,
    "ShortStorage": DType.INT16,
    "IntStorage": DType.INT32,
    "LongStorage": DType.INT64,
    "ByteStorage": DType.UINT8,
    "BoolStorage": DType.BOOL,
}

Description = tuple[DType, tuple[int, ...]]


def read_traced_inputs(path: Path, names: list[str]) -> dict[str, TensorSpec]:
    """The traced inputs of ``forward`` by name; empty where there are none, or any of them is no tensor."""
    try:
        recorded = _read(path)
    except (pickle.UnpicklingError, ValueError, EOFError, KeyError, TypeError, AttributeError, IndexError):
        return {}
    if not isinstance(recorded, list) or len(recorded) > len(names):
        return {}
    try:
        return {
            name: TensorSpec(name=name, dtype=dtype, shape=shape)
            for name, (dtype, shape) in zip(names, recorded, strict=False)
        }
    except (ValidationError, TypeError, ValueError):
        return {}


def _read(path: Path) -> object:
    data = read_entry(path, ENTRY)
    return None if data is None else _Descriptions(io.BytesIO(data)).load()["forward"]


class _Descriptions(pickle.Unpickler):
    """Makes ``(dtype, shape)`` of a tensor, and refuses every global that a traced input does not need."""

    def find_class(self, module: str, name: str) -> object:
        if module == "torch" and name in STORAGE_DTYPES:
            return STORAGE_DTYPES[name]
        known: dict[tuple[str, str], Callable[..., object]] = {
            ("torch.jit._pickle", "restore_type_tag"): lambda value, tag: value,
            ("torch._utils", "_rebuild_tensor_v2"): lambda dtype, offset, shape, *_: (dtype, tuple(shape)),
            ("collections", "OrderedDict"): OrderedDict,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is not expected here")
        return known[module, name]

    def persistent_load(self, identifier: tuple[object, ...]) -> object:
        return identifier[1]
