"""The course's search space for a matrix product: parallel, vectorized tiles of rows and columns.

::

    for each tile of rows and columns, in parallel:
        sums = 0
        for each part of the depth: sums += left * right
        result = elementwise(sums)

The samples are how rows, columns and depth are divided. The elementwise operators run while a tile is in the
first-level cache.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir

from worker.compiler.schedules.inline import inline_blocks
from worker.compiler.spaces.matmul_block import find_product, finish_at
from worker.compiler.spaces.space import Space

_MOST_ROWS = 8
_MOST_COLUMNS = 64
_MOST_DEPTH = 16


def schedule_matmul(schedule: s_tir.Schedule) -> s_tir.Schedule:
    """Sample a tiling; see the module."""
    schedule = inline_blocks(schedule, is_traced=True)
    product = find_product(schedule).block
    tile = schedule.cache_write(product, 0, "global")
    rows, columns, depth = schedule.get_loops(product)
    row_tiles, row = _split(schedule, rows, _MOST_ROWS)
    column_tiles, column = _split(schedule, columns, _MOST_COLUMNS)
    depth_parts, depth_part = _split(schedule, depth, _MOST_DEPTH)
    schedule.reorder(row_tiles, column_tiles, depth_parts, depth_part, row, column)
    schedule.reverse_compute_at(tile, column_tiles)
    finish_at(schedule, tile, column_tiles)
    schedule.parallel(schedule.fuse(row_tiles, column_tiles))
    schedule.unroll(row)
    schedule.vectorize(column)
    schedule.decompose_reduction(product, depth_parts)
    return schedule


def _split(schedule: s_tir.Schedule, loop: s_tir.schedule.LoopRV, most: int) -> tuple[Any, ...]:
    factors = schedule.sample_perfect_tile(loop, n=2, max_innermost_factor=most)
    return tuple(schedule.split(loop, factors))


SPACES = (Space("course-matmul", schedule_matmul, "a product of two matrices, its neighbors elementwise"),)
