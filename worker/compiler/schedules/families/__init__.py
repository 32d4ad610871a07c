"""Kernel families: templates of loop nests, each for one kind of function.

Each module or package here is a family, except for ``convolution`` and ``matmul``, which hold several. Its
docstring says which functions it claims, which loops it writes, what registers and caches hold, how it
handles edges, and its source.

A family gets a function whose elementwise blocks are inlined. It either returns the function with its loops,
or None for a function of another kind; an error of TVM counts as None. The first family that claims a
function in the order of ``FAMILIES`` schedules it. If a family knows several plans, it ranks them and follows
the one that ``PlanChooser`` returns. A function with a block annotated with a family's name is offered to
that family only, and to families that take any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tvm import s_tir, tirx

from worker.compiler.schedules.annotations import (
    CONVOLUTION,
    DEPTHWISE,
    FAMILY,
    GROUPED,
    POOLING,
    TRANSPOSED,
    WINOGRAD,
)
from worker.compiler.schedules.blocks import REFUSALS, block_names
from worker.compiler.schedules.families.attention import write_attention
from worker.compiler.schedules.families.columns import write_columns
from worker.compiler.schedules.families.convolution.chain import write_chain
from worker.compiler.schedules.families.convolution.conv2d import write_conv2d
from worker.compiler.schedules.families.convolution.depthwise import schedule_depthwise
from worker.compiler.schedules.families.convolution.grouped import write_grouped
from worker.compiler.schedules.families.convolution.open_sizes import OPEN_FAMILIES, write_open_sizes
from worker.compiler.schedules.families.convolution.transposed import write_transposed_convolution
from worker.compiler.schedules.families.convolution.window_borders import write_depthwise, write_pooling
from worker.compiler.schedules.families.convolution.winograd import write_winograd
from worker.compiler.schedules.families.elementwise import schedule_elementwise
from worker.compiler.schedules.families.matmul import write_matmul
from worker.compiler.schedules.families.matmul.chain import write_product_chain
from worker.compiler.schedules.families.pieces import write_pieces
from worker.compiler.schedules.families.pooling import schedule_plain_pooling, schedule_pooling
from worker.compiler.schedules.families.rows import write_rows
from worker.compiler.schedules.families.transpose import write_transpose
from worker.compiler.schedules.plans import Numbers, PlanChooser, Scheduled
from worker.compiler.schedules.processors import Machine

Write = Callable[[s_tir.Schedule, Machine, PlanChooser], tirx.PrimFunc | None]
"""Returns a claimed function with its loops, or None."""

Transform = Callable[[s_tir.Schedule, Machine, PlanChooser], bool]
"""Transforms the loops of a claimed function in place, and returns whether it did."""


class Family(NamedTuple):
    """A family's name, and the function that claims and schedules.

    A family that ``takes_any`` is also offered functions that are annotated with another family, if that one
    left them.
    """

    name: str
    write: Write
    takes_any: bool = False


def transformed(transform: Transform) -> Write:
    """A ``Write`` that transforms a copy of the function."""

    def write(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> tirx.PrimFunc | None:
        trial = schedule.copy()
        return trial.mod["main"] if transform(trial, machine, choose) else None

    return write


FAMILIES: tuple[Family, ...] = (
    Family("attention", write_attention),
    Family("matmul", write_matmul),
    Family("product-chain", write_product_chain),
    Family("rows", write_rows),
    Family("columns", write_columns),
    Family("transpose", write_transpose),
    Family(TRANSPOSED, write_transposed_convolution),
    Family(WINOGRAD, write_winograd),
    Family(GROUPED, write_grouped),
    Family("pieces", write_pieces),
    Family(CONVOLUTION, write_chain),
    Family(CONVOLUTION, write_conv2d),
    *(Family(name, write_open_sizes) for name in OPEN_FAMILIES),
    Family(DEPTHWISE, write_depthwise),
    Family(DEPTHWISE, transformed(schedule_depthwise)),
    Family(POOLING, write_pooling),
    Family(POOLING, transformed(schedule_pooling)),
    Family("plain-pooling", transformed(schedule_plain_pooling), takes_any=True),
    Family("elementwise", transformed(schedule_elementwise), takes_any=True),
)


def schedule_by_family(
    schedule: s_tir.Schedule, machine: Machine, wanted: Numbers | None
) -> Scheduled | None:
    """Schedule a function by the first family that claims it; None if no family does.

    Args:
        schedule: the function.
        machine: the processor.
        wanted: the plan to follow; None for the family's first.
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
            return Scheduled(written, choose.plans, choose.shapes)
    return None


def _named_family(schedule: s_tir.Schedule) -> str | None:
    """The family that a block is annotated with."""
    annotations = [schedule.get(schedule.get_sblock(name)).annotations for name in block_names(schedule)]
    return next((str(of_block[FAMILY]) for of_block in annotations if FAMILY in of_block), None)
