"""Runs a bundle for a GPU on tensors in its memory: ``python gpu_tensors.py BUNDLE``, with the test's driver.

That driver's memory is the host's, so a NumPy array stands for a tensor on the GPU. Prints what the outputs
are, and the errors of tensors that do not fit.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tvm_ffi

CPU, CUDA = 1, 2


class Content(ctypes.Structure):
    """DLPack's ``DLTensor``."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    """DLPack's ``DLManagedTensor``."""

    _fields_ = [("content", Content), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class OnGpu:
    """A float32 array as a tensor on a device."""

    def __init__(self, array: np.ndarray[Any, Any], device: int = CUDA, index: int = 0) -> None:
        self.array, self.device = array, (device, index)
        self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.strides = (ctypes.c_int64 * array.ndim)(*(each // array.itemsize for each in array.strides))
        numbers = (array.ctypes.data, device, index, array.ndim, 2, 32, 1)
        places = (ctypes.addressof(self.shape), ctypes.addressof(self.strides), 0)
        self.managed = Managed(Content(*numbers, *places), None, None)

    def __dlpack__(self, **_options: Any) -> Any:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return make(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def seen(tensor: Any) -> np.ndarray[Any, Any]:
    """The memory of a tensor on the GPU."""
    found = tvm_ffi.from_dlpack(tensor)
    count = int(np.prod(found.shape))
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(found.data_ptr())).reshape(found.shape)


def main(bundle: Path) -> None:
    sys.path.insert(0, str(bundle))
    import run

    model = run.load(bundle)
    session = model.gpu_session()
    given = OnGpu(np.ones((1, 16), np.float32))
    made = session.run({"input_0": given})
    own = OnGpu(np.zeros((1, 4), np.float32))
    start, bound = session.bind({"input_0": given}, {"output_0": own}, stream=7)
    for _ in range(3):
        start()
    refused = {}
    row = np.ones((1, 16), np.float32)
    for name, (inputs, *others) in {
        "missing": [{}],
        "elsewhere": [{"input_0": OnGpu(row, CPU)}],
        "another GPU": [{"input_0": OnGpu(row, CUDA, 1)}],
        "another size": [{"input_0": OnGpu(np.ones((2, 16), np.float32))}],
        "not contiguous": [{"input_0": OnGpu(np.ones((1, 32), np.float32)[:, ::2])}],
        "unknown input": [{"input_0": given, "x": given}],
        "unknown output": [{"input_0": given}, {"y": own}],
        "unknown entry": [{"input_0": given}, None, 0, "train"],
    }.items():
        try:
            session.run(inputs, *others)
        except run.InputError as error:
            refused[name] = str(error)
    new = next(iter(made.values()))
    shown = {
        "new": {"shape": list(seen(new).shape), "device": str(tvm_ffi.from_dlpack(new).device)},
        "is_own": bound["output_0"] is own,
        "first_byte": int(own.array.view(np.uint8).flat[0]),
        "refused": refused,
    }
    print(json.dumps(shown))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
