"""A search space for one compilation: a ``ScheduleFn`` that tiles and vectorizes the columns of a product."""

from __future__ import annotations

from tvm import s_tir

from worker.compiler.spaces.space import Space


def tile_columns(schedule: s_tir.Schedule) -> None:
    """Sample a tile of columns, and vectorize it."""
    block = schedule.get_sblock("matmul")
    rows, columns, depth = schedule.get_loops(block)
    outer, inner = schedule.split(
        columns, schedule.sample_perfect_tile(columns, n=2, max_innermost_factor=32)
    )
    schedule.reorder(rows, outer, depth, inner)
    schedule.parallel(schedule.fuse(rows, outer))
    schedule.vectorize(inner)
    schedule.decompose_reduction(block, depth)


SPACES = (Space("tile-columns", tile_columns, "functions with a block 'matmul' of three loops"),)
