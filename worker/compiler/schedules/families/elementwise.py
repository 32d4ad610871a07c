"""Functions without a reduction: elementwise chains, broadcasts, slices, gathers::

    for parallel task in (outer dimensions):
        for remaining dimensions:
            for vector of the last dimension: output[...] = f(...)

Each element is computed where it is stored, as ``inline`` has inlined cheap producers; registers and caches
hold nothing between elements. ``spatial`` says how vectors and tasks are chosen, and how edges are handled.
"""

from __future__ import annotations

from tvm import s_tir

from worker.compiler.schedules.blocks import block_names, read_block
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import Machine
from worker.compiler.schedules.spatial import schedule_spatial


def schedule_elementwise(schedule: s_tir.Schedule, machine: Machine, _choose: PlanChooser) -> bool:
    """Schedule a function without reductions; False for other functions."""
    names = [name for name in block_names(schedule) if schedule.get_loops(schedule.get_sblock(name))]
    blocks = [read_block(schedule, schedule.get_sblock(name), may_be_dynamic=True) for name in names]
    if any(block is None or block.reduced for block in blocks):
        return False
    for name, block in zip(names, blocks, strict=True):
        if block is not None and block.axes:
            schedule_spatial(schedule, name, machine)
    return True
