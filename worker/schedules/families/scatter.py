"""Writes to places that indices name, along one axis.

Two indices may name one place, and the order of such writes matters: along the axis they go one after
another. What lies before and after the axis is independent, since an element stays in its row and column.

Loop order: tasks (what lies before the axis, chunks of what lies after it; in parallel where the work is
worth it) → a copy of the task's own part of the tensor → the indices along the axis → the chunk, whose
elements lie side by side. With nothing before and after, all is one task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

import tvm
from tvm import te, tirx

from worker.schedules import nest
from worker.schedules.families.scan import INDEX, as_scheduled
from worker.schedules.machine import machine_of
from worker.schedules.spatial import MIN_PARALLEL_WORK

Join = Callable[[Any, Any], Any]

JOINS: dict[str, Join] = {
    "update": lambda _old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": lambda old, new: tirx.max(old, new),
    "min": lambda old, new: tirx.min(old, new),
}
"""By the reduction's name in Relax: what a place holds after a write."""


@dataclass(frozen=True)
class Scatter:
    """``[before, along, after]`` of ``dtype``, and ``[before, written, after]`` of indices and values."""

    before: int
    along: int
    written: int
    after: int
    dtype: str
    index_dtype: str


def write_scatter(asked: Scatter, join: Join, target: tvm.target.Target) -> tirx.PrimFunc:
    """A scheduled function from a tensor, indices and values to the tensor with the values in it."""
    machine = machine_of(target)
    work = asked.before * (asked.along + asked.written) * asked.after
    threads = machine.threads if work >= MIN_PARALLEL_WORK else 1
    chunk = _chunk(asked, threads, machine.lanes(int(tvm.DataType(asked.dtype).bits)))
    chunks = ceil(asked.after / chunk)
    function = _signature(asked)
    data, indices, values, result = function.params

    def task(number: Any) -> tirx.Stmt:
        row, first = number // chunks, number % chunks * chunk
        width = chunk if chunks == 1 else nest.smaller(nest.constant(chunk, INDEX), asked.after - first)

        def columns(place: Callable[[Any], tirx.Stmt]) -> tirx.Stmt:
            return nest.serial(width, lambda column: place(first + column), INDEX)

        def kept(along: Any, column: Any) -> tirx.Stmt:
            return nest.store(result, data[row, along, column], row, along, column)

        def written(step: Any, column: Any) -> tirx.Stmt:
            index = indices[row, step, column].astype(INDEX)
            inside = tirx.Select(index < 0, index + asked.along, index)

            def write(at: Any) -> tirx.Stmt:
                value = join(result[row, at, column], values[row, step, column])
                return nest.store(result, value, row, at, column)

            return nest.named(inside, "at", write)

        copy = nest.serial(asked.along, lambda along: columns(lambda column: kept(along, column)), INDEX)
        writes = nest.serial(asked.written, lambda step: columns(lambda column: written(step, column)), INDEX)
        return nest.sequence(copy, writes)

    loop = nest.parallel if threads > 1 and asked.before * chunks > 1 else nest.serial
    return nest.with_loops(function, loop(asked.before * chunks, task, INDEX))


def _chunk(asked: Scatter, threads: int, lanes: int) -> int:
    """Columns of a task: all, unless threads would have nothing to do; then whole vectors."""
    if asked.before >= threads:
        return asked.after
    parts = ceil(threads / asked.before)
    return min(asked.after, ceil(ceil(asked.after / parts) / lanes) * lanes)


def _signature(asked: Scatter) -> tirx.PrimFunc:
    """A function of these tensors, marked as scheduled; its loops do not matter."""
    shape = (asked.before, asked.along, asked.after)
    written = (asked.before, asked.written, asked.after)
    data = te.placeholder(shape, asked.dtype, "data")
    indices = te.placeholder(written, asked.index_dtype, "indices")
    values = te.placeholder(written, asked.dtype, "values")
    made = te.compute(shape, lambda *at: data[at], name="scattered")
    return as_scheduled(te.create_prim_func([data, indices, values, made]))
