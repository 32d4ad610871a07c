"""A search space for a product on a GPU: a ``ScheduleFn`` that samples the tiles of blocks and threads.

::

    for each block:                                   # 16 by 16 threads
        for each tile of the depth:
            copy both factors' tiles to shared memory, all threads together
            for each step of the tile: the thread's sums += left * right      # in registers

It samples the rows and columns of a thread, the depth of a tile, and the floats of one copy. Rows and columns
must be multiples of 128, and the depth a multiple of 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir

from worker.compiler.spaces.space import Space

THREADS = 16
"""Threads of a block in each direction."""


def gpu_tiles(schedule: s_tir.Schedule) -> None:
    """Sample a tiling; see the module's docstring."""
    product = schedule.get_sblock("product")
    i, j, k = schedule.get_loops(product)
    block_y, y, row = schedule.split(i, [None, THREADS, _choice(schedule, (2, 4, 8))])
    block_x, x, column = schedule.split(j, [None, THREADS, _choice(schedule, (4, 8))])
    tile, step = schedule.split(k, [None, _choice(schedule, (8, 16, 32))])
    schedule.reorder(block_y, block_x, y, x, tile, step, row, column)
    _bind(schedule, {"blockIdx.y": block_y, "blockIdx.x": block_x, "threadIdx.y": y, "threadIdx.x": x})
    sums = schedule.cache_write(product, 0, "local")
    schedule.reverse_compute_at(sums, x)
    floats = _choice(schedule, (1, 2, 4))
    for factor in (0, 1):
        copy = schedule.cache_read(product, factor, "shared")
        schedule.compute_at(copy, tile)
        fused = schedule.fuse(*schedule.get_loops(copy)[-2:])
        _, own_y, own_x, lane = schedule.split(fused, [None, THREADS, THREADS, floats])
        _bind(schedule, {"threadIdx.y": own_y, "threadIdx.x": own_x})
        schedule.vectorize(lane)
    schedule.decompose_reduction(product, tile)
    for loop in (step, row, column):
        schedule.unroll(loop)


def _choice(schedule: s_tir.Schedule, values: Sequence[int]) -> Any:
    return schedule.sample_categorical(list(values), [1.0 / len(values)] * len(values))


def _bind(schedule: s_tir.Schedule, axes: dict[str, Any]) -> None:
    for axis, loop in axes.items():
        schedule.bind(loop, axis)


SPACES = (Space("gpu-tiles", gpu_tiles, "a block 'product' of two matrices on a GPU"),)
