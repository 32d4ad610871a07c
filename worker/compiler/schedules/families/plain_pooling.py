"""Pools of images that are not in blocks: a window of one channel slides over its rows.

Claims a function of one reduction that joins the elements of one buffer, with a border before it and
elementwise work after it.

Loop order: outer dimensions and rows (in parallel where the work is worth it) → a tile of the output's row →
the window → the tile's vectors, which stay in registers (``schedules.reduction``). The border is
a stage of its own, so that the window has no branch.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Block, block_names, read_block
from worker.compiler.schedules.machine import Machine
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.reduction import find_epilogue, plan_tile, tile_reduction
from worker.compiler.schedules.spatial import MIN_PARALLEL_WORK, schedule_spatial

_JOINS = (tirx.Add, tirx.Max, tirx.Min)


def schedule_plain_pooling(schedule: s_tir.Schedule, machine: Machine, _choose: PlanChooser) -> bool:
    """Claim a pool in plain layout and schedule it."""
    blocks = [read_block(schedule, schedule.get_sblock(name)) for name in block_names(schedule)]
    pools = [block for block in blocks if block is not None and block.reduced]
    if len(pools) != 1 or None in blocks or not _joins_one_buffer(pools[0]):
        return False
    pool = pools[0]
    plan = plan_tile(pool, machine)
    if plan is None:
        return False
    name, epilogue = str(pool.body.name_hint), find_epilogue(schedule, pool)
    others = {str(block.body.name_hint) for block in blocks if block is not None} - {name, epilogue}
    for other in others:
        schedule_spatial(schedule, other, machine)
    is_parallel = machine.threads > 1 and pool.work >= MIN_PARALLEL_WORK
    tile_reduction(schedule, name, epilogue, plan, is_parallel)
    return True


def _joins_one_buffer(block: Block) -> bool:
    body = block.body.body
    if not isinstance(body, tirx.BufferStore) or not isinstance(body.value, _JOINS):
        return False
    return len([load for load in nest.loads_of(body.value) if not load.source.same_as(body.buffer)]) == 1
