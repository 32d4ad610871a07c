"""Functions that work row by row: softmax, layer norm, sums and means over the last dimensions.

Claims a function whose blocks all run over the same rows and, within a row, over the same columns; at least
one block reduces the columns. The columns may be several dimensions; reads are contiguous or constant along
the last one::

    for parallel task = part of the rows:
        for row in part:
            for block in the function:                                  # such as maximum, exp, sum, quotient
                # a reduction
                sums[n, lanes] = initial value; rest = initial value
                for n vectors of columns:
                    for i in n: sums[i, lanes] = combine(sums[i, lanes], f(columns))     # unrolled
                for the remaining columns: rest = combine(rest, f(column))
                buffer[block] = sums and rest, combined pairwise
                # an elementwise block
                for vector of columns: buffer[block][columns] = f(columns)

Registers hold ``n`` vectors of partial results (4 by default), which hide the latency of additions and make
rounding errors grow with the columns divided by ``n * lanes``. L1 holds a row and its intermediate results,
so later blocks read from L1.

Edges: the last vector of an elementwise block is shorter; with a dynamic size, the rest is a scalar loop. The
last part of the rows moves back over its neighbor.

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 2 (safe
softmax, three passes over a row).
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
from worker.compiler.schedules.processors import WORK_PER_THREAD, Machine, least_work, threads_pay

_SUMS = (4, 2, 8, 1)
_DOUBT = 8


def write_rows(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the loops of a function; None if it does not work row by row."""
    parts = find_parts(schedule)
    if parts is None:
        return None
    function = schedule.mod["main"]
    shape = _shape(parts, machine)
    plan = choose(rows_plans(shape, machine.threads), shape)
    loops = RowLoops.of(parts, set(function.params), machine, plan.sums)
    return nest.with_loops(function, loops.tasks(plan.tasks))


@dataclass(frozen=True)
class RowsShape:
    """``rows`` rows of at most ``vectors`` vectors, and the function's operations."""

    rows: int
    vectors: int
    work: int


@dataclass(frozen=True)
class RowsPlan:
    """How rows are computed.

    Attributes:
        sums: vectors of partial results of a reduction.
        tasks: parts of the rows, computed in parallel.
    """

    sums: int
    tasks: int


def rows_plans(shape: RowsShape, threads: int) -> tuple[RowsPlan, ...]:
    """The plans worth measuring, the most promising first."""
    tasks = threads if threads_pay(threads, shape.work, WORK_PER_THREAD) else 1
    threshold = least_work(threads, WORK_PER_THREAD)
    near = threshold / _DOUBT <= shape.work <= threshold * _DOUBT
    others = (1, threads) if near else (tasks,)
    sums = dict.fromkeys(max(1, min(each, shape.vectors)) for each in _SUMS)
    parts = dict.fromkeys(min(each, shape.rows) for each in (tasks, *others))
    return tuple(RowsPlan(*choices) for choices in by_rank(tuple(sums), tuple(parts)))


def _shape(parts: tuple[Part, ...], machine: Machine) -> RowsShape:
    lengths = [_vectors(part, machine) for part in parts if part.reduces]
    work = sum(part.block.work for part in parts)
    return RowsShape(rows=prod(axis.extent for axis in parts[0].rows), vectors=max(lengths), work=work)


def _vectors(part: Part, machine: Machine) -> int:
    """Whole vectors of the last dimension; if that is dynamic, as many as any plan uses."""
    last = part.columns[-1]
    return max(_SUMS) if last.is_dynamic else last.extent // machine.lanes(element_bits(part.block))
