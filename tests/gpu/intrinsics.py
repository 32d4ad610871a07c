"""Calls that mean something on a GPU, by their definition in the PTX ISA or in CUDA's guide.

Each function takes the translator and the call, and returns what executes the call for the active lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.gpu import expressions as ex
from tests.gpu import tensor_cores as tc
from tests.gpu.faults import Fault, KernelFault
from tests.gpu.lanes import WARP, Lanes, Value, spread
from tests.gpu.memory import Copy, Fragments, Pointer

Intrinsic = Callable[[Any, Any], ex.Evaluate]
INTRINSICS: dict[str, Intrinsic] = {}


def intrinsic(*names: str) -> Callable[[Intrinsic], Intrinsic]:
    """Register a function for calls of these names."""

    def register(function: Intrinsic) -> Intrinsic:
        INTRINSICS.update(dict.fromkeys(names, function))
        return function

    return register


# Values


@intrinsic("if_then_else")
def _if_then_else(translator: Any, node: Any) -> ex.Evaluate:
    choice: ex.Evaluate = translator.choice(node, *node.args)
    return choice


@intrinsic("reinterpret")
def _reinterpret(translator: Any, node: Any) -> ex.Evaluate:
    value = translator.expression(node.args[0])
    source, target = ex.type_of(node.args[0])[0], ex.type_of(node)[0]
    return lambda lanes: ex.reinterpret(value(lanes), source, target)


@intrinsic("fma")
def _fma(translator: Any, node: Any) -> ex.Evaluate:
    a, b, c = (translator.expression(argument) for argument in node.args)
    dtype = ex.type_of(node)[0]
    wide = np.float64 if dtype.kind == "f" else dtype

    def evaluate(lanes: Lanes) -> Value:
        product = np.asarray(a(lanes), wide) * np.asarray(b(lanes), wide)
        return ex.settle(product + np.asarray(c(lanes), wide), dtype)

    return evaluate


@intrinsic("infinity", "min_value", "max_value")
def _limit(translator: Any, node: Any) -> ex.Evaluate:
    value = ex.limit(ex.call_name(node), ex.type_of(node)[0])
    return lambda _: value


@intrinsic("large_uint_imm")
def _large_uint_imm(translator: Any, node: Any) -> ex.Evaluate:
    low, high = (int(argument.value) for argument in node.args)
    return lambda _: low + (high << 32)


@intrinsic("type_annotation", "tvm_thread_invariant", "assume")
def _nothing(translator: Any, node: Any) -> ex.Evaluate:
    return lambda _: 0


@intrinsic("call_packed", "call_cpacked", "tvm_call_packed", "tvm_call_cpacked")
def _call_packed(translator: Any, node: Any) -> ex.Evaluate:
    def execute(lanes: Lanes) -> None:
        raise KernelFault(Fault.OUTSIDE, f"the host's function {node.args[0].value} computes on it")

    return execute


# Synchronization


@intrinsic("tvm_storage_sync")
def _storage_sync(translator: Any, node: Any) -> ex.Evaluate:
    """``__syncthreads()``, or ``__syncwarp()``: all threads arrive, and none goes on before."""
    if str(node.args[0].value) == "warp":
        return lambda lanes: lanes.batch.clock.sync_warps(lanes.whole_warps())
    return lambda lanes: lanes.batch.clock.sync_blocks(lanes.whole_blocks())


def _shuffle(source: Callable[[np.ndarray, Any, int], np.ndarray]) -> Intrinsic:
    """``__shfl_*_sync``: a lane takes another lane's value; outside its section of the warp it keeps its own.

    The hardware exchanges among the lanes named in the mask, which must all be there.
    """

    def translate(translator: Any, node: Any) -> ex.Evaluate:
        mask, value, offset, width = (translator.expression(argument) for argument in node.args[:4])

        def evaluate(lanes: Lanes) -> Value:
            named = spread(mask(lanes), lanes.count).astype(np.uint32)
            if (named & ~_present(lanes)).any():
                raise KernelFault(Fault.DIVERGENT, "a shuffle names lanes that do not reach it")
            mine = spread(value(lanes), lanes.count)
            section = int(width(lanes))
            place = lanes.ids % lanes.batch.shape.threads % WARP
            start = place - place % section
            wanted = source(place - start, offset(lanes), section)
            inside = (wanted >= 0) & (wanted < section)
            others = np.where(inside, lanes.ids - place + start + wanted, lanes.ids)
            where = np.searchsorted(lanes.ids, others)
            found = (where < lanes.count) & (lanes.ids[np.minimum(where, lanes.count - 1)] == others)
            if not found.all():
                raise KernelFault(Fault.DIVERGENT, "a shuffle reads a lane that does not reach it")
            if lanes.batch.undefined is not None:
                undefined = lanes.batch.undefined[lanes.ids[where]]
                lanes.batch.undefined = None
                if undefined.any():
                    lanes.batch.mark_undefined(lanes.ids[undefined])
            lanes.batch.clock.sync_warps(np.unique(lanes.batch.clock.warp_of(lanes.numbers)))
            return mine[where]

        return evaluate

    return translate


INTRINSICS |= {
    "tvm_warp_shuffle": _shuffle(lambda _, lane, width: np.asarray(lane) % width + 0 * _),
    "tvm_warp_shuffle_up": _shuffle(lambda place, delta, _: place - delta),
    "tvm_warp_shuffle_down": _shuffle(lambda place, delta, _: place + delta),
    "tvm_warp_shuffle_xor": _shuffle(lambda place, mask, _: place ^ mask),
}


@intrinsic("tvm_warp_activemask")
def _active_mask(translator: Any, node: Any) -> ex.Evaluate:
    return _present


def _present(lanes: Lanes) -> np.ndarray:
    """For each lane, a mask of the lanes of its warp that are here."""
    shape = lanes.batch.shape
    block, thread = np.divmod(lanes.ids, shape.threads)
    warp, place = block * shape.warps + thread // WARP, thread % WARP
    masks = np.zeros(lanes.batch.blocks * shape.warps, np.uint32)
    np.bitwise_or.at(masks, warp, np.uint32(1) << place.astype(np.uint32))
    result: np.ndarray = masks[warp]
    return result


# Asynchronous copies


@intrinsic("s_tir.cp_async_raw")
def _cp_async_raw(translator: Any, node: Any) -> ex.Evaluate:
    """``cp.async`` as TVM's passes write it; a false predicate copies zeros."""
    target = translator.pointer(node.args[0], node.args[1])
    source = translator.pointer(node.args[2], node.args[3])
    size = int(node.args[4].value)
    predicate = translator.expression(node.args[5]) if len(node.args) > 5 else lambda _: True
    return lambda lanes: _copy_async(lanes, target(lanes), source(lanes), size, predicate(lanes) * size)


@intrinsic("ptx.cp_async_ca", "ptx.cp_async_cg", "ptx.cp_async_ca_src_size", "ptx.cp_async_cg_src_size")
def _cp_async(translator: Any, node: Any) -> ex.Evaluate:
    """``cp.async [target], [source], size, read``: zeros follow what is read."""
    operands = [argument for argument in node.args if type(argument).__name__ != "StringImm"]
    target, source, size = *map(translator.pointer, operands[:2]), int(operands[2].value)
    read = translator.expression(operands[3]) if len(operands) > 3 else lambda _: size
    return lambda lanes: _copy_async(lanes, target(lanes), source(lanes), size, read(lanes))


def _copy_async(lanes: Lanes, target: Pointer, source: Pointer, size: int, read: Value) -> None:
    """Each lane sends ``size`` bytes, of which the first ``read`` are the source's and the others zeros."""
    if size not in (4, 8, 16):
        raise KernelFault(Fault.UNSUPPORTED, f"cp.async copies 4, 8 or 16 bytes, not {size}")
    (memory, at, seen), (origin, start, dtype) = target, source
    steps = np.arange(size // dtype.itemsize)
    first = spread(start, lanes.count)[:, None] + steps
    elements = spread(read, lanes.count).astype(np.int64) // dtype.itemsize
    value = np.zeros(first.shape, dtype)
    whole = elements == len(steps)
    if whole.any():
        value[whole] = origin.read(lanes.where(whole), first[whole], dtype)
    for step in steps:
        partly = ~whole & (elements > step)
        if partly.any():
            value[partly, step] = origin.read(lanes.where(partly), first[partly, step], dtype)
    place = spread(at, lanes.count) * seen.itemsize // dtype.itemsize
    copy = memory.start_copy(lanes, place[:, None] + steps, value, dtype, _groups(lanes)[lanes.ids])
    _pending(lanes).append(copy)


def _groups(lanes: Lanes) -> np.ndarray:
    """How many groups of copies each lane has committed."""
    memory = lanes.batch.memory
    if "groups" not in memory:
        memory["groups"] = np.zeros(lanes.batch.count, np.int32)
    groups: np.ndarray = memory["groups"]
    return groups


def _pending(lanes: Lanes) -> list[Copy]:
    """Copies on their way."""
    pending: list[Copy] = lanes.batch.memory.setdefault("pending", [])
    return pending


def commit_group(lanes: Lanes) -> None:
    """``cp.async.commit_group``: the copies that a lane sent since its last group are its next group."""
    _groups(lanes)[lanes.ids] += 1


def wait_group(lanes: Lanes, newest: int) -> None:
    """``cp.async.wait_group``: all but the newest groups of a lane have arrived."""
    groups = _groups(lanes)
    limit = np.full(lanes.batch.count, -1)
    limit[lanes.ids] = groups[lanes.ids] - newest
    first = lanes.batch.first_block * lanes.batch.shape.threads
    rest = []
    for copy in _pending(lanes):
        done = copy.group < limit[copy.lanes - first]
        if done.any():
            copy.target.finish_copy(copy.where(done))
        if not done.all():
            rest.append(copy.where(~done))
    _pending(lanes)[:] = rest


@intrinsic("ptx.cp_async_commit_group")
def _commit_group(translator: Any, node: Any) -> ex.Evaluate:
    return commit_group


@intrinsic("ptx.cp_async_wait_group")
def _wait_group(translator: Any, node: Any) -> ex.Evaluate:
    newest = translator.expression(node.args[0])
    return lambda lanes: wait_group(lanes, int(newest(lanes)))


# Atomics


@intrinsic("cuda.atomic_add", "atomic_add", "cuda_atomic_add")
def _atomic_add(translator: Any, node: Any) -> ex.Evaluate:
    """Adds in the order of the lanes; the result is what was there before."""
    target, value = translator.pointer(node.args[0]), translator.expression(node.args[-1])

    def execute(lanes: Lanes) -> Value:
        memory, at, dtype = target(lanes)
        index = spread(at, lanes.count)
        added = spread(value(lanes), lanes.count).astype(dtype)
        return memory.add(lanes, index, added, dtype)

    return execute


# Tensor cores


@intrinsic("ptx_legacy.mma")
def _mma_of_arrays(translator: Any, node: Any) -> ex.Evaluate:
    """``mma.sync`` as TVM's intrinsics write it: each lane's registers lie side by side in an array."""
    form = tc.Mma(str(node.args[0].value), *(str(argument.value) for argument in node.args[3:6]))
    a, b, c = (translator.pointer(node.args[place], node.args[place + 1]) for place in (6, 8, 10))

    def execute(lanes: Lanes) -> None:
        warps = _full_warps(lanes)
        target = c(lanes)
        parts = (
            tc.read_array(lanes, pointer, size)
            for pointer, size in zip((a(lanes), b(lanes), target), form.elements, strict=True)
        )
        values = list(parts)
        lanes.batch.require_defined("an operand of mma")
        tc.write_array(lanes, target, form.multiply_add(*values))
        lanes.batch.clock.sync_warps(warps)

    return execute


@intrinsic("ptx.mma")
def _mma(translator: Any, node: Any) -> ex.Evaluate:
    """``mma.sync``: D = A * B + C, spread over the registers of a warp, which are named one by one."""
    names = [str(argument.value) for argument in node.args if type(argument).__name__ == "StringImm"]
    operands = [argument for argument in node.args if type(argument).__name__ != "StringImm"]
    shape = next(place for place, name in enumerate(names) if name.startswith("m16"))
    d_type, a_type, b_type, c_type = names[shape + 3 : shape + 7]
    form = tc.Mma(names[shape], a_type, b_type, c_type)
    if d_type != c_type or names[shape + 1 : shape + 3] != ["row", "col"]:
        raise KernelFault(Fault.UNSUPPORTED, f"mma {'.'.join(names)}")
    a_size, b_size, c_size = form.registers
    targets = translator.registers(operands[:c_size])
    values = [translator.expression(operand) for operand in operands[c_size:]]

    def execute(lanes: Lanes) -> None:
        warps = _full_warps(lanes)
        found = [spread(value(lanes), lanes.count) for value in values]
        lanes.batch.require_defined("an operand of mma")
        a, b, c = found[:a_size], found[a_size : a_size + b_size], found[a_size + b_size :][:c_size]
        result = form.multiply_add(*(np.stack(part, axis=1) for part in (a, b, c)))
        translator.write_registers(lanes, targets, result)
        lanes.batch.clock.sync_warps(warps)

    return execute


@intrinsic("ptx_legacy.ldmatrix")
def _ldmatrix_to_array(translator: Any, node: Any) -> ex.Evaluate:
    """``ldmatrix`` as TVM's intrinsics write it: the registers lie side by side in an array."""
    transposed, count = bool(int(node.args[0].value)), int(node.args[1].value)
    registers = translator.pointer(node.args[3], node.args[4])
    rows = translator.pointer(node.args[5], node.args[6])
    element, _ = ex.type_of(node)
    if transposed and element.itemsize == 1:
        return _ldmatrix_of_bytes(translator, node, registers)

    def execute(lanes: Lanes) -> None:
        warps = _full_warps(lanes)
        tc.write_array(lanes, registers(lanes), tc.load_matrices(lanes, rows(lanes), count, transposed))
        lanes.batch.clock.sync_warps(warps)

    return execute


@intrinsic("ptx.ldmatrix")
def _ldmatrix(translator: Any, node: Any) -> ex.Evaluate:
    """``ldmatrix``: one, two or four 8x8 matrices of 16 bits; lane 8 i + r names row r of matrix i."""
    names = [str(argument.value) for argument in node.args if type(argument).__name__ == "StringImm"]
    operands = [argument for argument in node.args if type(argument).__name__ != "StringImm"]
    count = {"x1": 1, "x2": 2, "x4": 4}[next(name for name in names if name in ("x1", "x2", "x4"))]
    transposed = "trans" in names
    targets, rows = translator.registers(operands[:count]), translator.pointer(operands[count])

    def execute(lanes: Lanes) -> None:
        warps = _full_warps(lanes)
        translator.write_registers(lanes, targets, tc.load_matrices(lanes, rows(lanes), count, transposed))
        lanes.batch.clock.sync_warps(warps)

    return execute


def _ldmatrix_of_bytes(translator: Any, node: Any, registers: Any) -> ex.Evaluate:
    """What TVM writes for a transposed ``ldmatrix`` of bytes, which does not exist: loads of B."""
    start, stride = translator.pointer(node.args[5]), translator.expression(node.args[6])

    def execute(lanes: Lanes) -> None:
        memory, at, dtype = start(lanes)
        lane = lanes.ids % lanes.batch.shape.threads % WARP
        place = np.arange(16)
        row = (lane % 4 * 4)[:, None] + place % 4 + place % 8 // 4 * 16
        column = (lane // 4)[:, None] + place // 8 * 8
        index = spread(at, lanes.count)[:, None] + row * int(stride(lanes)) + column
        value = np.stack([memory.read(lanes, index[:, step], dtype) for step in place], axis=1)
        target, offset, kind = registers(lanes)
        target.write(lanes, spread(offset, lanes.count)[:, None] + place, value, kind)

    return execute


@intrinsic("mma_fill_legacy", "mma_fill")
def _mma_fill(translator: Any, node: Any) -> ex.Evaluate:
    """Zeros in a number of registers."""
    size, target = int(node.args[0].value), translator.pointer(node.args[1], node.args[2])

    def execute(lanes: Lanes) -> None:
        memory, at, dtype = target(lanes)
        for step in range(size):
            memory.write(lanes, at + step, dtype.type(0), dtype)

    return execute


@intrinsic("mma_store_legacy", "mma_store")
def _mma_store(translator: Any, node: Any) -> ex.Evaluate:
    """A 16x16 matrix in the registers of a warp, written by rows with a stride."""
    target, source = translator.pointer(node.args[2]), translator.pointer(node.args[3], node.args[4])
    stride = translator.expression(node.args[5])

    def execute(lanes: Lanes) -> None:
        memory, at, dtype = target(lanes)
        registers, offset, kind = source(lanes)
        lane = lanes.ids % lanes.batch.shape.threads % WARP
        for step in range(8):
            row = 8 * (step % 4 // 2) + lane // 4
            column = 8 * (step // 4) + lane % 4 * 2 + step % 2
            memory.write(
                lanes, at + row * stride(lanes) + column, registers.read(lanes, offset + step, kind), dtype
            )

    return execute


def _fragments(translator: Any, node: Any) -> Callable[[Lanes], Fragments]:
    root = translator.view(node).root
    return lambda lanes: lanes.batch.memory[root]


@intrinsic("tvm_fill_fragment")
def _fill_fragment(translator: Any, node: Any) -> ex.Evaluate:
    target, place, value = _fragments(translator, node.args[0]), *map(translator.expression, node.args[4:6])
    dtype = translator.view(node.args[0]).dtype
    m, n = int(node.args[1].value), int(node.args[2].value)

    def execute(lanes: Lanes) -> None:
        warps = _full_warps(lanes)
        filled = np.full((len(warps), m, n), value(lanes), dtype)
        target(lanes).set(tc.warp_places(lanes, warps), place(lanes), filled)

    return execute


@intrinsic("tvm_load_matrix_sync")
def _load_matrix(translator: Any, node: Any) -> ex.Evaluate:
    """``wmma::load_matrix_sync``: a fragment from memory, by rows or by columns, with a stride."""
    m, n, k = (int(argument.value) for argument in node.args[1:4])
    view = translator.view(node.args[0])
    shape = {"a": (m, k), "b": (k, n), "r": (m, n)}[view.scope[-1]]
    target, place = _fragments(translator, node.args[0]), translator.expression(node.args[4])
    source, stride = translator.pointer(node.args[5]), translator.expression(node.args[6])
    by_columns = str(node.args[7].value) == "col_major"

    def execute(lanes: Lanes) -> None:
        warps = _full_warps(lanes)
        leaders, index = tc.matrix_index(lanes, source(lanes)[1], int(stride(lanes)), shape, by_columns)
        memory, _, dtype = source(lanes)
        value = memory.read(leaders, index, dtype).reshape(-1, *shape).astype(view.dtype)
        target(lanes).set(tc.warp_places(lanes, warps), place(lanes), value)
        lanes.batch.clock.sync_warps(warps)

    return execute


@intrinsic("tvm_store_matrix_sync")
def _store_matrix(translator: Any, node: Any) -> ex.Evaluate:
    m, n = int(node.args[1].value), int(node.args[2].value)
    origin, place = _fragments(translator, node.args[0]), translator.expression(node.args[4])
    target, stride = translator.pointer(node.args[5]), translator.expression(node.args[6])
    by_columns = str(node.args[7].value) == "col_major"

    def execute(lanes: Lanes) -> None:
        warps = _full_warps(lanes)
        memory, at, dtype = target(lanes)
        leaders, index = tc.matrix_index(lanes, at, int(stride(lanes)), (m, n), by_columns)
        value = origin(lanes).get(tc.warp_places(lanes, warps), place(lanes))
        memory.write(leaders, index, value.reshape(len(warps), -1), dtype)
        lanes.batch.clock.sync_warps(warps)

    return execute


@intrinsic("tvm_mma_sync")
def _mma_sync(translator: Any, node: Any) -> ex.Evaluate:
    """``wmma::mma_sync``: D = A * B + C."""
    parts = [
        (_fragments(translator, node.args[i]), translator.expression(node.args[i + 1])) for i in (0, 2, 4, 6)
    ]

    def execute(lanes: Lanes) -> None:
        where = tc.warp_places(lanes, _full_warps(lanes))
        a, b, c = (fragments(lanes).get(where, place(lanes)) for fragments, place in parts[1:])
        target, place = parts[0]
        target(lanes).set(where, place(lanes), tc.multiply_add(a, b, c))

    return execute


def _full_warps(lanes: Lanes) -> np.ndarray:
    warps = lanes.whole_warps()
    if lanes.batch.shape.threads % WARP:
        raise KernelFault(Fault.DIVERGENT, "a warp that has not 32 threads uses tensor cores")
    return warps
