"""Functions without a reduction: elementwise chains, broadcasts, transpositions, joins, pads, gathers.

Loop order: the output's dimensions, the last in vectors where it is read or written along them; the outer
ones in parallel where the work is worth waking the other threads (``schedules.spatial``). Nothing is
kept: each element is computed where it is stored, cheap producers having been inlined.
"""

from __future__ import annotations

from tvm import s_tir

from worker.compiler.schedules.blocks import block_names, read_block
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import Machine
from worker.compiler.schedules.spatial import schedule_spatial


def schedule_elementwise(schedule: s_tir.Schedule, machine: Machine, _choose: PlanChooser) -> bool:
    """Schedule a function all of whose blocks only compute elements."""
    names = [name for name in block_names(schedule) if schedule.get_loops(schedule.get_sblock(name))]
    blocks = [read_block(schedule, schedule.get_sblock(name), may_be_open=True) for name in names]
    if any(block is None or block.reduced for block in blocks):
        return False
    for name, block in zip(names, blocks, strict=True):
        if block is not None and block.axes:
            schedule_spatial(schedule, name, machine)
    return True
