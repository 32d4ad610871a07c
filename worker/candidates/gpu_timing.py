"""Times candidates on this machine's GPU by the driver's library, in the measuring process.

A candidate is a file ``candidate.json`` (``GpuCandidate``) beside the machine code of its kernels. Each run
follows a write that exceeds the cache, and events of the GPU time it::

    write to memory    │ event, launch, launch, event │ write to memory │ event, …

After a kernel's error, the process can no longer use the GPU (``GpuError``), so another process goes on.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bessemer.contract.records import WRONG_RESULT
from worker.candidates.requests import Evaluation, MeasureCandidate, TensorArgument

if TYPE_CHECKING:
    import numpy as np

LIBRARIES: tuple[str, ...] = (
    "libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
)

_L2_BYTES = 38
"""``CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE``."""
_MAX_DYNAMIC_SHARED = 8
"""``CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES``."""
_STATIC_SHARED_BYTES = 48 << 10
_ERRORS = {
    1: "an invalid value",
    2: "out of memory",
    209: "no machine code for this GPU",
    700: "an access outside its memory",
    701: "too many registers or too much shared memory for a launch",
    702: "the launch took too long",
    716: "an access to a misaligned address",
    719: "the launch failed",
}

_SPARE_BYTES = 256 << 20
_WARM_UP_RUNS = 2
_LEAST_RUNS, _MOST_RUNS = 5, 50
_SLOW_SECONDS = 0.2

_PATTERN_ELEMENTS = 1 << 20
"""Random numbers repeat after this many: drawing all of them would take longer than the runs."""

_TOLERANCES = {"float64": 1e-6, "float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
"""The allowed error of an element, relative to its magnitude plus its tensor's root mean square."""


@dataclass(frozen=True)
class GpuLaunch:
    """One kernel started by a call.

    Attributes:
        kernel: the name in the source.
        grid: blocks in each dimension.
        block: threads in each dimension.
        shared_bytes: dynamic shared memory of a block.
        arguments: for each argument of the kernel, the index of the function's parameter, or of one of its
            workspaces after them.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class GpuCandidate:
    """The kernels of a candidate.

    Attributes:
        image: the file name of their machine code.
        launches: what a run starts.
        workspaces: bytes of each buffer besides the arguments.
        outputs: indices of the arguments that a run writes.
    """

    image: str
    launches: tuple[GpuLaunch, ...]
    workspaces: tuple[int, ...]
    outputs: tuple[int, ...]


def write_gpu_candidate(path: Path, candidate: GpuCandidate) -> None:
    """Write a candidate's file."""
    path.write_text(json.dumps(asdict(candidate)), encoding="utf-8")


def read_gpu_candidate(path: Path) -> GpuCandidate:
    """Read a candidate's file."""
    document = json.loads(path.read_text(encoding="utf-8"))
    launches = tuple(
        GpuLaunch(
            kernel=one["kernel"],
            grid=tuple(one["grid"]),
            block=tuple(one["block"]),
            shared_bytes=one["shared_bytes"],
            arguments=tuple(one["arguments"]),
        )
        for one in document["launches"]
    )
    workspaces, outputs = tuple(document["workspaces"]), tuple(document["outputs"])
    return GpuCandidate(document["image"], launches, workspaces, outputs)


class GpuError(Exception):
    """A call of the driver failed; this process cannot go on with the GPU."""

    def __init__(self, call: str, code: int) -> None:
        words = f", {_ERRORS[code]}" if code in _ERRORS else ""
        super().__init__(f"{call} failed: CUDA error {code}{words}")
        self.code = code


class WrongResultError(Exception):
    """A candidate computes something else than the default schedule."""


class Gpu:
    """The first GPU of this machine, in this process.

    Raises:
        GpuError: the driver cannot be used.
        OSError: there is no driver.
    """

    def __init__(self) -> None:
        self._driver = _driver()
        self.call("cuInit", 0)
        device, context, size = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxPushCurrent_v2", context)
        self.call("cuDeviceGetAttribute", ctypes.byref(size), _L2_BYTES, device)
        self._flushed_bytes = 2 * max(1, size.value)
        self._flushed = self.allocate(self._flushed_bytes)
        self._events = [(self._event(), self._event()) for _ in range(_MOST_RUNS)]

    def call(self, name: str, *arguments: Any) -> None:
        """Call the driver. Raises ``GpuError``."""
        code = getattr(self._driver, name)(*arguments)
        if code != 0:
            raise GpuError(name, code)

    def allocate(self, size: int) -> ctypes.c_uint64:
        """Memory of the GPU."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(1, size)))
        return address

    def free(self, address: ctypes.c_uint64) -> None:
        """Give memory back."""
        self.call("cuMemFree_v2", address)

    def free_bytes(self) -> int:
        """How much memory is free."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def upload(self, address: ctypes.c_uint64, array: np.ndarray) -> None:
        """Copy to the GPU."""
        if array.nbytes:
            self.call(
                "cuMemcpyHtoDAsync_v2",
                address,
                ctypes.c_void_p(array.ctypes.data),
                ctypes.c_size_t(array.nbytes),
                None,
            )
            self.wait()

    def download(self, array: np.ndarray, address: ctypes.c_uint64) -> None:
        """Copy from the GPU."""
        if array.nbytes:
            self.call(
                "cuMemcpyDtoHAsync_v2",
                ctypes.c_void_p(array.ctypes.data),
                address,
                ctypes.c_size_t(array.nbytes),
                None,
            )
            self.wait()

    def wait(self) -> None:
        """Return when the GPU is idle."""
        self.call("cuStreamSynchronize", None)

    def load(self, image: bytes) -> ctypes.c_void_p:
        """Load machine code."""
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), image)
        return module

    def kernel(self, module: ctypes.c_void_p, launch: GpuLaunch) -> ctypes.c_void_p:
        """A kernel that can be launched with its shared memory."""
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, launch.kernel.encode())
        if launch.shared_bytes > _STATIC_SHARED_BYTES:
            self.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, launch.shared_bytes)
        return function

    def time(self, run: Callable[[], None], runs: int) -> list[float]:
        """Seconds of each of some runs, the cache flushed before each."""
        events = self._events[:runs]
        for start, end in events:
            size = ctypes.c_size_t(self._flushed_bytes)
            self.call("cuMemsetD8Async", self._flushed, ctypes.c_ubyte(0), size, None)
            self.call("cuEventRecord", start, None)
            run()
            self.call("cuEventRecord", end, None)
        self.call("cuEventSynchronize", events[-1][1])
        return [self._seconds(start, end) for start, end in events]

    def _seconds(self, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        milliseconds = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value / 1e3

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 0)
        return event


def _driver() -> ctypes.CDLL:
    failure = OSError("no driver")
    for library in LIBRARIES:
        try:
            return ctypes.CDLL(library)
        except OSError as error:
            failure = error
    raise failure


class GpuTimer:
    """Times candidates in this process. Candidates with equal shapes share their arguments."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._gpu = Gpu()
        self._seconds = evaluation.repeats * evaluation.repeat_seconds
        self._arguments: dict[tuple[TensorArgument, ...], list[ctypes.c_uint64]] = {}
        self._results: dict[str, list[np.ndarray]] = {}
        self._checked: set[str] = set()

    def measure(self, candidate: MeasureCandidate) -> tuple[float, ...]:
        """The median of the seconds of single runs.

        Raises:
            WrongResultError: the results are not those of the candidate's reference.
            GpuError: a call of the driver failed.
        """
        path = Path(candidate.library)
        if candidate.reference is not None and candidate.library not in self._checked:
            self._check(path, Path(candidate.reference), candidate.arguments)
            self._checked.add(candidate.library)
        with self._loaded(path, candidate.arguments) as loaded:
            for _ in range(_WARM_UP_RUNS):
                loaded.run()
            first = median(self._gpu.time(loaded.run, 1))
            if first >= _SLOW_SECONDS:
                return (first,)
            runs = int(self._seconds / max(first, 1e-7))
            return (median(self._gpu.time(loaded.run, min(max(runs, _LEAST_RUNS), _MOST_RUNS))),)

    def _check(self, path: Path, reference: Path, arguments: tuple[TensorArgument, ...]) -> None:
        outputs = read_gpu_candidate(reference).outputs
        key = str(reference)
        if key not in self._results:
            self._results[key] = self._run_once(reference, arguments, outputs)
        ours = self._run_once(path, arguments, outputs)
        for index, own, wanted in zip(outputs, ours, self._results[key], strict=True):
            found = difference(own, wanted, arguments[index].dtype)
            if found is not None:
                raise WrongResultError(f"argument {index} {WRONG_RESULT}: {found}")

    def _run_once(
        self, path: Path, arguments: tuple[TensorArgument, ...], outputs: Sequence[int]
    ) -> list[np.ndarray]:
        """Fill the arguments that a run writes with fresh contents, run once, and return them."""
        memory = self._arguments_for(arguments)
        arrays = {index: contents(arguments[index], index) for index in outputs}
        for index, array in arrays.items():
            self._gpu.upload(memory[index], array)
        with self._loaded(path, arguments) as loaded:
            loaded.run()
            self._gpu.wait()
        for index, array in arrays.items():
            self._gpu.download(array, memory[index])
        return list(arrays.values())

    def _loaded(self, path: Path, arguments: tuple[TensorArgument, ...]) -> _Loaded:
        memory = self._arguments_for(arguments)
        self._make_room(sum(read_gpu_candidate(path).workspaces), arguments)
        return _Loaded(self._gpu, path, memory)

    def _arguments_for(self, shapes: tuple[TensorArgument, ...]) -> list[ctypes.c_uint64]:
        if shapes not in self._arguments:
            made = [contents(argument, index) for index, argument in enumerate(shapes)]
            self._make_room(sum(array.nbytes for array in made), shapes)
            memory = [self._gpu.allocate(array.nbytes) for array in made]
            for address, array in zip(memory, made, strict=True):
                self._gpu.upload(address, array)
            self._arguments[shapes] = memory
        return self._arguments[shapes]

    def _make_room(self, size: int, kept: tuple[TensorArgument, ...]) -> None:
        """Free the arguments of other candidates if there is no room for this many bytes."""
        if self._gpu.free_bytes() >= size + _SPARE_BYTES:
            return
        for shapes in [shapes for shapes in self._arguments if shapes != kept]:
            for address in self._arguments.pop(shapes):
                self._gpu.free(address)


class _Loaded:
    """A candidate's kernels with the memory that they run on."""

    def __init__(self, gpu: Gpu, path: Path, memory: Sequence[ctypes.c_uint64]) -> None:
        candidate = read_gpu_candidate(path)
        self._gpu = gpu
        self._spaces = [gpu.allocate(size) for size in candidate.workspaces]
        module = gpu.load((path.parent / candidate.image).read_bytes())
        everything = [*memory, *self._spaces]
        self._steps = [
            (
                gpu.kernel(module, launch),
                (*launch.grid, *launch.block, launch.shared_bytes),
                _pointers([everything[index] for index in launch.arguments]),
            )
            for launch in candidate.launches
        ]

    def __enter__(self) -> _Loaded:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is None:
            for space in self._spaces:
                self._gpu.free(space)

    def run(self) -> None:
        """Start the kernels."""
        for function, sizes, pointers in self._steps:
            self._gpu.call("cuLaunchKernel", function, *sizes, None, pointers, None)


def _pointers(values: Sequence[ctypes.c_uint64]) -> Any:
    return (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))


def contents(argument: TensorArgument, seed: int) -> np.ndarray:
    """Normally distributed numbers; integers are zero, so that an index stays in its table."""
    import ml_dtypes
    import numpy as np

    if "float" not in argument.dtype:
        return np.zeros(argument.shape, dtype=argument.dtype)
    count = prod(argument.shape)
    pattern = np.random.default_rng(seed).standard_normal(min(count, _PATTERN_ELEMENTS), dtype="float32")
    dtype = ml_dtypes.bfloat16 if argument.dtype == "bfloat16" else argument.dtype
    return np.resize(pattern.astype(dtype), argument.shape)


def difference(ours: np.ndarray, wanted: np.ndarray, dtype: str) -> str | None:
    """How results differ by more than rounding and the order of sums; None if they do not.

    Args:
        ours: a candidate's results.
        wanted: the default schedule's results for the same arguments.
        dtype: the name of their dtype.
    """
    import numpy as np

    if dtype not in _TOLERANCES:
        wrong = int(np.count_nonzero(ours != wanted))
        return f"{wrong} of {ours.size} elements" if wrong else None
    own, other = ours.astype(np.float64).ravel(), wanted.astype(np.float64).ravel()
    is_finite = np.isfinite(other)
    scale = float(np.sqrt(np.mean(np.square(other[is_finite])))) if is_finite.any() else 0.0
    with np.errstate(invalid="ignore"):
        is_near = np.abs(own - other) <= _TOLERANCES[dtype] * (np.abs(other) + scale)
    right = np.where(is_finite, is_near, (own == other) | np.isnan(other))
    wrong = int(np.count_nonzero(~right))
    if not wrong:
        return None
    place = int(np.argmin(right))
    return f"{wrong} of {ours.size} elements, the first {own[place]:.6g} instead of {other[place]:.6g}"
