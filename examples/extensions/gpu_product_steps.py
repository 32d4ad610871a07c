"""Schedules of a matrix product for a GPU, each one step further than the one before.

::

    bound          one thread for each element
    registers      8 by 8 elements for each thread, in registers
    shared         the factors' tiles in shared memory, which all threads of a block copy together
    vectors        copies and reads of four floats, and strided columns, which avoid bank conflicts
    tensor_cores   tiles of 16 by 16 by 16 on a warp's tensor core; float16 factors

Rows and columns must be multiples of 128, and the depth a multiple of 32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import s_tir, te, tirx
from tvm.script import tirx as T

Step = Callable[[s_tir.Schedule], None]
THREADS = 16
"""Threads of a block in each direction."""
WARP = 32
SIDE = 16
"""The rows and columns of a tensor core's tiles."""
LEFT, RIGHT, SUMS = "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator"
"""The scopes of tiles in a warp's registers."""


def product(rows: int, columns: int, depth: int, dtype: str) -> tirx.PrimFunc:
    """The product without a schedule. Its sums are float32."""
    a, b = te.placeholder((rows, depth), dtype, name="a"), te.placeholder((depth, columns), dtype, name="b")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute(
        (rows, columns),
        lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k),
        name="product",
    )
    return te.create_prim_func([a, b, c])


def scheduled(step: Step, rows: int, columns: int, depth: int) -> tvm.IRModule:
    """The product with the schedule of a step."""
    dtype = "float16" if step is tensor_cores else "float32"
    sch = s_tir.Schedule(tvm.IRModule({"product": product(rows, columns, depth, dtype)}))
    sch.work_on("product")
    step(sch)
    return sch.mod


def bound(sch: s_tir.Schedule) -> None:
    """Compute each element in its own thread."""
    i, j, k = sch.get_loops(sch.get_sblock("product"))
    block_y, y = sch.split(i, [None, THREADS])
    block_x, x = sch.split(j, [None, THREADS])
    sch.reorder(block_y, block_x, y, x, k)
    _bind(sch, {"blockIdx.y": block_y, "blockIdx.x": block_x, "threadIdx.y": y, "threadIdx.x": x})


def registers(sch: s_tir.Schedule) -> None:
    """Compute 8 by 8 elements in the registers of each thread."""
    product = sch.get_sblock("product")
    i, j, k = sch.get_loops(product)
    block_y, y, row = sch.split(i, [None, THREADS, 8])
    block_x, x, column = sch.split(j, [None, THREADS, 8])
    sch.reorder(block_y, block_x, y, x, k, row, column)
    _bind(sch, {"blockIdx.y": block_y, "blockIdx.x": block_x, "threadIdx.y": y, "threadIdx.x": x})
    sums = sch.cache_write(product, 0, "local")
    sch.reverse_compute_at(sums, x)
    sch.decompose_reduction(product, k)
    sch.unroll(row)
    sch.unroll(column)


def shared(sch: s_tir.Schedule) -> None:
    """Copy the factors' tiles, 128 by 8, to shared memory."""
    product = sch.get_sblock("product")
    i, j, k = sch.get_loops(product)
    block_y, y, row = sch.split(i, [None, THREADS, 8])
    block_x, x, column = sch.split(j, [None, THREADS, 8])
    tile, step = sch.split(k, [None, 8])
    sch.reorder(block_y, block_x, y, x, tile, step, row, column)
    _bind(sch, {"blockIdx.y": block_y, "blockIdx.x": block_x, "threadIdx.y": y, "threadIdx.x": x})
    sums = sch.cache_write(product, 0, "local")
    sch.reverse_compute_at(sums, x)
    for factor in (0, 1):
        copy = sch.cache_read(product, factor, "shared")
        sch.compute_at(copy, tile)
        _, own_y, own_x = sch.split(sch.fuse(*sch.get_loops(copy)[-2:]), [None, THREADS, THREADS])
        _bind(sch, {"threadIdx.y": own_y, "threadIdx.x": own_x})
    sch.decompose_reduction(product, tile)
    for loop in (step, row, column):
        sch.unroll(loop)


def vectors(sch: s_tir.Schedule) -> None:
    """Copy and read four floats at a time. A thread has two groups of four rows and columns, 64 apart."""
    product = sch.get_sblock("product")
    i, j, k = sch.get_loops(product)
    block_y, far_row, y, row = sch.split(i, [None, 2, THREADS, 4])
    block_x, far_column, x, column = sch.split(j, [None, 2, THREADS, 4])
    tile, step = sch.split(k, [None, 8])
    sch.reorder(block_y, block_x, far_row, far_column, y, x, tile, step, row, column)
    virtual = {"vthread.y": far_row, "vthread.x": far_column}
    threads = {"threadIdx.y": y, "threadIdx.x": x}
    _bind(sch, {"blockIdx.y": block_y, "blockIdx.x": block_x} | virtual | threads)
    sums = sch.cache_write(product, 0, "local")
    sch.reverse_compute_at(sums, x)
    sch.vectorize(sch.get_loops(sums)[-1])
    for factor in (0, 1):
        copy = sch.cache_read(product, factor, "shared")
        sch.compute_at(copy, tile)
        fused = sch.fuse(*sch.get_loops(copy)[-2:])
        _, own_y, own_x, lane = sch.split(fused, [None, THREADS, THREADS, 4])
        _bind(sch, {"threadIdx.y": own_y, "threadIdx.x": own_x})
        sch.vectorize(lane)
        if factor == 0:
            sch.storage_align(copy, 0, axis=-2, factor=8, offset=4)
    right = sch.cache_read(product, 1, "local")
    sch.compute_at(right, step)
    sch.vectorize(sch.get_loops(right)[-1])
    sch.decompose_reduction(product, tile)
    for loop in (step, row, column):
        sch.unroll(loop)


def tensor_cores(sch: s_tir.Schedule) -> None:
    """Give each of eight warps 4 by 2 tiles of 16 by 16 sums, in the registers of its tensor core."""
    product = sch.get_sblock("product")
    i, j, k = sch.get_loops(product)
    i, tile_i = sch.split(i, [None, 16])
    j, tile_j = sch.split(j, [None, 16])
    k, tile_k = sch.split(k, [None, 16])
    sch.reorder(i, j, k, tile_i, tile_j, tile_k)
    sch.blockize(tile_i)
    block_y, warp_y, row = sch.split(i, [None, 2, 4])
    block_x, warp_x, column = sch.split(j, [None, 4, 2])
    tile, step = sch.split(k, [None, 2])
    sch.reorder(block_y, block_x, warp_y, warp_x, tile, step, row, column)
    warp = sch.fuse(warp_y, warp_x)
    _bind(sch, {"blockIdx.y": block_y, "blockIdx.x": block_x, "threadIdx.y": warp})
    outer = sch.get_sblock("product_o")
    sums = sch.cache_write(outer, 0, SUMS)
    sch.reverse_compute_at(sums, warp)
    for factor, scope in enumerate((LEFT, RIGHT)):
        copy = sch.cache_read(outer, factor, "shared")
        fragment = sch.cache_read(outer, factor, scope)
        sch.compute_at(fragment, step)
        sch.compute_at(copy, tile)
        _copy_by_warps(sch, copy)
        _tensorize(sch, fragment, f"course.load.{scope}")
    start = sch.decompose_reduction(outer, tile)
    _tensorize(sch, sums, "course.store")
    sch.tensorize(start, "course.fill")
    sch.tensorize(outer, "course.multiply")


def _copy_by_warps(sch: s_tir.Schedule, copy: Any) -> None:
    """Copy a tile with the threads of eight warps, eight halves at a time, into padded rows."""
    fused = sch.fuse(*sch.get_loops(copy)[-2:])
    _, warp, lane, vector = sch.split(fused, [None, 8, WARP, 8])
    _bind(sch, {"threadIdx.y": warp, "threadIdx.x": lane})
    sch.vectorize(vector)
    sch.storage_align(copy, 0, axis=-2, factor=32, offset=8)


def _tensorize(sch: s_tir.Schedule, copy: Any, intrinsic: str) -> None:
    """Replace a copy with an intrinsic for each tile of 16 by 16."""
    i, j = sch.get_loops(copy)[-2:]
    i, tile_i = sch.split(i, [None, 16])
    j, tile_j = sch.split(j, [None, 16])
    sch.reorder(i, j, tile_i, tile_j)
    sch.tensorize(tile_i, intrinsic)


def _bind(sch: s_tir.Schedule, axes: dict[str, Any]) -> None:
    for axis, loop in axes.items():
        sch.bind(loop, axis)


# The intrinsics of a tensor core. A description and its implementation have the same parameters.


def _fragment(tile: Any, stride: Any) -> Any:
    """The index of a tile among the tiles of its buffer."""
    return tile.elem_offset // stride // SIDE * (stride // SIDE) + tile.elem_offset % stride // SIDE


def _copy(dtype: str, source: str, target: str) -> tirx.PrimFunc:
    @T.prim_func(s_tir=True)
    def copy(a: T.handle, c: T.handle) -> None:
        left = T.match_buffer(a, (SIDE, SIDE), dtype, align=64, offset_factor=SIDE, scope=source)
        out = T.match_buffer(c, (SIDE, SIDE), dtype, align=64, offset_factor=SIDE, scope=target)
        with T.sblock("root"):
            T.reads(left[0:SIDE, 0:SIDE])
            T.writes(out[0:SIDE, 0:SIDE])
            for i, j in T.grid(SIDE, SIDE):
                with T.sblock("copy"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    out[v_i, v_j] = left[v_i, v_j]

    return copy


def _load(target: str) -> tirx.PrimFunc:
    @T.prim_func(s_tir=True)
    def load(a: T.handle, c: T.handle) -> None:
        s1, s0, d1, d0 = T.int32(), T.int32(), T.int32(), T.int32()
        left = T.match_buffer(
            a, (SIDE, SIDE), "float16", align=64, offset_factor=SIDE, scope="shared", strides=[s1, s0]
        )
        out = T.match_buffer(
            c, (SIDE, SIDE), "float16", align=64, offset_factor=SIDE, scope=target, strides=[d1, d0]
        )
        with T.sblock("root"):
            T.reads(left[0:SIDE, 0:SIDE])
            T.writes(out[0:SIDE, 0:SIDE])
            T.evaluate(
                T.tvm_load_matrix_sync(
                    out.data,
                    SIDE,
                    SIDE,
                    SIDE,
                    _fragment(out, d1),
                    left.access_ptr("r", ptr_type="float16"),
                    s1,
                    "row_major",
                    dtype="void",
                )
            )

    return load


@T.prim_func(s_tir=True)
def _store(a: T.handle, c: T.handle) -> None:
    s1, s0, d1, d0 = T.int32(), T.int32(), T.int32(), T.int32()
    left = T.match_buffer(
        a, (SIDE, SIDE), "float32", align=64, offset_factor=SIDE, scope=SUMS, strides=[d1, d0]
    )
    out = T.match_buffer(
        c, (SIDE, SIDE), "float32", align=64, offset_factor=SIDE, scope="global", strides=[s1, s0]
    )
    with T.sblock("root"):
        T.reads(left[0:SIDE, 0:SIDE])
        T.writes(out[0:SIDE, 0:SIDE])
        T.evaluate(
            T.tvm_store_matrix_sync(
                left.data,
                SIDE,
                SIDE,
                SIDE,
                _fragment(left, d1),
                out.access_ptr("w", ptr_type="float32"),
                s1,
                "row_major",
                dtype="void",
            )
        )


@T.prim_func(s_tir=True)
def _zeros(c: T.handle) -> None:
    out = T.match_buffer(c, (SIDE, SIDE), "float32", align=64, offset_factor=SIDE, scope=SUMS)
    with T.sblock("root"):
        T.reads()
        T.writes(out[0:SIDE, 0:SIDE])
        for i, j in T.grid(SIDE, SIDE):
            with T.sblock("zero"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                out[v_i, v_j] = T.float32(0)


@T.prim_func(s_tir=True)
def _fill(c: T.handle) -> None:
    d1, d0 = T.int32(), T.int32()
    out = T.match_buffer(
        c, (SIDE, SIDE), "float32", align=64, offset_factor=SIDE, scope=SUMS, strides=[d1, d0]
    )
    with T.sblock("root"):
        T.reads()
        T.writes(out[0:SIDE, 0:SIDE])
        T.evaluate(
            T.tvm_fill_fragment(out.data, SIDE, SIDE, SIDE, _fragment(out, d1), T.float32(0), dtype="void")
        )


@T.prim_func(s_tir=True)
def _product(a: T.handle, b: T.handle, c: T.handle) -> None:
    left = T.match_buffer(a, (SIDE, SIDE), "float16", align=64, offset_factor=SIDE, scope=LEFT)
    right = T.match_buffer(b, (SIDE, SIDE), "float16", align=64, offset_factor=SIDE, scope=RIGHT)
    out = T.match_buffer(c, (SIDE, SIDE), "float32", align=64, offset_factor=SIDE, scope=SUMS)
    with T.sblock("root"):
        T.reads(out[0:SIDE, 0:SIDE], left[0:SIDE, 0:SIDE], right[0:SIDE, 0:SIDE])
        T.writes(out[0:SIDE, 0:SIDE])
        for i, j, k in T.grid(SIDE, SIDE, SIDE):
            with T.sblock("update"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                out[v_i, v_j] = out[v_i, v_j] + T.Cast("float32", left[v_i, v_k]) * T.Cast(
                    "float32", right[v_k, v_j]
                )


@T.prim_func(s_tir=True)
def _multiply(a: T.handle, b: T.handle, c: T.handle) -> None:
    a1, a0, b1, b0, c1, c0 = T.int32(), T.int32(), T.int32(), T.int32(), T.int32(), T.int32()
    left = T.match_buffer(
        a, (SIDE, SIDE), "float16", align=64, offset_factor=SIDE, scope=LEFT, strides=[a1, a0]
    )
    right = T.match_buffer(
        b, (SIDE, SIDE), "float16", align=64, offset_factor=SIDE, scope=RIGHT, strides=[b1, b0]
    )
    out = T.match_buffer(
        c, (SIDE, SIDE), "float32", align=64, offset_factor=SIDE, scope=SUMS, strides=[c1, c0]
    )
    with T.sblock("root"):
        T.reads(out[0:SIDE, 0:SIDE], left[0:SIDE, 0:SIDE], right[0:SIDE, 0:SIDE])
        T.writes(out[0:SIDE, 0:SIDE])
        T.evaluate(
            T.tvm_mma_sync(
                out.data,
                _fragment(out, c1),
                left.data,
                _fragment(left, a1),
                right.data,
                _fragment(right, b1),
                out.data,
                _fragment(out, c1),
                dtype="void",
            )
        )


for _name, _description, _implementation in (
    (f"course.load.{LEFT}", _copy("float16", "shared", LEFT), _load(LEFT)),
    (f"course.load.{RIGHT}", _copy("float16", "shared", RIGHT), _load(RIGHT)),
    ("course.store", _copy("float32", SUMS, "global"), _store),
    ("course.fill", _zeros, _fill),
    ("course.multiply", _product, _multiply),
):
    s_tir.TensorIntrin.register(_name, _description, _implementation, override=True)


def reference(a: Any, b: Any) -> Any:
    """The product in NumPy."""
    return a.astype("float32") @ b.astype("float32")
