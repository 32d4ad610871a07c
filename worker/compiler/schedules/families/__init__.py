"""Families, each for one kind of function; the first that claims a function gives it its loops.

A family gets a function whose elementwise blocks are inlined, as far as that repeats no work. It looks for
its own blocks, and either returns the function with its loops, written anew or transformed, or None where
the function is none of its kind. What TVM refuses on the way counts as None. Where a family could do it in
several ways it lists them, the most promising first, and follows the one that it is told to choose. A
function one of whose blocks names its family is shown to no other, except to those that take any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tvm import s_tir, tirx

from worker.compiler.schedules.annotations import CONVOLUTION, DEPTHWISE, FAMILY, POOLING, TRANSPOSED
from worker.compiler.schedules.blocks import REFUSALS, block_names
from worker.compiler.schedules.families.attention import write_attention
from worker.compiler.schedules.families.columns import write_columns
from worker.compiler.schedules.families.convolution.conv2d import schedule_conv2d
from worker.compiler.schedules.families.convolution.depthwise import schedule_depthwise
from worker.compiler.schedules.families.convolution.transposed import write_transposed_convolution
from worker.compiler.schedules.families.elementwise import schedule_elementwise
from worker.compiler.schedules.families.matmul import write_matmul
from worker.compiler.schedules.families.pieces import write_pieces
from worker.compiler.schedules.families.pooling import schedule_plain_pooling, schedule_pooling
from worker.compiler.schedules.families.rows import write_rows
from worker.compiler.schedules.families.transpose import write_transpose
from worker.compiler.schedules.plans import Numbers, PlanChooser, Scheduled
from worker.compiler.schedules.processors import Machine

Write = Callable[[s_tir.Schedule, Machine, PlanChooser], tirx.PrimFunc | None]
"""Returns a claimed function with its loops."""

Transform = Callable[[s_tir.Schedule, Machine, PlanChooser], bool]
"""Transforms the loops of a claimed function in place, and returns whether it did."""


class Family(NamedTuple):
    """A template: a name, and what claims a function and gives it its loops.

    One that ``takes_any`` is shown functions too that name another family, which left them.
    """

    name: str
    write: Write
    takes_any: bool = False


def transformed(transform: Transform) -> Write:
    """Writes a function by transforming a copy of it."""

    def write(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> tirx.PrimFunc | None:
        trial = schedule.copy()
        return trial.mod["main"] if transform(trial, machine, choose) else None

    return write


FAMILIES: tuple[Family, ...] = (
    Family("attention", write_attention),
    Family("matmul", write_matmul),
    Family("rows", write_rows),
    Family("columns", write_columns),
    Family("transpose", write_transpose),
    Family(TRANSPOSED, write_transposed_convolution),
    Family("pieces", write_pieces),
    Family(CONVOLUTION, transformed(schedule_conv2d)),
    Family(DEPTHWISE, transformed(schedule_depthwise)),
    Family(POOLING, transformed(schedule_pooling)),
    Family("plain-pooling", transformed(schedule_plain_pooling), takes_any=True),
    Family("elementwise", transformed(schedule_elementwise), takes_any=True),
)


def schedule_by_family(
    schedule: s_tir.Schedule, machine: Machine, wanted: Numbers | None
) -> Scheduled | None:
    """The function as the first family that claims it schedules it; None where none does.

    Args:
        schedule: the function.
        machine: the processor.
        wanted: the plan to follow; the family's first where it is None.
    """
    named = _named_family(schedule)
    for family in FAMILIES:
        if named not in (None, family.name) and not family.takes_any:
            continue
        choose = PlanChooser(wanted)
        try:
            written = family.write(schedule, machine, choose)
        except REFUSALS:
            continue
        if written is not None:
            return Scheduled(written, choose.plans)
    return None


def _named_family(schedule: s_tir.Schedule) -> str | None:
    """The family that a block is annotated with."""
    annotations = [schedule.get(schedule.get_sblock(name)).annotations for name in block_names(schedule)]
    return next((str(of_block[FAMILY]) for of_block in annotations if FAMILY in of_block), None)
