"""Run a compiled model: ``python run.py --input x=x.npy --output result.npz``.

Every bundle contains this file. It needs only Python 3.9 or later, NumPy and apache-tvm-ffi; everything about
the model is in ``manifest.json`` beside it. As a module, it offers ``load``, ``Model.run``, which takes and
returns arrays by name, and ``Model.time``. A loaded model is also a function of the original's own arguments:
``model(images=[a, b])``. You can call it from any number of threads at once; if it keeps state, each sequence
of runs needs its own ``Model.session()``. NumPy lacks bfloat16, so such arrays hold the bits as uint16.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib
import json
import math
import mmap
import os
import re
import runpy
import sys
import threading
import time
import traceback
import weakref
import zipfile
from collections import Counter, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

REQUIREMENTS = "numpy apache-tvm-ffi==0.1.14.post1"

if __name__ == "__main__" and "--functions" not in sys.argv:
    # apache-tvm-ffi imports torch if it is installed, which takes seconds and is not needed here
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]

try:
    import numpy as np
    import tvm_ffi
except ModuleNotFoundError as missing:
    if __name__ != "__main__":
        raise
    sys.exit(f"{missing}. Install the requirements: pip install {REQUIREMENTS}")

__all__ = [
    "BundleError",
    "Call",
    "Comparison",
    "Entry",
    "GpuSession",
    "InputError",
    "Latency",
    "Model",
    "Outcome",
    "ParameterReader",
    "Session",
    "Sessions",
    "Sizes",
    "Spec",
    "execute",
    "load",
    "load_arrays",
    "planned_functions",
    "read_inputs",
    "register_functions",
    "save_arrays",
    "split_safetensors",
]

CPU_DEVICE = 1
CUDA_DEVICE = 2
ALLOCATE = "runtime.TVMTensorAllocWithScope"
ALIGNMENT_BYTES = 64
"""The alignment of tensors that generated code expects."""
POOLED_ALLOCATOR = 2
RUNS_FOR_P90, RUNS_FOR_P99 = 20, 200
WARM_UP_RUNS = 5
SHOWN_ELEMENTS = 16
SHOWN_NAMES = 3
MAX_TIED_ELEMENTS = 1 << 24
MAX_SEED = (1 << 53) - 1
"""The largest seed that ``run`` draws: JSON readers keep its digits."""

SAFETENSORS_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
"""The element types of a ``.safetensors`` file, as the manifest names them."""

PARTS = {"complex64": "float32", "complex128": "float64"}
"""The dtypes of the real and the imaginary part of complex numbers."""

MAX_HEADER_BYTES = 100_000_000
CHUNK_BYTES = 1 << 20
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
HUGE_PAGE_BYTES = 2 << 20
MADV_COLLAPSE = 25
MIN_HUGE_BYTES = 32 << 20
"""Smaller parameters fit into caches, and their small pages into the processor's TLB."""
SIZE_CHECK = "match_cast error"
"""Part of the runtime's message when it refuses a size."""
MACHINES = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64", "riscv64": "riscv64"}
"""The architectures of triples, by what ``uname`` calls them."""
SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
"""How the system's word in a triple begins, by ``sys.platform``."""
LIBRARY_BLOB = "__tvm_ffi__library_bin"
MAP_PARAMETERS = "bessemer_map_parameters"
RUN_PLAN = "bessemer_model_run_on"
DEVICE_OF = "bessemer_model_device"

Arrays = Mapping[str, "np.ndarray[Any, Any]"]


class BundleError(Exception):
    """The bundle cannot be loaded, or its library failed."""


class InputError(ValueError):
    """The inputs do not match the model."""


@dataclass(frozen=True)
class Spec:
    """A tensor as the manifest names it; ``dtype`` may be ``bfloat16``."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def runtime_dtype(self) -> str:
        """The dtype in the library, which takes complex numbers as real ones with a last axis of two."""
        return PARTS.get(self.dtype, self.dtype)

    def shape_of(self, tensor: Any) -> tuple[int, ...]:
        """The shape of a runtime tensor, without the last axis that holds the parts of complex numbers."""
        shape = tuple(tensor.shape)
        return shape[:-1] if self.dtype in PARTS and shape[-1:] == (2,) else shape

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of the array in NumPy: uint16 for bfloat16."""
        return np.dtype("uint16" if self.dtype == "bfloat16" else self.dtype)

    def __str__(self) -> str:
        sizes = "x".join(str(size) for size in self.shape) or "scalar"
        return f"{self.name}={sizes}:{self.dtype}"


class Sizes:
    """The dynamic sizes of a model, from ``dynamic`` in the manifest."""

    def __init__(self, dynamic: Mapping[str, Any]) -> None:
        self._dimensions = {entry["name"]: entry for entry in dynamic.get("dimensions", ())}
        self._inputs = _by_place(dynamic.get("inputs", ()))
        self._outputs = _by_place(dynamic.get("outputs", ()))
        if any(entry.get("factor") == 0 for entry in self._inputs.values()):
            raise BundleError("manifest.json is damaged: the factor of a dynamic size is 0")
        self._of_data = {entry["name"]: entry["maximum"] for entry in dynamic.get("of_data", ())}

    def choose(self, shapes: Sequence[tuple[Spec, tuple[int, ...]]]) -> dict[str, int]:
        """The sizes of the dimensions, computed from the inputs' shapes.

        Raises:
            InputError: a shape does not match the model; the message says which shapes do.
        """
        chosen: dict[str, int] = {}
        for spec, shape in shapes:
            if len(shape) != len(spec.shape):
                raise self._refusal(spec, shape)
            for axis, (size, fixed) in enumerate(zip(shape, spec.shape)):
                entry = self._inputs.get((spec.name, axis))
                if entry is None:
                    if size != fixed:
                        raise self._refusal(spec, shape)
                    continue
                value, rest = divmod(size - entry["offset"], entry["factor"])
                if rest or not self._lies_within(entry["dimension"], value):
                    raise self._refusal(spec, shape)
                if chosen.setdefault(entry["dimension"], value) != value:
                    reason = f"earlier inputs set {entry['dimension']} to {chosen[entry['dimension']]}"
                    raise self._refusal(spec, shape, f", where {reason}")
        return chosen

    def suits(self, spec: Spec, shape: tuple[int, ...], chosen: dict[str, int]) -> bool:
        """Whether an output has the shape that follows from the inputs' sizes.

        A size that depends on data is added to ``chosen``, for later outputs with the same size.
        """
        if len(shape) != len(spec.shape):
            return False
        for axis, (size, fixed) in enumerate(zip(shape, spec.shape)):
            entry = self._outputs.get((spec.name, axis))
            if entry is None:
                expected = fixed
            elif entry["dimension"] is None:
                continue
            elif entry["dimension"] in self._of_data:
                maximum = self._of_data[entry["dimension"]]
                expected = chosen.setdefault(
                    entry["dimension"], size if maximum is None else min(size, maximum)
                )
            else:
                expected = entry["factor"] * chosen[entry["dimension"]] + entry["offset"]
            if size != expected:
                return False
        return True

    def results(self) -> list[list[str]]:
        """The outputs with one row for each result, grouped by the dynamic size that counts the results."""
        results: dict[str, list[str]] = {}
        for (name, axis), entry in self._outputs.items():
            if axis == 0 and entry["dimension"] in self._of_data:
                results.setdefault(_formula(entry), []).append(name)
        return list(results.values())

    def takes(self, spec: Spec) -> str:
        """An input with formulas for its dynamic sizes, and their ranges."""
        entries = {axis: entry for (name, axis), entry in self._inputs.items() if name == spec.name}
        if not entries:
            return str(spec)
        shown = [
            _formula(entries[axis]) if axis in entries else str(size) for axis, size in enumerate(spec.shape)
        ]
        ranges = sorted({self._range(entry["dimension"]) for entry in entries.values()})
        return f"{spec.name}={'x'.join(shown)}:{spec.dtype} with {', '.join(ranges)}"

    def _lies_within(self, name: str, value: int) -> bool:
        maximum = self._dimensions[name]["maximum"]
        return value >= self._dimensions[name]["minimum"] and (maximum is None or value <= maximum)

    def _range(self, name: str) -> str:
        entry = self._dimensions[name]
        end = "on" if entry["maximum"] is None else f"to {entry['maximum']}"
        return f"{name} from {entry['minimum']} {end}"

    def _refusal(self, spec: Spec, shape: tuple[int, ...], reason: str = "") -> InputError:
        is_dynamic = any(name == spec.name for name, _ in self._inputs)
        expected = self.takes(spec) if is_dynamic else spec.shape
        return InputError(f"input '{spec.name}' has the shape {shape}, expected {expected}{reason}")


def _by_place(entries: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], Mapping[str, Any]]:
    return {(entry["tensor"], entry["axis"]): entry for entry in entries}


def _formula(entry: Mapping[str, Any]) -> str:
    if entry["dimension"] is None:
        return "[?]"
    factor, offset = entry["factor"], entry["offset"]
    product = entry["dimension"] if factor == 1 else f"{factor}*{entry['dimension']}"
    return f"[{product}{offset:+d}]" if offset else f"[{product}]"


@dataclass(frozen=True)
class Latency:
    """The latency distribution of single runs, in milliseconds."""

    runs: int
    min_ms: float
    p50_ms: float
    p90_ms: float | None
    p99_ms: float | None
    mean_ms: float
    stddev_ms: float

    @classmethod
    def of(cls, times_ms: Sequence[float]) -> Latency:
        """The distribution of at least one time; p90 needs 20 runs, p99 needs 200."""
        p50, p90, p99 = (float(value) for value in np.percentile(times_ms, [50, 90, 99]))
        return cls(
            runs=len(times_ms),
            min_ms=float(np.min(times_ms)),
            p50_ms=p50,
            p90_ms=p90 if len(times_ms) >= RUNS_FOR_P90 else None,
            p99_ms=p99 if len(times_ms) >= RUNS_FOR_P99 else None,
            mean_ms=float(np.mean(times_ms)),
            stddev_ms=float(np.std(times_ms)),
        )


@dataclass(frozen=True)
class Comparison:
    """An output beside its reference, under ``|x - r| <= absolute + relative * |r|``.

    Where a size depends on data, the shapes may differ: then ``shape`` and ``reference_shape`` are set, and
    no elements are compared.
    """

    name: str
    matches: bool
    mismatches: int
    max_absolute_error: float
    shape: tuple[int, ...] | None = None
    reference_shape: tuple[int, ...] | None = None

    @property
    def verdict(self) -> str:
        """The comparison in words."""
        if self.shape is not None:
            return f"DIFFERS: its shape is {self.shape}, the reference's {self.reference_shape}"
        return "matches the reference" if self.matches else f"DIFFERS in {self.mismatches} elements"

    def document(self) -> dict[str, Any]:
        """The JSON document, with null for an error that is not finite."""
        error = self.max_absolute_error
        return {**asdict(self), "max_absolute_error": error if math.isfinite(error) else None}


@dataclass(frozen=True)
class Outcome:
    """The result of ``execute``; ``comparisons`` is None unless the inputs were the reference inputs."""

    specs: tuple[Spec, ...]
    outputs: Arrays
    threads: int
    comparisons: tuple[Comparison, ...] | None
    latency: Latency | None
    seed: int | None = None

    @property
    def matches_reference(self) -> bool | None:
        """Whether every output matches its reference; None if nothing was compared."""
        return None if self.comparisons is None else all(entry.matches for entry in self.comparisons)

    @property
    def exit_status(self) -> int:
        """1 if an output differs from its reference, else 0."""
        return 1 if self.matches_reference is False else 0

    def document(self) -> dict[str, Any]:
        """The JSON document: outputs, seed, threads, the comparison, and ``Latency``'s fields if timed."""
        compared = self.comparisons
        return {
            "outputs": [asdict(spec) for spec in self.specs],
            "seed": self.seed,
            "threads": self.threads,
            "matches_reference": self.matches_reference,
            "comparisons": None if compared is None else [entry.document() for entry in compared],
            **(asdict(self.latency) if self.latency else {}),
        }

    def lines(self) -> Iterator[str]:
        """The lines of text."""
        for spec in self.specs:
            yield _summary(spec, self.outputs[spec.name])
        for entry in self.comparisons or ():
            error = f" (largest absolute error {entry.max_absolute_error:.3g})" if entry.shape is None else ""
            yield f"{entry.name}: {entry.verdict}{error}"
        for name, value in asdict(self.latency).items() if self.latency else ():
            if value is not None:
                yield f"{name:<10}{value if name == 'runs' else format(value, '.4f')}"


class ParameterReader:
    """Reads a library's parameters from a file, as ``parameters`` in the manifest describes."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.file: str = entry["file"]
        self.prepare: str = entry["prepare"]
        self.specs = _specs(entry["tensors"])

    def prepared(self, prepare: Any, path: Path) -> tuple[Any, ...]:
        """The parameters in the form that every entry point takes after its inputs.

        Raises:
            BundleError: the file does not hold the tensors that the library was compiled for.
        """
        arrays = self.read(path)
        tensors = [_lent(spec, array) for spec, array in zip(self.specs, arrays)]
        prepared = tuple(_with_helpers(prepare, tensors))
        _forget_pages(arrays)
        return prepared

    def read(self, path: Path) -> list[np.ndarray[Any, Any]]:
        """The tensors of a ``.safetensors`` file in the library's order, as views of the mapped file.

        Raises:
            BundleError: the file cannot be read, or a name, a shape or a dtype is not the library's.
        """
        try:
            # private pages, because NumPy does not share read-only arrays by DLPack
            content = np.memmap(path, np.uint8, "c")
            header, data = split_safetensors(content)
        except (OSError, ValueError, RecursionError) as error:
            raise BundleError(f"{path} cannot be read as a .safetensors file: {error}") from error
        self._check_names(path, header)
        return [self._tensor(path, spec, header[spec.name], data) for spec in self.specs]

    def _check_names(self, path: Path, header: Mapping[str, Any]) -> None:
        wanted = {spec.name for spec in self.specs}
        strange, absent = sorted(set(header) - wanted), sorted(wanted - set(header))
        if strange or absent:
            reasons = ["no tensor " + ", ".join(map(repr, absent[:SHOWN_NAMES]))] if absent else []
            if strange:
                names = ", ".join(map(repr, strange[:SHOWN_NAMES]))
                reasons.append(f"a tensor {names} that the model does not have")
            raise BundleError(f"{path} does not fit the library: it has {' and '.join(reasons)}")

    @staticmethod
    def _tensor(path: Path, spec: Spec, entry: Any, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        try:
            found = Spec(spec.name, tuple(map(int, entry["shape"])), SAFETENSORS_DTYPES[entry["dtype"]])
            start, end = map(int, entry["data_offsets"])
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise BundleError(f"{path}: the entry of '{spec.name}' cannot be read: {error!r}") from error
        if found != spec:
            raise BundleError(f"{path} does not fit the library: it has {found}, expected {spec}")
        count = 1
        for size in spec.shape:
            count *= size
        if not 0 <= start <= end <= data.size or end - start != count * spec.numpy_dtype.itemsize:
            raise BundleError(f"{path}: the bytes of '{spec.name}' lie outside the file or are too few")
        return data[start:end].view(spec.numpy_dtype).reshape(spec.shape)


def split_safetensors(content: np.ndarray[Any, Any]) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """The header of a ``.safetensors`` file without its metadata, and the data. Raises ``ValueError``."""
    length = int.from_bytes(content[:8].tobytes(), "little")
    if content.size < 8 or length > min(MAX_HEADER_BYTES, content.size - 8):
        raise ValueError("the header is truncated")
    header = json.loads(content[8 : 8 + length].tobytes(), object_pairs_hook=_once)
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    header.pop("__metadata__", None)
    return header, content[8 + length :]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice in the header")
    return found


_ABSENT: Any = object()
"""The value of an argument, a key or a field that a call leaves out."""


class Call:
    """How the model's own arguments and result are made of named arrays: ``call`` in the manifest."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._arguments: Sequence[Mapping[str, Any]] = document["arguments"]
        self._returns: Mapping[str, Any] = document["returns"]
        self._names = [str(argument["name"]) for argument in self._arguments]
        self._positional = [str(each["name"]) for each in self._arguments if not each["keyword_only"]]

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays in the arguments of a call, by name.

        Raises:
            InputError: an argument, a key or a field is missing, unknown, or has another type or value.
        """
        try:
            given = self._bound(args, kwargs)
            arrays: dict[str, Any] = {}
            for argument in self._arguments:
                name = str(argument["name"])
                _take(argument["structure"], given.get(name, _ABSENT), name, arrays)
        except InputError as error:
            raise InputError(f"{error}; the model takes ({', '.join(self._shown())})") from None
        return arrays

    def restore(self, outputs: Arrays) -> Any:
        """The model's result, made of outputs by name.

        A dataclass or an object of another class becomes a ``SimpleNamespace`` with its fields.
        """
        return _restored(self._returns, outputs)

    def _shown(self) -> list[str]:
        """The arguments, with a star before the first that is passed by name only."""
        texts = list(map(_shown_argument, self._arguments))
        by_name = [index for index, each in enumerate(self._arguments) if each["keyword_only"]]
        if by_name:
            texts.insert(by_name[0], "*")
        return texts

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self._positional):
            raise InputError(f"got {len(args)} arguments by position, expected {len(self._positional)}")
        given = dict(zip(self._positional, args))
        for name, value in kwargs.items():
            if name not in self._names:
                raise InputError(f"unknown argument '{name}'")
            if name in given:
                raise InputError(f"argument '{name}' is given twice")
            given[name] = value
        return given


def _take(structure: Any, value: Any, place: str, arrays: dict[str, Any]) -> None:
    """Add the arrays in a value to ``arrays``. ``place`` is the path to the value, for errors."""
    if structure is None:
        if value is not _ABSENT and value is not None:
            raise InputError(f"'{place}' was left to the model's default when it was compiled")
    elif "tensor" in structure:
        if value is _ABSENT or value is None:
            raise InputError(f"missing '{place}'")
        if isinstance(value, (str, list, tuple, Mapping)):
            raise InputError(f"'{place}' is a {type(value).__name__}, expected an array")
        arrays[structure["tensor"]] = value
    elif "constant" in structure:
        constant = _constant(structure)
        if value is not _ABSENT and not _is_constant(value, constant):
            given = repr(value) if np.isscalar(value) or value is None else f"a {type(value).__name__}"
            raise InputError(f"'{place}' is {given}, but the library is compiled for {constant!r}")
    else:
        for key, item, part in _parts(structure, value, place):
            _take(item, part, f"{place}.{key}", arrays)


def _constant(structure: Mapping[str, Any]) -> Any:
    """The value of a constant; JSON has no infinities and no NaN."""
    text = structure.get("not_finite")
    return structure["constant"] if text is None else float(text)


def _is_constant(value: Any, constant: Any) -> bool:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(constant, bool) or isinstance(plain, bool):
        return plain is constant
    if not isinstance(plain, (int, float, str, type(None))):
        return False
    return plain == constant or (plain != plain and constant != constant)


def _parts(structure: Mapping[str, Any], value: Any, place: str) -> Iterator[tuple[Any, Any, Any]]:
    """The key or index of each item of a container, its structure, and its value."""
    kind, keys, items = structure["container"], structure["keys"], structure["items"]
    places = keys or range(len(items))
    if value is _ABSENT or value is None:
        parts: Sequence[Any] = [_ABSENT] * len(items)
    elif isinstance(value, Mapping) and (keys or kind == "dict"):
        strange = [key for key in value if key not in keys]
        if strange:
            raise InputError(f"unknown key {strange[0]!r} in '{place}'")
        parts = [value.get(key, _ABSENT) for key in keys]
    elif isinstance(value, (list, tuple)) and kind != "dict":
        if len(value) != len(items):
            raise InputError(f"'{place}' has the length {len(value)}, expected {len(items)}")
        parts = value
    elif kind in ("object", "named_tuple") and any(hasattr(value, key) for key in keys):
        parts = [getattr(value, key, _ABSENT) for key in keys]
    else:
        raise InputError(f"'{place}' is a {type(value).__name__}, expected {_shown(structure)}")
    return zip(places, items, parts)


def _restored(structure: Mapping[str, Any], arrays: Arrays) -> Any:
    if "tensor" in structure:
        return arrays[structure["tensor"]]
    if "constant" in structure:
        return _constant(structure)
    kind, keys = structure["container"], structure["keys"]
    values = [_restored(item, arrays) for item in structure["items"]]
    if kind == "dict":
        return dict(zip(keys, values))
    if kind == "named_tuple":
        return _named_tuple(tuple(keys))(*values)
    if kind in ("list", "tuple"):
        return values if kind == "list" else tuple(values)
    return SimpleNamespace(**dict(zip(keys, values)))


@cache
def _named_tuple(fields: tuple[str, ...]) -> Any:
    return namedtuple("Result", fields)


def _shown_argument(argument: Mapping[str, Any]) -> str:
    name, structure = argument["name"], argument["structure"]
    text = name if structure is None else _shown(structure)
    return str(name) if text == name else f"{name}: {text}"


def _shown(structure: Mapping[str, Any]) -> str:
    if "tensor" in structure:
        return str(structure["tensor"])
    if "constant" in structure:
        return repr(_constant(structure))
    kind, keys = structure["container"], structure["keys"]
    texts = list(map(_shown, structure["items"]))
    if kind == "list":
        return f"[{', '.join(texts)}]"
    if kind == "dict":
        return f"{{{', '.join(f'{key!r}: {text}' for key, text in zip(keys, texts))}}}"
    if keys:
        return f"({', '.join(f'{key}={text}' for key, text in zip(keys, texts))})"
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


class _Fork(threading.local):
    """Whether this thread was forked after it had called the runtime, and the thread that calls it instead.

    The runtime starts helpers for each calling thread. A fork copies only the calling thread, which then
    waits for helpers that do not exist. A thread that the new process starts has helpers of its own.
    """

    has_run = False
    happened = False
    caller: ThreadPoolExecutor | None = None


_fork = _Fork()


def _note_fork() -> None:
    _fork.happened, _fork.caller = _fork.has_run, None


os.register_at_fork(after_in_child=_note_fork)


def _with_helpers(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call the runtime in this thread; in a fork of a process that has called it, in a new thread."""
    if not _fork.happened:
        _fork.has_run = True
        return call(*arguments)
    if _fork.caller is None:
        _fork.caller = ThreadPoolExecutor(1)
    return _fork.caller.submit(call, *arguments).result()


class Sessions:
    """A pool of the library's sessions, because each can run only one call at a time.

    Sessions share the library's code and parameters, and have memory for intermediate results of their own.
    The pool has as many sessions as calls have run at once.
    """

    def __init__(self, start: Callable[[], Callable[..., Any]]) -> None:
        self._start = start
        self._idle: deque[Callable[..., Any]] = deque([start()])

    def call(self, *arguments: Any) -> Any:
        """Run the entry point in a free session."""
        try:
            session = self._idle.pop()
        except IndexError:
            session = self._start()
        result = session(*arguments)
        # after a failed call, the session is dropped
        self._idle.append(session)
        return result


class _Tensor(ctypes.Structure):
    """``bessemer_tensor`` of bessemer_model.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("dimensions", ctypes.c_int32),
        ("bytes", ctypes.c_size_t),
    )


class _Entry(ctypes.Structure):
    """``bessemer_entry`` of bessemer_model.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("inputs", ctypes.POINTER(_Tensor)),
        ("input_count", ctypes.c_int32),
        ("outputs", ctypes.POINTER(_Tensor)),
        ("output_count", ctypes.c_int32),
    )


@dataclass(frozen=True)
class Plan:
    """An entry point of the C interface: its index there, the number of its inputs, and its outputs."""

    index: int
    inputs: int
    outputs: tuple[Spec, ...]


class Arena:
    """A session of the C interface: threads, and memory for a run, allocated once.

    A run allocates nothing but its outputs.
    """

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self._run = library.bessemer_model_run_on
        self._error = library.bessemer_model_error
        self._error.restype = ctypes.c_char_p
        library.bessemer_model_open.restype = ctypes.c_void_p
        model = library.bessemer_model_open(ctypes.c_int32(threads))
        if model is None:
            raise BundleError(f"the library failed: {self.message()}")
        self.model = ctypes.c_void_p(model)
        self._library = library
        weakref.finalize(self, library.bessemer_model_close, self.model).atexit = False

    def starting_on_gpu(
        self, index: int, inputs: Sequence[Any], outputs: Sequence[Any], stream: int
    ) -> Callable[[], None]:
        """A function that starts a run on tensors in the GPU's memory. It raises ``BundleError``."""
        run = partial(
            self._library.bessemer_model_run_on_device,
            self.model,
            index,
            _addresses(inputs),
            _addresses(outputs),
            ctypes.c_void_p(stream),
        )

        def start(_kept: Any = (inputs, outputs)) -> None:
            if run():
                raise BundleError(f"the library failed: {self.message()}")

        return start

    def __call__(self, plan: Plan, *tensors: Any) -> list[Any]:
        """Run on tensors: inputs, then states, which the run changes. Returns the outputs and the states."""
        inputs, states = tensors[: plan.inputs], tensors[plan.inputs :]
        outputs = [_empty(spec, spec.shape) for spec in plan.outputs]
        if self._run(self.model, plan.index, *map(_addresses, (inputs, outputs, states))):
            raise RuntimeError(self.message())
        return [*outputs, *states]

    def message(self) -> str:
        """The library's last error on this thread."""
        return bytes(self._error()).decode(errors="replace")


def _addresses(tensors: Sequence[Any]) -> Any:
    """Pointers to tensors. An empty tensor may have none; kernels never read it, so any address will do."""
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() or ALIGNMENT_BYTES for tensor in tensors))


class _Exported:
    """A tensor that the library made, for any package that reads DLPack."""

    def __init__(self, managed: int) -> None:
        self._managed = managed

    def __dlpack__(self, **_options: Any) -> Any:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return make(self._managed, b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA_DEVICE, 0


class GpuSession:
    """Runs a library for a GPU on tensors in the GPU's memory, without copies; one run at a time.

    Tensors come from any package with DLPack, such as torch. The session keeps the state from run to run.
    """

    def __init__(self, library: ctypes.CDLL, entries: Sequence[Entry]) -> None:
        self._library = library
        self._arena = Arena(library, threads=1)
        self._entries = {entry.name: (index, entry) for index, entry in enumerate(entries)}
        library.bessemer_model_make_output.restype = ctypes.c_void_p

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any] | None = None,
        stream: int = 0,
        entry: str | None = None,
    ) -> dict[str, Any]:
        """Start a run, and return before it ends.

        Args:
            inputs: contiguous tensors on the first GPU, by name.
            outputs: tensors to write, by name; the others are new. With the same tensors every time, a run is
                one launch of a recorded graph.
            stream: the CUDA stream in whose order it runs, such as ``torch.cuda.Stream().cuda_stream``.
            entry: the entry point; the first by default.

        Returns:
            The outputs by name: yours, or new ones for ``torch.from_dlpack``.

        Raises:
            InputError: a tensor is missing, unknown, not on the first GPU, or has another size or dtype.
            BundleError: the GPU failed.
        """
        start, made = self.bind(inputs, outputs, stream, entry)
        start()
        return made

    def bind(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any] | None = None,
        stream: int = 0,
        entry: str | None = None,
    ) -> tuple[Callable[[], None], dict[str, Any]]:
        """A function that starts a run on these tensors, and the outputs that it writes; see ``run``."""
        name = next(iter(self._entries)) if entry is None else entry
        if name not in self._entries:
            raise InputError(f"unknown entry point '{name}': the library has {', '.join(self._entries)}")
        index, point = self._entries[name]
        given = outputs or {}
        _refuse_unknown("input", inputs, point.inputs)
        _refuse_unknown("output", given, point.outputs)
        passed = [_on_gpu(spec, inputs) for spec in point.inputs]
        written = [
            _on_gpu(spec, given) if spec.name in given else self._new(index, number)
            for number, spec in enumerate(point.outputs)
        ]
        made = {spec.name: tensor for spec, tensor in zip(point.outputs, written)}
        start = self._arena.starting_on_gpu(index, passed, written, stream)
        return start, {**made, **{name: given[name] for name in made if name in given}}

    def _new(self, index: int, output: int) -> Any:
        made = self._library.bessemer_model_make_output(self._arena.model, index, output)
        if made is None:
            raise BundleError(f"the library failed: {self._arena.message()}")
        return tvm_ffi.from_dlpack(_Exported(made))


def _computes_on_gpu(library: ctypes.CDLL) -> bool:
    return hasattr(library, DEVICE_OF) and library[DEVICE_OF]() == CUDA_DEVICE


def _on_gpu(spec: Spec, tensors: Mapping[str, Any]) -> Any:
    if spec.name not in tensors:
        raise InputError(f"missing tensor '{spec.name}'")
    tensor = tvm_ffi.from_dlpack(tensors[spec.name])
    found = f"{tensor.dtype}{list(tensor.shape)} on {tensor.device}"
    fits = tuple(tensor.shape) == spec.shape and str(tensor.dtype) == spec.runtime_dtype
    place = (tensor.device.dlpack_device_type(), tensor.device.index)
    if not fits or place != (CUDA_DEVICE, 0) or not tensor.is_contiguous():
        raise InputError(f"'{spec.name}' is {found}; expected a contiguous {spec} on cuda:0")
    return tensor


def _refuse_unknown(kind: str, tensors: Mapping[str, Any], specs: Sequence[Spec]) -> None:
    names = [spec.name for spec in specs]
    for name in tensors:
        if name not in names:
            raise InputError(f"unknown {kind} '{name}': the model has {', '.join(names)}")


def planned_functions(library: ctypes.CDLL, threads: int) -> dict[str, Callable[..., Any]]:
    """The functions by name that run the C interface's entry points from any thread; empty without it.

    They take the inputs, then the states, as runtime tensors, and return the outputs, then the states.
    """
    if not hasattr(library, RUN_PLAN):
        return {}
    library.bessemer_model_entries.restype = ctypes.POINTER(_Entry)
    count = ctypes.c_int32()
    entries = library.bessemer_model_entries(ctypes.byref(count))
    sessions = Sessions(lambda: Arena(library, threads))
    return {
        entries[index].name.decode(): partial(sessions.call, _plan(index, entries[index]))
        for index in range(count.value)
    }


def _plan(index: int, entry: Any) -> Plan:
    outputs = (entry.outputs[each] for each in range(entry.output_count))
    specs = (
        Spec(each.name.decode(), tuple(each.shape[: each.dimensions]), each.dtype.decode())
        for each in outputs
    )
    return Plan(index, entry.input_count, tuple(specs))


class Entry:
    """One entry point of the library.

    Attributes:
        name: its name.
        inputs: its inputs, without the state.
        outputs: its outputs, without the state.
        states: the state that it takes and returns.
        structure: the structure of the model's own arguments and result; None in an earlier release's bundle.
        seed: the input that is the seed of its random numbers, or None.
        sizes: its dynamic sizes.
        own_memory: the outputs that need no copy.
        function: runs it on runtime tensors: inputs, then state.
    """

    def __init__(
        self,
        folder: Path,
        document: Mapping[str, Any],
        function: Callable[..., Any],
        owns_outputs: bool = False,
    ) -> None:
        self.name = str(document.get("name", "main"))
        self.inputs = _specs(document["inputs"])
        self.outputs = _specs(document["outputs"])
        self.states = _specs(document.get("state", ()))
        call = document.get("call") or {}
        self.structure = Call(call) if call.get("returns") else None
        self.seed: str | None = document.get("seed")
        self.sizes = Sizes(document.get("dynamic", {}))
        own = (spec.name for spec in self.outputs) if owns_outputs else document.get("own_memory", ())
        self.own_memory = frozenset(own)
        self.function = function
        self._folder = folder
        self._document = document

    @property
    def seeds(self) -> tuple[Spec, ...]:
        """The seed's spec, if it takes one."""
        return tuple(spec for spec in self.inputs if spec.name == self.seed)

    def with_seed(self, inputs: Arrays) -> Arrays:
        """The inputs, with a new seed if the entry point takes one and they have none."""
        if self.seed is None or self.seed in inputs:
            return inputs
        return {**inputs, self.seed: np.array(int.from_bytes(os.urandom(8), "little") & MAX_SEED, np.int64)}

    def arrays(self, inputs: Arrays) -> tuple[list[np.ndarray[Any, Any]], dict[str, int]]:
        """The inputs in order, and their dynamic sizes. Raises ``InputError``."""
        _check_names(self.inputs, inputs, self.sizes)
        arrays = [as_input(spec, inputs[spec.name]) for spec in self.inputs]
        chosen = self.sizes.choose([(spec, array.shape) for spec, array in zip(self.inputs, arrays)])
        return [_checked(spec, array) for spec, array in zip(self.inputs, arrays)], chosen

    def tensors(self, inputs: Arrays) -> tuple[list[Any], dict[str, int]]:
        """The inputs as runtime tensors, and their dynamic sizes. Raises ``InputError``."""
        arrays, chosen = self.arrays(inputs)
        return [_lent(spec, array) for spec, array in zip(self.inputs, arrays)], chosen

    def call(self, arguments: Sequence[Any]) -> list[Any]:
        """Run on runtime tensors and return the outputs and the state. Raises ``BundleError``."""
        tensors = list(_flatten(_guarded(partial(self.function, *arguments))))
        expected = len(self.outputs) + len(self.states)
        if len(tensors) != expected:
            raise BundleError(f"the library returned {len(tensors)} tensors, expected {expected}")
        return tensors

    def call_structure(self) -> Call:
        """The structure of the model's own arguments and result. Raises ``BundleError`` if it is unknown."""
        if self.structure is None:
            raise BundleError("an earlier release made this bundle: use run, with arrays by name")
        return self.structure

    def initial_state(self) -> dict[str, np.ndarray[Any, Any]]:
        """The state before the first run, by name."""
        with _reading(self._folder):
            files = {entry["name"]: entry["file"] for entry in self._document.get("state", ())}
            return {name: _read_array(str(_inside(self._folder, file))) for name, file in files.items()}

    def reference_inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """The inputs of the verification."""
        with _reading(self._folder):
            return load_arrays(_inside(self._folder, self._document["reference"]["inputs"]))

    def compare(self, outputs: Arrays) -> tuple[Comparison, ...]:
        """Compare outputs for the reference inputs with the original model's outputs."""
        with _reading(self._folder):
            references = load_arrays(_inside(self._folder, self._document["reference"]["outputs"]))
        with _using(self._folder):
            tolerances = {entry["name"]: entry for entry in self._document.get("tolerances", ())}
            exact = {"relative": 0.0, "absolute": 0.0}
            outputs = self._in_order(outputs, references, tolerances)
            return tuple(
                _compare(spec, outputs[spec.name], references[spec.name], tolerances.get(spec.name, exact))
                for spec in self.outputs
            )

    def _in_order(self, outputs: Arrays, references: Arrays, tolerances: Mapping[str, Any]) -> Arrays:
        """The outputs, with tied results in the order of the references."""
        ordered = dict(outputs)
        for names in self.sizes.results():
            if any(outputs[name].shape != references[name].shape for name in names):
                continue
            columns = [
                Column(
                    as_numbers(outputs[spec.name], spec.dtype),
                    as_numbers(references[spec.name], spec.dtype),
                    tolerances.get(spec.name, {}).get("relative", 0.0),
                    tolerances.get(spec.name, {}).get("absolute", 0.0),
                )
                for spec in self.outputs
                if spec.name in names
            ]
            order = order_ties(columns)
            ordered.update((name, outputs[name][order]) for name in names)
        return ordered


class Model:
    """A loaded library. Keep it alive while you use its results.

    Any number of threads may call it at once, unless the model keeps state between runs: then each sequence
    of runs needs a ``session`` of its own, which one thread uses at a time. ``run``, ``state`` and ``reset``
    of the model itself belong to a first session.

    Most libraries have one entry point. If there are several, ``entry`` names one of ``entries``; by default,
    methods and attributes refer to the first. Entry points share the state that has the same name.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Mapping[str, Any],
        entries: Sequence[Entry],
        threads: int,
        library: ctypes.CDLL | None = None,
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self.entries = {entry.name: entry for entry in entries}
        self.threads = threads
        self._library = library
        first = entries[0]
        self.inputs, self.outputs, self.sizes = first.inputs, first.outputs, first.sizes
        self.states = tuple({spec.name: spec for entry in entries for spec in entry.states}.values())
        self._default = first
        self._initial = {name: array for entry in entries for name, array in entry.initial_state().items()}
        self._first = Session(self)

    def entry(self, name: str | None = None) -> Entry:
        """An entry point by its name. Raises ``InputError``."""
        if name is None:
            return self._default
        if name not in self.entries:
            raise InputError(f"unknown entry '{name}': the library has {', '.join(self.entries)}")
        return self.entries[name]

    def session(self) -> Session:
        """A new sequence of runs, which begins with the initial state."""
        return Session(self)

    @property
    def device(self) -> str:
        """Where the library computes: ``cpu``, or ``cuda`` for the first GPU."""
        return "cuda" if self._library is not None and _computes_on_gpu(self._library) else "cpu"

    def gpu_session(self) -> GpuSession:
        """A sequence of runs on tensors in the GPU's memory. Raises ``BundleError``."""
        if self._library is None or self.device != "cuda":
            raise BundleError("the library computes on the processor")
        return GpuSession(self._library, tuple(self.entries.values()))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the first entry point in the first session; see ``Session.call``."""
        return self._first.call(args, kwargs)

    def call(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, entry: str | None = None
    ) -> Any:
        """Run once in the first session; see ``Session.call``."""
        return self._first.call(args, kwargs, entry)

    def run(self, inputs: Arrays, entry: str | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """Run once in the first session; see ``Session.run``."""
        return self._first.run(inputs, entry)

    @property
    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """The state of the first session, by name. Assign arrays to continue from another."""
        return self._first.state

    @state.setter
    def state(self, arrays: Arrays) -> None:
        self._first.state = arrays

    @property
    def seed(self) -> int | None:
        """The seed of the first session's last run; None before, and if the model draws no random numbers."""
        return self._first.seed

    def reset(self) -> None:
        """Return the first session to the initial state."""
        self._first.reset()

    def time(self, inputs: Arrays, repeat: int, entry: str | None = None) -> Latency:
        """Time ``repeat`` runs one by one after a warm-up. Raises the same errors as ``run``."""
        call = self.bind(inputs, entry)
        for _ in range(min(repeat, WARM_UP_RUNS)):
            _guarded(call)
        times_ms = []
        for _ in range(repeat):
            start = time.perf_counter_ns()
            call()
            times_ms.append((time.perf_counter_ns() - start) / 1e6)
        return Latency.of(times_ms)

    def bind(self, inputs: Arrays, entry: str | None = None) -> Callable[[], Any]:
        """A function that runs on these inputs without copies, for timing.

        Any thread may call it, unless the model keeps state: then one thread at a time.

        Raises:
            InputError: see ``run``.
        """
        point = self.entry(entry)
        tensors, _ = point.tensors(point.with_seed(self._without_state(inputs)))
        states = self._state_tensors(self.state)
        return partial(point.function, *tensors, *(states[spec.name] for spec in point.states))

    def drawn(self, inputs: Arrays, entry: str | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """The seed that the last run on these inputs drew, by its name; empty if it drew none."""
        name = self.entry(entry).seed
        return {} if name is None or name in inputs else {name: np.array(self.seed, np.int64)}

    def reference_inputs(self, entry: str | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """The inputs of the verification."""
        return self.entry(entry).reference_inputs()

    def compare(self, outputs: Arrays, entry: str | None = None) -> tuple[Comparison, ...]:
        """Compare outputs for the reference inputs with the original model's outputs."""
        return self.entry(entry).compare(outputs)

    def _without_state(self, inputs: Arrays) -> Arrays:
        if not hasattr(inputs, "items"):
            raise InputError(f"the inputs are a {type(inputs).__name__}; pass arrays by name, as {{'x': x}}")
        names = {spec.name for spec in self.states}
        return {name: array for name, array in inputs.items() if name not in names}

    def _state_tensors(self, arrays: Arrays) -> dict[str, Any]:
        """New tensors, which the library may write to, by name."""
        tensors = {}
        for spec in self.states:
            tensors[spec.name] = _to_tensor(spec, state_array(spec, arrays[spec.name]))
        return tensors


class Session:
    """A sequence of runs of a model that keeps state; one run at a time.

    Attributes:
        seed: the seed of the last run; None before, and if the model draws no random numbers.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.seed: int | None = None
        self.reset()

    def reset(self) -> None:
        """Return to the initial state."""
        self._tensors = self._model._state_tensors(self._model._initial)

    @property
    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """The current state, by name. Assign arrays to continue from another; others keep their values."""
        return {spec.name: _to_array(self._tensors[spec.name], spec) for spec in self._model.states}

    @state.setter
    def state(self, arrays: Arrays) -> None:
        names = [spec.name for spec in self._model.states]
        strange = [name for name in arrays if name not in names]
        if strange:
            raise InputError(
                f"unknown state '{strange[0]}': the model keeps {', '.join(names) or 'no state'}"
            )
        self._tensors = self._model._state_tensors({**self.state, **arrays})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the first entry point; see ``call``."""
        return self.call(args, kwargs)

    def call(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, entry: str | None = None
    ) -> Any:
        """Run once with the model's own arguments, and keep the new state.

        Args:
            args: the arguments by position: arrays, and lists, tuples, dictionaries and objects of arrays as
                the model takes them. An object may be given as a dictionary of its fields, and a scalar as a
                Python number.
            kwargs: the arguments by name. Values that the library is compiled for may be left out. The seed
                of a model that draws random numbers is one more.
            entry: the entry point; by default, the first.

        Returns:
            The model's own result: an array, or a list, a tuple, a dictionary or a named tuple of arrays, and
            None where the model returns None. Objects of other classes become a ``SimpleNamespace``.

        Raises:
            InputError: an argument is missing, unknown, or does not match the model.
            BundleError: see ``run``; or an earlier release made the bundle.
        """
        point = self._model.entry(entry)
        structure = point.call_structure()
        seeds = {name: value for name, value in (kwargs or {}).items() if name == point.seed}
        own = {name: value for name, value in (kwargs or {}).items() if name not in seeds}
        with _using(self._model.folder):
            arrays = structure.flatten(args, own)
        outputs = self.run({**arrays, **seeds}, entry)
        with _using(self._model.folder):
            return structure.restore(outputs)

    def run(self, inputs: Arrays, entry: str | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """Run once, and keep the new state.

        Args:
            inputs: one array for each of the entry point's inputs, with its dtype and shape, or a Python
                number for a scalar; the shape may differ in dynamic sizes. An array of any library that
                supports DLPack is read in place if it is contiguous and begins at a multiple of 64 bytes, as
                torch's do. Arrays with the names of the state replace it before the run. Without the seed of
                a model that draws random numbers, the run draws a new one, see ``seed``.
            entry: the entry point; by default, the first.

        Returns:
            One array for each of the entry point's outputs, mostly in the memory to which the library has
            written it. ``torch.from_dlpack`` takes it without a copy.

        Raises:
            InputError: a name, shape or dtype does not match the model, or the inputs have no names.
            BundleError: the library failed, or its outputs do not match the manifest.
        """
        point = self._model.entry(entry)
        own = self._model._without_state(inputs)
        seeded = point.with_seed(own)
        given, chosen = point.tensors(seeded)
        if len(own) < len(inputs):
            self.state = {name: array for name, array in inputs.items() if name not in own}
        self.seed = None if point.seed is None else int(seeded[point.seed])
        tensors = point.call([*given, *(self._tensors[spec.name] for spec in point.states)])
        for spec, tensor in zip((*point.outputs, *point.states), tensors):
            known = point.sizes.suits(spec, spec.shape_of(tensor), chosen)
            if not known or str(tensor.dtype) != spec.runtime_dtype:
                raise BundleError(
                    f"the library returned {tuple(tensor.shape)} {tensor.dtype}, expected {spec}"
                )
        after = tensors[len(point.outputs) :]
        self._tensors.update((spec.name, tensor) for spec, tensor in zip(point.states, after))
        taken = {True: _shared, False: _to_array}
        pairs = zip(point.outputs, tensors)
        return {spec.name: taken[spec.name in point.own_memory](tensor, spec) for spec, tensor in pairs}


def load(
    bundle: str | os.PathLike[str],
    parameters: str | os.PathLike[str] | None = None,
    functions: str | os.PathLike[str] | Mapping[str, Callable[..., Any]] | None = None,
    huge_pages: bool = False,
) -> Model:
    """Load the library of an unpacked bundle.

    ``TVM_NUM_THREADS`` defaults to the target's cores; the first run in a process fixes it. The library's
    files are checked against their sizes and SHA-256 digests before they are loaded, except large parameters,
    which the library reads in place.

    Args:
        bundle: the directory with ``manifest.json``.
        parameters: a ``.safetensors`` file that replaces the bundle's weights, if these are separate.
        functions: the functions that the library calls but does not contain: a Python file whose
            ``FUNCTIONS`` has them by name, or such a dictionary. They are registered for the whole process.
        huge_pages: copy the library's parameters to pages of 2 MiB of this process. Otherwise processes share
            them, in the pages of the system's cache.

    Raises:
        BundleError: the bundle is for another platform, a file is missing, damaged, or cannot be loaded here,
            or a function is missing.
    """
    folder = Path(bundle).resolve()
    manifest = _read_manifest(folder)
    with _using(folder):
        _require_platform(str(manifest["target"].get("triple", "")))
    if functions is not None:
        register_functions(functions)
    with _using(folder):
        _require_functions(manifest.get("functions", ()))
    with _using(folder):
        threads = _threads(manifest["target"]["cores"])
        path = _inside(folder, manifest["library"])
    try:
        for name in manifest["runtime_libraries"]:
            _load_runtime(folder, manifest, name)
        _check_file(folder, manifest, manifest["library"])
        documents = (manifest, *manifest.get("entries", ()))
        _register_effects()
        library = tvm_ffi.load_module(str(path))
        exported = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD)
        _map_parameters(exported, huge_pages)
        prepared = _prepared_parameters(folder, manifest, library, parameters)
        planned = planned_functions(exported, threads)
        calls = [
            planned.get(str(each.get("name", "main"))) or _function(library, each["entry_point"], prepared)
            for each in documents
        ]
        _release_blob(exported)
    except BundleError:
        raise
    except Exception as error:
        raise BundleError(f"{path} cannot be loaded: {error}") from error
    with _using(folder):
        entries = [
            Entry(folder, each, function, owns_outputs=bool(planned))
            for each, function in zip(documents, calls)
        ]
        return Model(folder, manifest, entries, threads, exported)


def _require_platform(triple: str) -> None:
    """Refuse another architecture or system. Names that are not in the tables, such as i686, decide nothing.

    An emulator names the processor that it emulates, so what runs under one passes.
    """
    if sys.platform not in SYSTEMS or not hasattr(os, "uname"):
        return
    here = os.uname()
    machine = MACHINES.get(here.machine, "")
    architecture, *words = triple.split("-")
    built_for = {name for name, prefix in SYSTEMS.items() if any(word.startswith(prefix) for word in words)}
    is_foreign = bool(built_for) and sys.platform not in built_for
    if is_foreign or (machine and architecture in MACHINES.values() and machine != architecture):
        name = f"{here.machine} {here.sysname}" if is_foreign else here.machine
        raise BundleError(f"this bundle is for {triple}; this machine is {name}")


def _register_effects() -> None:
    """Register the functions behind ``R.print`` and ``R.assert_op``, unless TVM's Python package did."""
    for name, function in {"relax.run.print": _print, "relax.run.assert_op": _assert}.items():
        if tvm_ffi.get_global_func(name, allow_missing=True) is None:
            tvm_ffi.register_global_func(name, function)


def _print(text: str, *values: Any) -> None:
    print(_formatted(text, values, " "))


def _assert(condition: Any, text: str, *values: Any) -> None:
    if not bool(_printable(condition)):
        raise AssertionError(_formatted(text, values, ", ") or "an assertion of the model failed")


def _formatted(text: str, values: Sequence[Any], separator: str) -> str:
    shown = list(map(_printable, values))
    return text.format(*shown) if text else separator.join(map(str, shown))


def _printable(value: Any) -> Any:
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else value


def register_functions(functions: str | os.PathLike[str] | Mapping[str, Callable[..., Any]]) -> None:
    """Register functions for libraries of this process to call, in place of others of the same names.

    Args:
        functions: the functions by name, or a Python file whose ``FUNCTIONS`` has them. The file may also
            register some itself, with ``tvm_ffi.register_global_func`` or ``tvm.register_func``.

    Raises:
        BundleError: the file does not load, or its ``FUNCTIONS`` is something else.
    """
    if not isinstance(functions, Mapping):
        functions = _functions_of(Path(functions))
    for name, function in functions.items():
        tvm_ffi.register_global_func(str(name), function, override=True)


def _functions_of(path: Path) -> Mapping[str, Callable[..., Any]]:
    try:
        with _tvm_names(path.read_text(encoding="utf-8")):
            found = runpy.run_path(str(path), run_name=path.stem).get("FUNCTIONS", {})
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        place = f"{path}, line {lines[-1]}" if lines else str(path)
        raise BundleError(f"{place}: {type(error).__name__}: {error}") from error
    if not isinstance(found, Mapping) or not all(map(callable, found.values())):
        raise BundleError(f"{path}: FUNCTIONS is not a dictionary of functions by name")
    return found


@contextmanager
def _tvm_names(source: str) -> Iterator[None]:
    """Add to ``tvm``, inside the context, the names with which files of any version register functions.

    Where TVM is not installed, the module ``tvm`` has nothing else.
    """
    if re.search(r"^\s*(import|from)\s+tvm\b", source, re.MULTILINE) is None:
        yield
        return
    try:
        tvm = importlib.import_module("tvm")
    except ModuleNotFoundError:
        tvm = sys.modules["tvm"] = ModuleType("tvm")
    names = {
        "register_func": tvm_ffi.register_global_func,
        "register_global_func": tvm_ffi.register_global_func,
        "nd": SimpleNamespace(NDArray=tvm_ffi.Tensor),
        "runtime": SimpleNamespace(Tensor=tvm_ffi.Tensor),
    }
    added = [name for name in names if not hasattr(tvm, name)]
    for name in added:
        setattr(tvm, name, names[name])
    try:
        yield
    finally:
        if tvm.__spec__ is None:
            del sys.modules["tvm"]
        for name in added:
            delattr(tvm, name)


def _require_functions(names: Sequence[str]) -> None:
    missing = [name for name in names if tvm_ffi.get_global_func(name, allow_missing=True) is None]
    if missing:
        raise BundleError(
            f"the library calls {', '.join(map(repr, missing))}, which this process lacks: add "
            "--functions FILE.py, or load(bundle, functions=...)"
        )


def _prepared_parameters(
    folder: Path, manifest: Mapping[str, Any], library: Any, other: str | os.PathLike[str] | None
) -> tuple[Any, ...]:
    """The separate parameters as entry points take them; empty if the library contains its parameters."""
    entry = manifest.get("parameters")
    if entry is None:
        if other is not None:
            raise BundleError("the library contains its parameters, so it cannot use others")
        return ()
    wanted = ParameterReader(entry)
    prepare = _start_machine(library)[wanted.prepare]
    path = Path(other or _inside(folder, wanted.file))
    with on_huge_pages() if path.stat().st_size >= MIN_HUGE_BYTES else nullcontext():
        return wanted.prepared(prepare, path)


def _function(library: Any, name: str, prepared: tuple[Any, ...]) -> Callable[..., Any]:
    """The function that runs an entry point on its inputs, from any thread."""
    call = Sessions(lambda: partial(_with_helpers, _start_machine(library)[name])).call
    return (lambda *inputs: call(*inputs, *prepared)) if prepared else call


def _guarded(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        reason = (
            "a size that follows from the inputs' values is out of range: "
            if SIZE_CHECK in str(error)
            else ""
        )
        raise BundleError(f"the library failed: {reason}{error}") from error


def _start_machine(library: Any) -> Any:
    machine = library["vm_load_executable"]()
    machine["vm_initialization"](CPU_DEVICE, 0, POOLED_ALLOCATOR)
    return machine


def _check_file(folder: Path, manifest: Mapping[str, Any], name: str) -> None:
    """Compare a file with the manifest, because loading a truncated library crashes with a bus error."""
    path = _inside(folder, name)
    expected = next((entry for entry in manifest["files"] if entry["path"] == name), None)
    if expected is None:
        raise BundleError(f"manifest.json does not list {path}")
    remedy = "unpack the bundle again"
    try:
        size = path.stat().st_size
        if size != expected["size_bytes"]:
            raise BundleError(f"{path} is damaged: {size} of {expected['size_bytes']} bytes; {remedy}")
        held = manifest.get("held_parameters") if name == manifest["library"] else None
        if not _is_intact(path, expected["digest"], held):
            raise BundleError(f"{path} is damaged: its SHA-256 differs from manifest.json; {remedy}")
    except OSError as error:
        raise BundleError(f"{path} cannot be loaded: {error.strerror}; {remedy}") from error


def _is_intact(path: Path, expected: str, held: Mapping[str, Any] | None) -> bool:
    """Whether a file has the digest; of a library that holds large parameters, the bytes around these."""
    start, end = (held["offset"], held["offset"] + held["size_bytes"]) if held else (0, 0)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        _update(digest, file, start)
        file.seek(end)
        _update(digest, file, path.stat().st_size - end)
    return digest.hexdigest() == (held["rest_digest"] if held else expected)


def _update(digest: Any, file: Any, size: int) -> None:
    while size > 0 and (chunk := file.read(min(size, CHUNK_BYTES))):
        digest.update(chunk)
        size -= len(chunk)


def _map_parameters(library: ctypes.CDLL, huge_pages: bool) -> None:
    """Map the library's parameters, so that the first run does not fault page by page.

    The parameters stay in the system's page cache, which processes share. They are mapped in large pages
    where the cache has them. ``huge_pages`` moves them to private pages of 2 MiB.
    """
    if hasattr(library, MAP_PARAMETERS):
        library[MAP_PARAMETERS](ctypes.c_int32(huge_pages))


def _release_blob(library: ctypes.CDLL) -> None:
    """Unmap the constants among the virtual machine's instructions, which TVM has copied.

    Otherwise a process would hold them twice. A page that is read again is reloaded from the file.
    """
    try:
        blob = ctypes.c_uint64.in_dll(library, LIBRARY_BLOB)
    except ValueError:
        return
    start = ctypes.addressof(blob)
    end = start + ctypes.sizeof(blob) + blob.value
    first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED)


def _forget_pages(arrays: Sequence[np.ndarray[Any, Any]]) -> None:
    """Unmap the pages of a file that was read. A page that is used again comes from the system's cache."""
    for file in {id(file): file for file in (getattr(array, "_mmap", None) for array in arrays)}.values():
        if isinstance(file, mmap.mmap):
            file.madvise(mmap.MADV_DONTNEED)


@contextmanager
def on_huge_pages() -> Iterator[None]:
    """Move the memory that the block allocates to pages of 2 MiB, as far as Linux (6.1 or later) has some.

    A run of a model with few rows, such as a decoder's step, takes as long as reading its parameters, and
    the processor looks up and prefetches memory page by page.
    """
    before = _anonymous_memory()
    yield
    system = ctypes.CDLL(None)
    for start, end in _anonymous_memory():
        first = -(-start // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        for address in range(first, end - HUGE_PAGE_BYTES + 1, HUGE_PAGE_BYTES):
            if any(low <= address < high for low, high in before):
                continue
            if system.madvise(ctypes.c_void_p(address), ctypes.c_size_t(HUGE_PAGE_BYTES), MADV_COLLAPSE):
                return


def _anonymous_memory() -> list[tuple[int, int]]:
    """The ranges of addresses that the process may write and that belong to no file; empty if unknown."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    fields = [line.split() for line in lines]
    ranges = [each[0].split("-") for each in fields if each[1].startswith("rw") and each[4] == "0"]
    return [(int(low, 16), int(high, 16)) for low, high in ranges]


def load_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Read every array of an ``.npz`` file, by name. Raises ``InputError`` if the file is not valid."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = archive.files
            arrays = {name: archive[name] for name in names}
    except Exception as error:  # NumPy, zipfile and zlib raise many kinds for damaged bytes
        raise _unreadable(path, ".npz", error) from error
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"{path} cannot be read as an .npz file: it contains {repeated[0]!r} twice")
    strange = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if strange:
        raise InputError(f"{path} cannot be read as an .npz file: {strange[0]!r} is not an array")
    return arrays


def save_arrays(path: Path, arrays: Arrays) -> None:
    """Write an ``.npz`` file. Unlike with ``numpy.savez``, an array may have any name, even ``file``.

    Raises:
        OSError: the file cannot be written.
    """
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError) as error:
        raise BundleError(f"{folder} is not a bundle: {error}") from error
    with _using(folder):
        version = manifest.get("schema_version")
    if version != 1:
        raise BundleError(f"{folder} has a manifest of the unsupported version {version}")
    return manifest


@contextmanager
def _using(folder: Path) -> Iterator[None]:
    """Report missing or malformed parts of the manifest as damage."""
    try:
        yield
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        damage = f"{type(error).__name__}: {error}"
        path = folder / "manifest.json"
        raise BundleError(f"{path} is damaged ({damage}); unpack the bundle again") from error


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Report damaged arrays of the bundle, too."""
    try:
        with _using(folder):
            yield
    except InputError as error:
        raise BundleError(f"{error}; unpack the bundle again") from error


def _inside(folder: Path, name: str) -> Path:
    """The path of a file, which must be inside the bundle."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise BundleError(f"manifest.json names {name!r}, which is outside the bundle {folder}")
    return folder / path


def _threads(cores: int) -> int:
    text = os.environ.setdefault("TVM_NUM_THREADS", str(cores))
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"TVM_NUM_THREADS is '{text}'; expected a number of threads")
    return int(text)


def _load_runtime(folder: Path, manifest: Mapping[str, Any], name: str) -> None:
    path = folder / name
    # A process can contain only one copy: if TVM itself is imported, use its copy.
    try:
        ctypes.CDLL(path.name, mode=os.RTLD_NOLOAD | ctypes.RTLD_GLOBAL)
    except OSError:
        _check_file(folder, manifest, name)
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def _specs(entries: Sequence[Mapping[str, Any]]) -> tuple[Spec, ...]:
    return tuple(
        Spec(str(entry["name"]), tuple(map(int, entry["shape"])), str(entry["dtype"])) for entry in entries
    )


def _check_names(specs: Sequence[Spec], inputs: Arrays, sizes: Sizes) -> None:
    names = [spec.name for spec in specs]
    takes = f"the model takes {', '.join(map(sizes.takes, specs)) or 'no inputs'}"
    for name in inputs:
        if name not in names:
            raise InputError(f"unknown input '{name}': {takes}")
    absent = [name for name in names if name not in inputs]
    if absent:
        raise InputError(f"missing input {', '.join(absent)}: {takes}")


NUMBER_KINDS = {bool: "biufc", int: "iufc", float: "fc", complex: "c"}
"""The kinds of NumPy dtypes that accept each type of Python number, as in the casting rule ``same_kind``."""


def as_input(spec: Spec, value: Any) -> np.ndarray[Any, Any]:
    """The array of an input. A Python number is converted to the input's dtype, which may round it."""
    if spec.dtype == "bfloat16" or spec.numpy_dtype.kind not in NUMBER_KINDS.get(type(value), ""):
        return _as_array(spec, value)
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(value).astype(spec.numpy_dtype)
    except OverflowError:
        array = None
    is_integer = spec.numpy_dtype.kind in "iu"
    if array is None or (array != value if is_integer else np.isinf(array) and abs(value) != np.inf):
        raise InputError(f"input '{spec.name}' is {value}, which is out of range for {spec.dtype}")
    return array


def _checked(spec: Spec, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if spec.dtype == "bfloat16" and array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    if array.dtype != spec.numpy_dtype:
        raise InputError(f"input '{spec.name}' has the dtype {array.dtype}, expected {spec.numpy_dtype}")
    return array


def state_array(spec: Spec, value: Any) -> np.ndarray[Any, Any]:
    """The array of a state. Raises ``InputError`` if its shape or dtype does not match."""
    array = _checked(spec, np.asarray(value))
    if array.shape != spec.shape:
        raise InputError(f"the state '{spec.name}' has the shape {array.shape}, expected {spec.shape}")
    return array


def _as_array(spec: Spec, value: Any) -> np.ndarray[Any, Any]:
    """An input as a NumPy array. DLPack converts another library's array without a copy."""
    try:
        if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        pass  # NumPy lacks the dtype, or is too old
    try:
        return np.asarray(value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"input '{spec.name}' cannot be read as an array: {error}") from error


def _lent(spec: Spec, array: np.ndarray[Any, Any]) -> Any:
    """An input as a runtime tensor: the caller's memory, or a copy if generated code cannot read that."""
    if array.ctypes.data % ALIGNMENT_BYTES or not array.flags.c_contiguous or spec.dtype == "bfloat16":
        return _to_tensor(spec, array)
    try:
        if spec.dtype in PARTS:
            return tvm_ffi.from_dlpack(array.reshape(*array.shape, 1).view(spec.runtime_dtype))
        return tvm_ffi.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError):
        return _to_tensor(spec, array)  # NumPy does not share read-only arrays


def _shared(tensor: Any, spec: Spec) -> np.ndarray[Any, Any]:
    """An array in a tensor's memory, which it keeps alive; a copy if NumPy lacks the dtype."""
    try:
        array: np.ndarray[Any, Any] = np.from_dlpack(tensor)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return _to_array(tensor, spec)
    if array.dtype != np.dtype(spec.runtime_dtype) or not array.flags.writeable:
        return _to_array(tensor, spec)
    return array.view(spec.numpy_dtype).reshape(spec.shape_of(tensor))


def _to_tensor(spec: Spec, value: np.ndarray[Any, Any]) -> Any:
    """Copy an array into a runtime tensor, with the alignment that generated code expects."""
    array = np.ascontiguousarray(value).reshape(value.shape)
    tensor = _empty(spec, array.shape)
    ctypes.memmove(tensor.data_ptr(), array.ctypes.data, array.nbytes)
    return tensor


def _empty(spec: Spec, shape: tuple[int, ...]) -> Any:
    """A new runtime tensor of a spec's dtype."""
    sizes = (*shape, 2) if spec.dtype in PARTS else shape
    return _allocator()(*_kind(sizes, spec.runtime_dtype), None)


@lru_cache(maxsize=1024)
def _kind(shape: tuple[int, ...], dtype: str) -> tuple[Any, Any, Any]:
    """The runtime's shape, dtype and processor objects: making them takes longer than a small run."""
    return tvm_ffi.Shape(shape), tvm_ffi.dtype(dtype), tvm_ffi.device("cpu", 0)


@cache
def _allocator() -> Callable[..., Any]:
    allocate: Callable[..., Any] | None = tvm_ffi.get_global_func(ALLOCATE, allow_missing=True)
    if allocate is None:
        raise BundleError("the bundle has no runtime for Python here: call `./run`, or use `gpu_session()`")
    return allocate


def _to_array(tensor: Any, spec: Spec) -> np.ndarray[Any, Any]:
    array = np.empty(spec.shape_of(tensor), spec.numpy_dtype)
    ctypes.memmove(array.ctypes.data, tensor.data_ptr(), array.nbytes)
    return array


def _flatten(result: Any) -> Iterator[Any]:
    if isinstance(result, tvm_ffi.Tensor):
        yield result
        return
    for part in result:
        yield from _flatten(part)


def as_numbers(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype in PARTS:
        return np.stack((array.real, array.imag), -1).astype(np.float64)
    return array if dtype == "int64" else array.astype(np.float64)


def _compare(
    spec: Spec, output: np.ndarray[Any, Any], reference: np.ndarray[Any, Any], tolerance: Mapping[str, Any]
) -> Comparison:
    if output.shape != reference.shape:
        count = max(output.size, reference.size)
        return Comparison(spec.name, False, count, 0.0, output.shape, reference.shape)
    errors, far = _errors(
        as_numbers(output, spec.dtype),
        as_numbers(reference, spec.dtype),
        tolerance["relative"],
        tolerance["absolute"],
    )
    return Comparison(
        name=spec.name,
        matches=not far.any(),
        mismatches=int(far.sum()),
        max_absolute_error=float(np.max(errors, initial=0)),
    )


def _errors(actual: Any, expected: Any, relative: float, absolute: float) -> tuple[Any, Any]:
    """The absolute error of each element, and whether it is too large."""
    with np.errstate(invalid="ignore", over="ignore"):
        errors = _distances(actual, expected)
        allowed = absolute + relative * np.abs(expected)
    same = (actual == expected) | ((actual != actual) & (expected != expected))
    # an infinite reference would otherwise allow every error
    far = ~same & ~((errors <= allowed) & np.isfinite(expected))
    return np.where(same, 0, errors), far


def _distances(actual: Any, expected: Any) -> Any:
    """The absolute differences. Those of integers are unsigned, as they may exceed the signed type."""
    if actual.dtype.kind != "i":
        return np.abs(actual - expected)
    distances = np.where(actual > expected, actual - expected, expected - actual)
    return distances.view(f"u{distances.dtype.itemsize}")


@dataclass(frozen=True)
class Column:
    """An output with one row for each result, such as a box in an image, and its reference, as numbers."""

    output: np.ndarray[Any, Any]
    reference: np.ndarray[Any, Any]
    relative: float
    absolute: float

    @property
    def can_order(self) -> bool:
        """Whether the model may have sorted its results by these numbers: one inexact number each."""
        return self.reference.ndim == 1 and self.relative > 0

    def equal(self, rows: Any, reference_rows: Any) -> Any:
        """Whether rows of the output equal rows of the reference."""
        return self._equal(self.output[rows], self.reference[reference_rows], np.ndim(rows))

    def ties(self, rows: Any, other_rows: Any) -> Any:
        """Whether rows of the reference equal others of the reference."""
        return self._equal(self.reference[rows], self.reference[other_rows], np.ndim(rows))

    def _equal(self, left: Any, right: Any, axes: int) -> Any:
        far = _errors(left, right, self.relative, self.absolute)[1]
        return ~far.any(axis=tuple(range(axes, far.ndim)))


def order_ties(columns: Sequence[Column]) -> np.ndarray[Any, Any]:
    """The row order in which the outputs equal the references if only ties differ; else their own order.

    In models that sort their results, rounding errors decide the order of results with equal scores.

    Args:
        columns: the outputs whose rows belong to the same results.
    """
    order = np.arange(len(columns[0].reference))
    off = order[~np.logical_and.reduce([column.equal(order, order) for column in columns])]
    scores = [column for column in columns if column.can_order]
    work = len(off) ** 2 * sum(column.reference[:1].size for column in columns)
    if not len(off) or not scores or work > MAX_TIED_ELEMENTS:
        return order
    rows, places = off[:, None], off[None, :]
    suits = np.logical_and.reduce([column.equal(rows, places) for column in columns])
    suits &= np.logical_or.reduce([column.ties(rows, places) for column in scores])
    free = suits.any(axis=0)
    found = order.copy()
    for row, suitable in zip(off, suits):
        choices = np.flatnonzero(suitable & free)
        if not len(choices):
            return order
        found[off[choices[0]]] = row
        free[choices[0]] = False
    return found


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n{self.format_usage()}")


def _count(text: str, least: int = 1) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"'{text}' must be a number from {least}")
    return int(text)


def _runs(text: str) -> int:
    return _count(text, least=0)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(description="Run the compiled model of this bundle.")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="one input's array, or a whole number such as a seed; repeat for each input; or one FILE.npz "
        "with all inputs; by default, run the reference inputs and compare the outputs",
    )
    parser.add_argument(
        "--parameters",
        metavar="FILE.safetensors",
        help="use these weights instead, if the bundle's are beside the library; disables the comparison",
    )
    parser.add_argument(
        "--inputs", metavar="FILE.npz", help="all inputs, as numpy.savez writes them; also --input FILE.npz"
    )
    parser.add_argument(
        "--output",
        "--outputs",
        type=Path,
        metavar="FILE.npz",
        help="write the outputs, and the state after the run, to this file, by name",
    )
    parser.add_argument(
        "--functions",
        action="append",
        default=[],
        metavar="FILE.py",
        help="Python file with the functions that the library calls and does not contain; repeat for several",
    )
    parser.add_argument(
        "--huge-pages",
        action="store_true",
        help="copy the parameters to private pages of 2 MiB: a decoder's step may be faster",
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), help="fail unless the library computes there; by default, either"
    )
    parser.add_argument("--entry", metavar="NAME", help="the entry point to run; by default, the first")
    parser.add_argument("--repeat", type=_runs, default=0, metavar="N", help="number of runs to time")
    parser.add_argument(
        "--threads",
        type=_count,
        metavar="N",
        help="threads to use; by default, TVM_NUM_THREADS, or one for each of the target's cores",
    )
    parser.add_argument(
        "--list", action="store_true", help="print the entry points with their inputs and outputs"
    )
    parser.add_argument("--json", action="store_true", help="print exactly one JSON document")
    return parser


def read_inputs(arguments: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Read ``NAME=FILE.npy`` and ``NAME=7`` arguments, or the one ``.npz`` file with all inputs.

    A whole number is an int64 scalar.

    Raises:
        InputError: an argument has another form or is repeated, or its file cannot be read.
    """
    if len(arguments) == 1 and "=" not in arguments[0] and arguments[0].endswith(".npz"):
        return load_arrays(Path(arguments[0]))
    inputs: dict[str, np.ndarray[Any, Any]] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or not name or not path:
            raise InputError(f"'{argument}' is not of the form NAME=FILE.npy")
        if name in inputs:
            raise InputError(f"input '{name}' is given twice")
        is_number = WHOLE_NUMBER.fullmatch(path)
        inputs[name] = np.array(int(path), np.int64) if is_number else _read_array(path)
    return inputs


def _read_array(path: str) -> np.ndarray[Any, Any]:
    """The array of an ``.npy`` file, or of an ``.npz`` file with a single one."""
    try:
        with Path(path).open("rb") as file:
            read = np.load(file, allow_pickle=False)
            names = [] if isinstance(read, np.ndarray) else read.files
            array = read[names[0]] if len(names) == 1 else read
    except Exception as error:  # NumPy, zipfile and zlib raise many kinds for damaged bytes
        raise _unreadable(path, ".npy", error) from error
    if len(names) > 1:
        raise InputError(f"{path} contains several arrays; pass one .npy file for each input")
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} contains no array")
    return array


def _unreadable(path: str | Path, kind: str, error: Exception) -> InputError:
    """What is wrong with a file of arrays, without NumPy's advice to unpickle it."""
    if isinstance(error, ValueError) and "pickle" in str(error):
        return InputError(f"{path} is not an {kind} file of numbers")
    reason = error.strerror if isinstance(error, OSError) else error
    return InputError(f"{path} cannot be read as an {kind} file: {reason}")


def _summary(spec: Spec, array: np.ndarray[Any, Any]) -> str:
    if array.size > SHOWN_ELEMENTS:
        return str(spec)
    numbers = as_numbers(array, spec.dtype) if spec.dtype == "bfloat16" else array
    return f"{spec} {np.array2string(numbers, precision=6, separator=', ')}"


def _listed(manifest: Mapping[str, Any]) -> Iterator[str]:
    """The entry points with their inputs and outputs, as ``./run --list`` prints them."""
    for entry in (manifest, *manifest.get("entries", ())):
        yield str(entry.get("name", "main"))
        dynamic = entry.get("dynamic", {})
        for kind in ("input", "output"):
            axes = _by_place(dynamic.get(f"{kind}s", ()))
            formulas = {place: _formula(axis).strip("[]") for place, axis in axes.items()}
            for tensor in entry[f"{kind}s"]:
                name, shape = tensor["name"], tensor["shape"]
                sizes = [formulas.get((name, axis), str(size)) for axis, size in enumerate(shape)]
                yield f"  {kind:<6} {name} {tensor['dtype']}[{', '.join(sizes)}]"


def execute(
    model: Model, inputs: Arrays, repeat: int, compares: bool = True, entry: str | None = None
) -> Outcome:
    """Run once, compare if ``inputs`` is empty, and time ``repeat`` runs. Raises as ``Model.run`` does.

    The outputs include the state after the run, and the seed if the run drew one. ``compares`` is False if
    the parameters differ from those of the references.
    """
    point = model.entry(entry)
    given = inputs or point.reference_inputs()
    outputs = {**model.run(given, entry), **model.state, **model.drawn(given, entry)}
    specs = (spec for spec in (*point.outputs, *model.states, *point.seeds) if spec.name in outputs)
    return Outcome(
        specs=tuple(replace(spec, shape=outputs[spec.name].shape) for spec in specs),
        outputs=outputs,
        threads=model.threads,
        comparisons=None if inputs or not compares else point.compare(outputs),
        latency=model.time(given, repeat, entry) if repeat > 0 else None,
        seed=model.seed,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bundle that contains this file; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.list:
            print("\n".join(_listed(_read_manifest(Path(__file__).parent))))
            return 0
        if options.threads is not None:
            os.environ["TVM_NUM_THREADS"] = str(options.threads)
        inputs = read_inputs([*options.input, *([options.inputs] if options.inputs else [])])
        for file in options.functions:
            register_functions(file)
        model = load(Path(__file__).parent, options.parameters, huge_pages=options.huge_pages)
        if options.device not in (None, model.device):
            raise BundleError(
                f"the library computes on {model.device}, not on {options.device}: compile for another target"
            )
        outcome = execute(model, inputs, options.repeat, options.parameters is None, options.entry)
        if options.output is not None:
            save_arrays(options.output, outcome.outputs)
    except (InputError, BundleError, OSError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    print(json.dumps(outcome.document()) if options.json else "\n".join(outcome.lines()))
    return outcome.exit_status


if __name__ == "__main__":
    sys.exit(main())
