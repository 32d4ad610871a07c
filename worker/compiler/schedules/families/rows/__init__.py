"""Functions that work row by row: softmax, layer and group norm, sums and means over the last dimensions.

Claims a function whose blocks all run over the same rows, and within a row over the same columns, reduced
over or not; at least one block reduces. Columns may be several dimensions; the last must lie contiguously
in memory.

Loop order: tasks (a part of the rows each; in parallel where the work is worth it) → rows → blocks in their
order → columns in vectors. A row's intermediate results never leave the first cache: they have the size of
one row. A reduction keeps several vectors of partial results, which hides the latency of additions and
lets rounding errors grow with the columns divided by their lanes; they are joined pairwise at the end.

Source: the three-pass softmax and the two-pass variance, which suffer no cancellation, read a row from the
first cache every time but the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import element_bits
from worker.compiler.schedules.families.rows.loops import RowLoops
from worker.compiler.schedules.families.rows.parts import Part, find_parts
from worker.compiler.schedules.plans import PlanChooser, by_rank
from worker.compiler.schedules.processors import MIN_PARALLEL_WORK, Machine

_SUMS = (4, 2, 8, 1)
_DOUBT = 8


def write_rows(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> tirx.PrimFunc | None:
    """The function as loops of this family, or None where it does not work row by row."""
    parts = find_parts(schedule)
    if parts is None:
        return None
    function = schedule.mod["main"]
    plan = choose(rows_plans(_shape(parts, machine), machine.threads))
    loops = RowLoops.of(parts, set(function.params), machine, plan.sums)
    return nest.with_loops(function, loops.tasks(plan.tasks))


@dataclass(frozen=True)
class RowsShape:
    """``rows`` rows, of which each reduction reads ``vectors`` vectors; all of it is ``work`` operations."""

    rows: int
    vectors: int
    work: int


@dataclass(frozen=True)
class RowsPlan:
    """How rows are worked through.

    Attributes:
        sums: vectors of partial results of a reduction.
        tasks: parts of the rows, which run in parallel.
    """

    sums: int
    tasks: int


def rows_plans(shape: RowsShape, threads: int) -> tuple[RowsPlan, ...]:
    """The ways to work through rows, the most promising first."""
    tasks = threads if shape.work >= MIN_PARALLEL_WORK else 1
    near = MIN_PARALLEL_WORK / _DOUBT <= shape.work <= MIN_PARALLEL_WORK * _DOUBT
    others = (1, threads) if near else (tasks,)
    sums = dict.fromkeys(max(1, min(each, shape.vectors)) for each in _SUMS)
    parts = dict.fromkeys(min(each, shape.rows) for each in (tasks, *others))
    return tuple(RowsPlan(*choices) for choices in by_rank(tuple(sums), tuple(parts)))


def _shape(parts: tuple[Part, ...], machine: Machine) -> RowsShape:
    lengths = [_vectors(part, machine) for part in parts if part.reduces]
    work = sum(part.block.work for part in parts)
    return RowsShape(rows=prod(axis.extent for axis in parts[0].rows), vectors=max(lengths), work=work)


def _vectors(part: Part, machine: Machine) -> int:
    """Whole vectors of the innermost columns; where these are open, as many as any plan asks for."""
    last = part.columns[-1]
    return max(_SUMS) if last.is_open else last.extent // machine.lanes(element_bits(part.block))
