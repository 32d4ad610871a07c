"""Schedule a reduction with its epilogue, for functions that no family claims::

    for parallel task in (outer dimensions, tile of rows, tile of columns):
        sums[rows, vectors, lanes] = initial value
        for reduced axes:
            for row, vector:                                              # unrolled
                sums[row, vector, lanes] = combine(sums[row, vector, lanes], f(...))
        output[rows, vectors, lanes] = epilogue(sums)

Registers hold the sums. The columns are the output's last dimension; the rows are an axis that the vectorized
operand does not use, so each loaded vector serves every row. The tile divides both. With dynamic sizes, sums
are a row of the output in memory::

    for parallel task in (outer dimensions):
        output[columns] = initial value
        for reduced axes:
            for column: output[column] = combine(output[column], f(...))

If no tile fits, outer loops run in parallel and the reduction stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from worker.compiler.schedules.blocks import (
    Axis,
    Block,
    attempt,
    depends_on,
    element_bits,
    moves_along,
    read_block,
    same_sizes,
    writes_axis,
)
from worker.compiler.schedules.processors import WORK_PER_THREAD, Machine, Tile, choose_tile, threads_pay


@dataclass(frozen=True)
class TilePlan:
    """The tile, and its axes as positions among the spatial ones."""

    columns: int
    rows: int | None
    tile: Tile


def schedule_reduction(
    schedule: s_tir.Schedule, name: str, epilogue: str | None, machine: Machine
) -> s_tir.Schedule:
    """Schedule a reduction with its epilogue.

    Args:
        schedule: the function.
        name: the reduction's block.
        epilogue: the only consumer, if it is elementwise and of the same shape.
        machine: the processor.

    Returns:
        The first of these that TVM accepts: a register tile (known sizes), a row of sums (dynamic sizes),
        parallel outer loops, no change.
    """
    block = read_block(schedule, schedule.get_sblock(name), may_be_dynamic=True)
    assert block is not None
    plan = None if block.is_dynamic else plan_tile(block, machine)
    parallel = threads_pay(machine.threads, block.work, WORK_PER_THREAD)
    tiled = plan and attempt(schedule, lambda trial: tile_reduction(trial, name, epilogue, plan, parallel))
    if block.is_dynamic:
        tiled = attempt(schedule, lambda trial: _sum_rows(trial, name, parallel))
    return tiled or attempt(schedule, lambda trial: _plain(trial, name, parallel, machine)) or schedule


def plan_tile(block: Block, machine: Machine) -> TilePlan | None:
    """The tile of a reduction; None if no tile fits."""
    column = writes_axis(block)
    if column is None:
        return None
    row = _row_axis(block, column)
    extent = row.extent if row else 1
    tile = choose_tile(column.extent, extent, element_bits(block), machine)
    if tile is None:
        return None
    spatial = block.spatial
    rows = spatial.index(row) if row and tile.rows > 1 else None
    return TilePlan(columns=spatial.index(column), rows=rows, tile=tile)


def find_epilogue(schedule: s_tir.Schedule, block: Block) -> str | None:
    """The only consumer of a reduction, if it is elementwise, of the same shape, without other producers."""
    consumers = [
        read_block(schedule, handle, block.is_dynamic) for handle in schedule.get_consumers(block.handle)
    ]
    if len(consumers) != 1 or consumers[0] is None:
        return None
    consumer = consumers[0]
    same = same_sizes(consumer.axes, block.spatial)
    one_producer = len(schedule.get_producers(consumer.handle)) == 1
    return str(consumer.body.name_hint) if same and not consumer.reduced and one_producer else None


def last_block(schedule: s_tir.Schedule, reduction: SBlockRV, epilogue: str | None) -> SBlockRV:
    """The block that writes the result of a reduction: its epilogue, else a copy from a new buffer."""
    return schedule.get_sblock(epilogue) if epilogue else schedule.cache_write(reduction, 0, "global")


def _row_axis(block: Block, column: Axis) -> Axis | None:
    """The last spatial axis that no vectorized operand uses."""
    vectors = [region for region in block.body.reads if moves_along(region, column)]
    if not vectors:
        return None
    candidates = [axis for axis in block.spatial if axis is not column and axis.extent > 1]
    free = [axis for axis in candidates if not any(depends_on(region, axis) for region in vectors)]
    return free[-1] if free else None


def tile_reduction(
    schedule: s_tir.Schedule, name: str, epilogue: str | None, plan: TilePlan, parallel: bool
) -> None:
    """Accumulate a tile in registers, then apply the epilogue; TVM's errors pass through."""
    reduction = schedule.get_sblock(name)
    outer = _tile_epilogue(schedule, last_block(schedule, reduction, epilogue), plan)
    schedule.compute_at(reduction, outer, preserve_unit_loops=True)
    if parallel:
        schedule.parallel(outer)
    _tile_reduction(schedule, reduction, plan)


def _tile_epilogue(schedule: s_tir.Schedule, last: SBlockRV, plan: TilePlan) -> LoopRV:
    """Tile the loops that write the output; returns the fused loop around a tile."""
    loops = list(schedule.get_loops(last))
    tile = plan.tile
    outer, vectors, lanes = schedule.split(loops[plan.columns], factors=[None, tile.vectors, tile.lanes])
    loops[plan.columns] = outer
    inner = [vectors, lanes]
    if plan.rows is not None:
        loops[plan.rows], rows = schedule.split(loops[plan.rows], factors=[None, tile.rows])
        inner.insert(0, rows)
    schedule.reorder(*loops, *inner)
    schedule.vectorize(inner[-1])
    for loop in inner[:-1]:
        schedule.unroll(loop)
    return schedule.fuse(*loops)


def _tile_reduction(schedule: s_tir.Schedule, reduction: SBlockRV, plan: TilePlan) -> None:
    """Move the tile's loops inside the reduced ones, vectorize and unroll them, and clear the tile first."""
    _, *loops = schedule.get_loops(reduction)
    kinds = [variable.iter_type for variable in schedule.get(reduction).iter_vars]
    if len(loops) != len(kinds):
        raise ValueError("the tile lost a loop")
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == tirx.IterVar.CommReduce]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != tirx.IterVar.CommReduce]
    column = spatial.pop(plan.columns)
    vectors, lanes = schedule.split(column, factors=[None, plan.tile.lanes])
    schedule.reorder(*reduced, *spatial, vectors, lanes)
    schedule.vectorize(lanes)
    for loop in [*spatial, vectors]:
        schedule.unroll(loop)
    schedule.decompose_reduction(reduction, reduced[0])


def _sum_rows(schedule: s_tir.Schedule, name: str, parallel: bool) -> None:
    """Clear a row of the output, then accumulate; a reduction of zero elements clears too."""
    block = read_block(schedule, schedule.get_sblock(name), may_be_dynamic=True)
    assert block is not None
    column = writes_axis(block)
    outer = [axis.loop for axis in block.spatial if axis is not column]
    inner = [column.loop] if column else []
    reduced = [axis.loop for axis in block.reduced]
    schedule.reorder(*outer, *reduced, *inner)
    if parallel and outer:
        schedule.parallel(schedule.fuse(*outer))
    schedule.decompose_reduction(block.handle, reduced[0])


def _plain(schedule: s_tir.Schedule, name: str, parallel: bool, machine: Machine) -> None:
    """Run outer loops in parallel; the reduction stays as it is."""
    block = read_block(schedule, schedule.get_sblock(name), may_be_dynamic=True)
    assert block is not None
    outer: list[Axis] = []
    for axis in block.axes:
        if axis.reduces or (outer and _iterations(outer) >= 4 * machine.threads):
            break
        outer.append(axis)
    if parallel and outer:
        schedule.parallel(schedule.fuse(*(axis.loop for axis in outer)))


def _iterations(axes: list[Axis]) -> int:
    """Iterations of nested loops."""
    return prod(axis.extent for axis in axes)
