"""PTX instructions of TVM's table: operands first, then the instruction's modifiers as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.gpu import expressions as ex
from tests.gpu import tensor_cores as tc
from tests.gpu.faults import Fault, KernelFault
from tests.gpu.intrinsics import intrinsic
from tests.gpu.lanes import WARP, Lanes, spread
from tests.gpu.memory import Pointer, numpy_dtype


def _modifiers(node: Any) -> list[str]:
    return [str(argument.value) for argument in node.args if type(argument).__name__ == "StringImm"]


def _operands(node: Any) -> list[Any]:
    return [argument for argument in node.args if type(argument).__name__ != "StringImm"]


def _registers(translator: Any, loads: list[Any]) -> Callable[[Lanes], Pointer]:
    """Registers next to each other, by the first of them."""
    view, index = translator.views[loads[0].source], translator._index(loads[0])
    return lambda lanes: (lanes.batch.memory[view.root], index(lanes), view.dtype)


@intrinsic("cuda.cvta_generic_to_shared")
def _shared_address(translator: Any, node: Any) -> ex.Evaluate:
    """The byte of shared memory that a pointer names."""
    pointer = translator.pointer(node.args[0])

    def evaluate(lanes: Lanes) -> Any:
        _, at, dtype = pointer(lanes)
        return at * dtype.itemsize

    return evaluate


@intrinsic("ptx.fence_proxy", "ptx.wgmma_fence", "ptx.wgmma_commit_group", "ptx.wgmma_wait_group")
def _order(translator: Any, node: Any) -> ex.Evaluate:
    """``wgmma`` finishes at once here, so nothing waits."""
    return lambda lanes: None


def _pair_of(dtype: str) -> Callable[..., np.ndarray]:
    """Two numbers rounded to half precision, in one register."""

    def pair(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        halves = np.stack([low, high], axis=-1).astype(numpy_dtype(dtype))
        return np.ascontiguousarray(halves).view(np.uint32)[..., 0]

    return pair


def _round_to_tf32(value: np.ndarray) -> np.ndarray:
    """Halves go away from zero; infinities and NaN stay."""
    bits = np.ascontiguousarray(value).view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(value), rounded, bits).view(np.float32)


_OWN_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "settle": lambda value: value,
    "power_of_two": np.exp2,
    "round_to_tf32": _round_to_tf32,
    "pair_of_float16": _pair_of("float16"),
    "pair_of_bfloat16": _pair_of("bfloat16"),
}


_ROUND_IN_PLACE = "round_in_place_"


def _rounding_in_place(pointer: Callable[[Lanes], Pointer], count: int) -> ex.Evaluate:
    """Elements in memory, rounded to tf32 by the lane that names the first."""

    def execute(lanes: Lanes) -> None:
        memory, at, dtype = pointer(lanes)
        index = spread(at, lanes.count)[:, None] + np.arange(count)
        memory.write(lanes, index, _round_to_tf32(np.asarray(memory.read(lanes, index, dtype))), dtype)

    return execute


def _word_at(pointer: Callable[[Lanes], Pointer]) -> ex.Evaluate:
    """The 32 bits of an element in memory."""

    def evaluate(lanes: Lanes) -> np.ndarray:
        memory, at, dtype = pointer(lanes)
        found = memory.read(lanes, spread(at, lanes.count), dtype)
        return np.ascontiguousarray(found).view(np.uint32)

    return evaluate


@intrinsic("cuda.func_call")
def _own_function(translator: Any, node: Any) -> ex.Evaluate:
    """A call of a function that the kernel brings with it, by its definition here."""
    name = str(node.args[0].value)
    if name.startswith(_ROUND_IN_PLACE):
        return _rounding_in_place(translator.pointer(node.args[1]), int(name.removeprefix(_ROUND_IN_PLACE)))
    if name == "word_at":
        return _word_at(translator.pointer(node.args[1]))
    if name not in _OWN_FUNCTIONS:
        raise KernelFault(Fault.UNSUPPORTED, f"a call of {node.args[0]}")
    compute = _OWN_FUNCTIONS[name]
    arguments = [translator.expression(argument) for argument in node.args[1:-1]]
    return lambda lanes: compute(*(spread(argument(lanes), lanes.count) for argument in arguments))


@intrinsic("ptx.wgmma_f16_ss", "ptx.wgmma_bf16_ss", "ptx.wgmma_tf32_ss")
def _wgmma(translator: Any, node: Any) -> ex.Evaluate:
    """``wgmma``: four warps multiply 64 rows from shared memory, which descriptors find."""
    modifiers, operands = _modifiers(node), _operands(node)
    found = re.fullmatch(r"m64n(\d+)k(\d+)", modifiers[3])
    assert found is not None
    n, k = map(int, found.groups())
    kind = tc.PTX_TYPES[modifiers[5]]
    sums = _registers(translator, operands[: n // 2])
    left, right, *modes = operands[n // 2 :]
    transposed = [bool(int(mode)) for mode in modes[3:]] or [False, False]
    one, other = translator.expression(left), translator.expression(right)
    shared = next(
        view.root for buffer, view in translator.views.items() if str(buffer.scope()) == "shared.dyn"
    )
    translator._touch(shared, "read")

    def matrix(lanes: Lanes, descriptor: Any, size: int, by_rows: bool) -> np.ndarray:
        """The factor as ``size`` rows by ``k``, one per warpgroup."""
        described = spread(descriptor, lanes.count).reshape(-1, 4 * WARP)
        assert (described == described[:, :1]).all(), "the threads of a warpgroup name different matrices"
        word = described[:, 0].astype(np.uint64)
        start, leading, stride = (
            ((word >> np.uint64(shift)) & np.uint64(0x3FFF)).astype(np.int64) << 4 for shift in (0, 16, 32)
        )
        assert (word >> np.uint64(62) == 1).all(), "only rows of 128 bytes"
        outer, depth = np.arange(size)[:, None], np.arange(k)[None, :]
        bytes_ = kind.dtype.itemsize
        in_panel = 128 // bytes_
        if by_rows:
            place = (outer // 8) * stride[:, None, None] + outer % 8 * 128 + depth * bytes_
        else:
            place = (outer // in_panel) * leading[:, None, None] + (depth // 8) * stride[:, None, None]
            place = place + depth % 8 * 128 + outer % in_panel * bytes_
        place = place + start[:, None, None]
        place ^= (place >> 7 & 7) << 4
        leaders = lanes.where(np.arange(lanes.count) % (4 * WARP) == 0)
        memory = lanes.batch.memory[shared]
        index = (place // bytes_).reshape(len(word), -1)
        values: np.ndarray = memory.read(leaders, index, kind.dtype).reshape(-1, size, k)
        return tc.to_tf32(np.ascontiguousarray(values)) if kind.round_to_tf32 else values

    def execute(lanes: Lanes) -> None:
        warps = lanes.whole_warps()
        a = matrix(lanes, one(lanes), 64, not transposed[0])
        b = matrix(lanes, other(lanes), n, not transposed[1]).swapaxes(1, 2)
        product = np.matmul(a.astype(np.float32), b.astype(np.float32)).reshape(-1, 4, 16, n)
        memory, at, dtype = sums(lanes)
        lane, place = np.arange(WARP)[:, None], np.arange(n // 2)[None, :]
        rows, columns = lane // 4 + 8 * (place % 4 // 2), place // 4 * 8 + lane % 4 * 2 + place % 2
        added = product[:, :, rows, columns].reshape(-1, n // 2)
        index = spread(at, lanes.count)[:, None] + np.arange(n // 2)
        memory.write(lanes, index, memory.read(lanes, index, dtype) + added, dtype)
        lanes.batch.clock.sync_warps(warps)

    return execute
