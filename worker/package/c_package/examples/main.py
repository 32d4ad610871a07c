"""Runs the model by its C interface, with NumPy alone: ``python main.py``."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

_BUNDLE = Path(__file__).resolve().parent.parent
LIBRARY = next(
    path for path in (_BUNDLE / f"model.{kind}" for kind in ("so", "dylib", "dll")) if path.exists()
)


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("dimensions", ctypes.c_int32),
        ("bytes", ctypes.c_size_t),
    ]

    def empty(self) -> np.ndarray:
        """An array for the tensor; bfloat16 is held as its bits."""
        dtype = "uint16" if self.dtype == b"bfloat16" else self.dtype.decode()
        return np.zeros([self.sizes[axis] for axis in range(self.dimensions)], dtype)


class Entry(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("inputs", ctypes.POINTER(Tensor)),
        ("input_count", ctypes.c_int32),
        ("outputs", ctypes.POINTER(Tensor)),
        ("output_count", ctypes.c_int32),
    ]


class Model:
    """A session: state, memory and threads of its own."""

    def __init__(self, library=LIBRARY, threads=0):
        self._library = ctypes.CDLL(str(library))
        self._library.bessemer_model_entries.restype = ctypes.POINTER(Entry)
        self._library.bessemer_model_open.restype = ctypes.c_void_p
        self._library.bessemer_model_error.restype = ctypes.c_char_p
        count = ctypes.c_int32()
        self.entries = self._library.bessemer_model_entries(ctypes.byref(count))[: count.value]
        self._model = ctypes.c_void_p(self._library.bessemer_model_open(threads))
        if not self._model:
            raise RuntimeError(self._library.bessemer_model_error().decode())

    def run(self, inputs, entry=0) -> dict[str, np.ndarray]:
        """The outputs by name, for inputs by name."""
        called = self.entries[entry]
        specs = called.inputs[: called.input_count]
        given = [np.ascontiguousarray(inputs[one.name.decode()], one.empty().dtype) for one in specs]
        for spec, array in zip(specs, given):
            if array.nbytes != spec.bytes:
                raise ValueError(f"{spec.name.decode()} has {array.nbytes} bytes, expected {spec.bytes}")
        outputs = {one.name.decode(): one.empty() for one in called.outputs[: called.output_count]}
        if self._library.bessemer_model_run(
            self._model, entry, _pointers(given), _pointers(outputs.values())
        ):
            raise RuntimeError(self._library.bessemer_model_error().decode())
        return outputs

    def __del__(self):
        if getattr(self, "_model", None):
            self._library.bessemer_model_close(self._model)


def _pointers(arrays):
    return (ctypes.c_void_p * (len(arrays) + 1))(*(array.ctypes.data for array in arrays))


if __name__ == "__main__":
    model = Model()
    inputs = np.load(LIBRARY.parent / "reference/inputs.npz")
    for name, array in model.run(inputs).items():
        print(f"{name}: {array.dtype}, {array.nbytes} bytes")
