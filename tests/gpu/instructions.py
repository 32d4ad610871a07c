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
from tests.gpu.memory import Pointer


def _modifiers(node: Any) -> list[str]:
    return [str(argument.value) for argument in node.args if type(argument).__name__ == "StringImm"]


def _operands(node: Any) -> list[Any]:
    return [argument for argument in node.args if type(argument).__name__ != "StringImm"]


def _registers(translator: Any, loads: list[Any]) -> Callable[[Lanes], Pointer]:
    """Registers next to each other, by the first of them."""
    view, index = translator.views[loads[0].source], translator._index(loads[0])
    return lambda lanes: (lanes.batch.memory[view.root], index(lanes), view.dtype)


def _address(translator: Any, node: Any) -> Callable[[Lanes], Pointer]:
    inner = node.args[0] if "cvta_generic_to_shared" in ex.call_name(node) else node
    pointer: Callable[[Lanes], Pointer] = translator.pointer(inner)
    return pointer


@intrinsic("ptx.mma")
def _mma(translator: Any, node: Any) -> ex.Evaluate:
    """``mma.sync``: D = A * B + C; each operand is a list of registers."""
    modifiers, operands = _modifiers(node), _operands(node)
    shape = tc.MmaShape.parse(modifiers[2])
    kinds = [tc.PTX_TYPES[name] for name in modifiers[5:8]]  # of D, A and B
    counts = [
        shape.m * shape.n // WARP,
        *(
            size // WARP * kind.bits // 32
            for size, kind in ((shape.m * shape.k, kinds[1]), (shape.k * shape.n, kinds[2]))
        ),
    ]
    places = np.cumsum([0, *counts, counts[0]])
    d, a, b, c = (
        _registers(translator, operands[first:last]) for first, last in zip(places, places[1:], strict=False)
    )

    def matrix(
        lanes: Lanes, pointer: Pointer, count: int, layout: tc.Layout, kind: Any, size: Any
    ) -> np.ndarray:
        memory, at, dtype = pointer
        index = spread(at, lanes.count)[:, None] + np.arange(count)
        values = np.ascontiguousarray(memory.read(lanes, index, dtype)).view(kind.dtype)
        rows, columns = layout
        matrices = np.empty((lanes.count // WARP, *size), kind.dtype)
        matrices[:, rows, columns] = values.reshape(-1, *rows.shape)
        return tc.to_tf32(matrices) if kind.round_to_tf32 else matrices

    def execute(lanes: Lanes) -> None:
        warps = lanes.whole_warps()
        left = matrix(lanes, a(lanes), counts[1], shape.a_layout(kinds[1].bits), kinds[1], (shape.m, shape.k))
        right = matrix(
            lanes, b(lanes), counts[2], shape.b_layout(kinds[2].bits), kinds[2], (shape.k, shape.n)
        )
        total = matrix(lanes, c(lanes), counts[0], shape.c_layout(), kinds[0], (shape.m, shape.n))
        tc.scatter(lanes, d(lanes), shape.c_layout(), tc.multiply_add(left, right, total))
        lanes.batch.clock.sync_warps(warps)

    return execute


@intrinsic("ptx.ldmatrix")
def _ldmatrix(translator: Any, node: Any) -> ex.Evaluate:
    """``ldmatrix``: lane 8 i + r names row r of matrix i."""
    modifiers, operands = _modifiers(node), _operands(node)
    registers, rows = _registers(translator, operands[:-1]), _address(translator, operands[-1])

    def execute(lanes: Lanes) -> None:
        warps = lanes.whole_warps()
        tc.load_matrices(lanes, rows(lanes), registers(lanes), len(operands) - 1, "trans" in modifiers)
        lanes.batch.clock.sync_warps(warps)

    return execute


@intrinsic("ptx.cp_async_cg_src_size", "ptx.cp_async_ca_src_size")
def _cp(translator: Any, node: Any) -> ex.Evaluate:
    """``cp.async`` of a number of bytes, of which the last operand says how many are read; the rest are zeros."""
    operands = _operands(node)
    target, source = _address(translator, operands[0]), _address(translator, operands[1])
    count = int(operands[2])
    read = translator.expression(operands[3])

    def execute(lanes: Lanes) -> None:
        from tests.gpu.intrinsics import _groups, _pending

        memory, at, dtype = target(lanes)
        origin, start, kind = source(lanes)
        if dtype != kind:
            raise KernelFault(Fault.UNSUPPORTED, f"cp.async copies {kind} to {dtype}")
        steps = np.arange(count // dtype.itemsize)
        holds = spread(read(lanes), lanes.count).astype(bool)
        value = np.zeros((lanes.count, len(steps)), dtype)
        if holds.any():
            there = lanes.where(holds)
            value[holds] = origin.read(there, spread(start, lanes.count)[holds][:, None] + steps, dtype)
        place = spread(at, lanes.count)[:, None] + steps
        _pending(lanes).append(memory.start_copy(lanes, place, value, dtype, _groups(lanes)[lanes.ids]))

    return execute


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


@intrinsic("cuda.func_call")
def _settle(translator: Any, node: Any) -> ex.Evaluate:
    """A call of a function that the kernel brings with it: only the one that does nothing is known."""
    if str(node.args[0].value) != "settle":
        raise KernelFault(Fault.UNSUPPORTED, f"a call of {node.args[0]}")
    return lambda lanes: None


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
        index = (place // bytes_).reshape(len(word), -1)[:, :, None]
        read = [memory.read(leaders, index[:, at, 0], kind.dtype) for at in range(index.shape[1])]
        values: np.ndarray = np.stack(read, axis=1).reshape(-1, size, k)
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
