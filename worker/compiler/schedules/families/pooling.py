"""Two families of pools, of images in blocks of channels and of plain ones.

``pooling`` gives small windows in blocks the loops of ``convolution.depthwise``. A pool of the whole image
has one output pixel, so it computes several blocks of channels at once to hide the latency of additions::

    for parallel task in (image, group of blocks):
        sums[blocks, lanes] = initial value
        for row, column of the image:
            for block: sums[block, lanes] = combine(sums[block, lanes], image[pixel])  # unrolled
        output[blocks, lanes] = epilogue(sums[blocks, lanes])

``plain-pooling`` claims a function with one reduction, of one buffer, if a tile of vectors divides its rows::

    copy the image with its border, in parallel                           # if it has one
    for parallel task in (image, channel, row, tile of columns):
        sums[vectors, lanes] = initial value
        for tap row, tap column:
            for vector: sums[vector, lanes] = combine(sums[vector, lanes], image[pixel])  # unrolled
        output[vectors, lanes] = epilogue(sums[vectors, lanes])

Registers hold the sums, the caches only the image. The border is a copy, so the window has no branch. Tiles
divide a row or the blocks, so there are no shorter ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import POOLING
from worker.compiler.schedules.blocks import Block, read_blocks
from worker.compiler.schedules.families.convolution.depthwise import tile_windows
from worker.compiler.schedules.families.convolution.windows import (
    Windows,
    find_windows,
    run_parallel,
    tile_inside,
)
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import WORK_PER_THREAD, Machine, divisors, threads_pay
from worker.compiler.schedules.reduction import find_epilogue, plan_tile, tile_reduction
from worker.compiler.schedules.spatial import schedule_spatial

_IN_FLIGHT = 8
_MAX_BLOCKS = 16


@dataclass(frozen=True)
class PoolPlan:
    """The blocks of channels that a task of a whole-image pool computes at once."""

    blocks: int


def schedule_pooling(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> bool:
    """Schedule a pool in blocks; False for other functions."""
    windows = find_windows(schedule, POOLING)
    if windows is None:
        return False
    if windows.sizes[2:4] == (1, 1) and windows.border is None:
        _tile_blocks(schedule, windows, machine, choose)
    else:
        tile_windows(schedule, windows, machine, choose)
    return True


def _tile_blocks(schedule: s_tir.Schedule, windows: Windows, machine: Machine, choose: PlanChooser) -> None:
    sides = divisors(windows.sizes[1], _MAX_BLOCKS)
    fitting = divisors(windows.sizes[1], _IN_FLIGHT)[-1]
    plan = choose([PoolPlan(blocks) for blocks in sorted(sides, key=lambda side: (side != fitting, -side))])
    batch, block, row, column, lane = schedule.get_loops(windows.last)
    outer, inner = schedule.split(block, factors=[None, plan.blocks])
    schedule.reorder(batch, outer, row, column, inner, lane)
    schedule.vectorize(lane)
    schedule.unroll(inner)
    parallel = schedule.fuse(batch, outer)
    schedule.compute_at(windows.main, column, preserve_unit_loops=True)
    run_parallel(schedule, windows, parallel, machine)
    reductions = tile_inside(schedule, windows.main, outer=3, order=(0, 2, 3, 1, 4))
    schedule.decompose_reduction(windows.main, reductions[0])


_JOINS = (tirx.Add, tirx.Max, tirx.Min)


def schedule_plain_pooling(schedule: s_tir.Schedule, machine: Machine, _choose: PlanChooser) -> bool:
    """Schedule a pool of a plain image; False for other functions."""
    blocks = read_blocks(schedule)
    pools = [block for block in blocks if block.reduced]
    if len(pools) != 1 or not _joins_one_buffer(pools[0]):
        return False
    pool = pools[0]
    plan = plan_tile(pool, machine)
    if plan is None:
        return False
    name, epilogue = str(pool.body.name_hint), find_epilogue(schedule, pool)
    others = {str(block.body.name_hint) for block in blocks} - {name, epilogue}
    for other in others:
        schedule_spatial(schedule, other, machine)
    is_parallel = threads_pay(machine.threads, pool.work, WORK_PER_THREAD)
    tile_reduction(schedule, name, epilogue, plan, is_parallel)
    return True


def _joins_one_buffer(block: Block) -> bool:
    body = block.body.body
    if not isinstance(body, tirx.BufferStore) or not isinstance(body.value, _JOINS):
        return False
    return len([load for load in nest.loads_of(body.value) if not load.source.same_as(body.buffer)]) == 1
