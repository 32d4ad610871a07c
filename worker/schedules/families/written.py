"""Families that write the loops of a function themselves instead of transforming the ones it has.

A writer gets the schedule of a function whose elementwise blocks are inlined, as far as that repeats no
work. It returns the function with loops of its own, or None where the function is none of its kind. What
TVM refuses on the way counts as None. It chooses among several ways as the other families do. A
function one of whose blocks names its family is shown to no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tvm import s_tir, tirx

from worker.schedules.annotations import FAMILY
from worker.schedules.attempt import REFUSALS
from worker.schedules.blocks import block_names
from worker.schedules.families.attention import write_attention
from worker.schedules.families.columns import write_columns
from worker.schedules.families.matmul import write_matmul
from worker.schedules.families.pieces import write_pieces
from worker.schedules.families.rows import write_rows
from worker.schedules.families.transpose import write_transpose
from worker.schedules.families.transposed_convolution import write_transposed_convolution
from worker.schedules.machine import Machine
from worker.schedules.plans import Chooser, Numbers, Scheduled


class Writer(NamedTuple):
    """A template that writes functions: its name, and what writes one."""

    name: str
    write: Callable[[s_tir.Schedule, Machine, Chooser], tirx.PrimFunc | None]


WRITERS: tuple[Writer, ...] = (
    Writer("attention", write_attention),
    Writer("matmul", write_matmul),
    Writer("rows", write_rows),
    Writer("columns", write_columns),
    Writer("transpose", write_transpose),
    Writer("transposed_convolution", write_transposed_convolution),
    Writer("pieces", write_pieces),
)


def write_by_family(schedule: s_tir.Schedule, machine: Machine, wanted: Numbers | None) -> Scheduled | None:
    """The function as the first family that claims it writes it; None where none does.

    Args:
        schedule: the function.
        machine: the processor.
        wanted: the plan to follow; the family's first where it is None.
    """
    named = _named_family(schedule)
    for writer in WRITERS:
        if named not in (None, writer.name):
            continue
        choose = Chooser(wanted)
        try:
            written = writer.write(schedule, machine, choose)
        except REFUSALS:
            continue
        if written is not None:
            return Scheduled(written, choose.plans)
    return None


def _named_family(schedule: s_tir.Schedule) -> str | None:
    """The family that a block is annotated with."""
    annotations = [schedule.get(schedule.get_sblock(name)).annotations for name in block_names(schedule)]
    return next((str(of_block[FAMILY]) for of_block in annotations if FAMILY in of_block), None)
