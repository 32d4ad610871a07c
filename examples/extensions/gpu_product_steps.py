"""Schedules of a matrix product for a GPU, each one step further than the one before.

::

    bound          a thread for each element
    registers      8 by 8 elements for each thread, in registers
    shared         the factors' tiles in shared memory, which all threads of a block copy together
    vectors        copies and reads of four floats, and strided columns, which avoid bank conflicts
    tensor_cores   tiles of 16 by 16 by 16 by a warp's tensor core; float16 factors

The function to schedule has a block ``product`` with three loops. Rows and columns are multiples of 128, the depth
of 32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import s_tir

Step = Callable[[s_tir.Schedule], None]
THREADS = 16
"""Threads of a block in each direction."""
WARP = 32


def bound(sch: s_tir.Schedule) -> None:
    """A thread for each element."""
    i, j, k = sch.get_loops(sch.get_sblock("product"))
    block_y, y = sch.split(i, [None, THREADS])
    block_x, x = sch.split(j, [None, THREADS])
    sch.reorder(block_y, block_x, y, x, k)
    _bind(sch, {"blockIdx.y": block_y, "blockIdx.x": block_x, "threadIdx.y": y, "threadIdx.x": x})


def registers(sch: s_tir.Schedule) -> None:
    """A tile of 8 by 8 elements in the registers of each thread."""
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
    """The factors' tiles of 128 by 8 in shared memory."""
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
    """Four floats at a time. A thread's columns are two groups of four, 64 columns apart, as are its rows."""
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
    """Eight warps of a block, each with 4 by 2 tiles of 16 by 16 sums in the registers of its tensor core."""
    from tvm.s_tir.tensor_intrin import cuda as intrinsics  # slow: it parses every intrinsic

    loads = (
        ("wmma.matrix_a", intrinsics.WMMA_LOAD_16x16x16_F16_A_INTRIN),
        ("wmma.matrix_b", intrinsics.WMMA_LOAD_16x16x16_F16_B_INTRIN),
    )
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
    sums = sch.cache_write(outer, 0, "wmma.accumulator")
    sch.reverse_compute_at(sums, warp)
    for factor, (scope, load) in enumerate(loads):
        copy = sch.cache_read(outer, factor, "shared")
        fragment = sch.cache_read(outer, factor, scope)
        sch.compute_at(fragment, step)
        sch.compute_at(copy, tile)
        _copy_by_warps(sch, copy)
        _tensorize(sch, fragment, load)
    start = sch.decompose_reduction(outer, tile)
    _tensorize(sch, sums, intrinsics.WMMA_STORE_16x16x16_F32_GLOBAL_INTRIN)
    sch.tensorize(start, intrinsics.WMMA_FILL_16x16x16_F32_INTRIN)
    sch.tensorize(outer, intrinsics.WMMA_SYNC_16x16x16_f16f16f32_INTRIN)


def _copy_by_warps(sch: s_tir.Schedule, copy: Any) -> None:
    """Copy a tile by all threads of eight warps, eight halves at a time; pad its rows, for fewer bank conflicts."""
    fused = sch.fuse(*sch.get_loops(copy)[-2:])
    _, warp, lane, vector = sch.split(fused, [None, 8, WARP, 8])
    _bind(sch, {"threadIdx.y": warp, "threadIdx.x": lane})
    sch.vectorize(vector)
    sch.storage_align(copy, 0, axis=-2, factor=32, offset=8)


def _tensorize(sch: s_tir.Schedule, copy: Any, intrinsic: str) -> None:
    """Replace a copy by an intrinsic for each tile of 16 by 16."""
    i, j = sch.get_loops(copy)[-2:]
    i, tile_i = sch.split(i, [None, 16])
    j, tile_j = sch.split(j, [None, 16])
    sch.reorder(i, j, tile_i, tile_j)
    sch.tensorize(tile_i, intrinsic)


def _bind(sch: s_tir.Schedule, axes: dict[str, Any]) -> None:
    for axis, loop in axes.items():
        sch.bind(loop, axis)
