"""Schedule a block without a reduction::

    for parallel task in (as few outer dimensions as give every thread four tasks):
        for remaining dimensions:
            for vector of the last dimension: output[...] = f(...)

The vector's lanes divide the last dimension. LLVM vectorizes the rest: a dimension of dynamic size, one that
no good vector divides, one whose elements take different branches.
"""

from __future__ import annotations

from math import prod

from tvm import s_tir

from worker.compiler.schedules.blocks import Block, branches_along, element_bits, read_block, writes_axis
from worker.compiler.schedules.processors import WORK_PER_THREAD, Machine, choose_tile, threads_pay


def schedule_spatial(schedule: s_tir.Schedule, name: str, machine: Machine) -> None:
    """Vectorize the output's last dimension, and run outer loops in parallel if there is enough work."""
    block = read_block(schedule, schedule.get_sblock(name), may_be_dynamic=True)
    if block is None:
        return
    loops = [axis.loop for axis in block.spatial]
    lanes = _lanes(block, machine)
    if lanes > 1:
        *outer, last = loops
        chunk, vector = schedule.split(last, factors=[None, lanes])
        schedule.vectorize(vector)
        loops = [*outer, chunk]
    if threads_pay(machine.threads, block.work, WORK_PER_THREAD):
        schedule.parallel(schedule.fuse(*_parallel_part(loops, block, lanes, machine)))


def _lanes(block: Block, machine: Machine) -> int:
    last = block.spatial[-1]
    if last.is_dynamic or writes_axis(block) is not last or branches_along(block, last):
        return 1
    tile = choose_tile(last.extent, 1, element_bits(block), machine)
    return tile.lanes if tile else 1


def _parallel_part(loops: list[object], block: Block, lanes: int, machine: Machine) -> list[object]:
    """As few outer loops as give every thread four tasks; the other loops stay plain for LLVM."""
    extents = [axis.extent for axis in block.spatial]
    extents[-1] //= lanes
    for count in range(1, len(loops)):
        if prod(extents[:count]) >= 4 * machine.threads:
            return loops[:count]
    return loops
