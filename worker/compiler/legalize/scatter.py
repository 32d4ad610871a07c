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
from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.machine import Machine
from worker.compiler.schedules.spatial import MIN_PARALLEL_WORK
from worker.compiler.schedules.standalone import INDEX, signature

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


def write_scatter(asked: Scatter, join: Join, machine: Machine) -> tirx.PrimFunc:
    """A scheduled function from a tensor, indices and values to the tensor with the values in it."""
    work = asked.before * (asked.along + asked.written) * asked.after
    threads = machine.threads if work >= MIN_PARALLEL_WORK else 1
    chunk = _chunk(asked, threads, machine.lanes(int(tvm.DataType(asked.dtype).bits)))
    function = _signature(asked)
    tasks = asked.before * ceil(asked.after / chunk)
    loop = nest.parallel if threads > 1 and tasks > 1 else nest.serial
    return nest.with_loops(function, loop(tasks, _Writer(asked, join, chunk, *function.params).task, INDEX))


@dataclass(frozen=True)
class _Writer:
    """Writes the loops of a task: a row, and ``chunk`` columns or what is left of them."""

    asked: Scatter
    join: Join
    chunk: int
    data: Any
    indices: Any
    values: Any
    result: Any

    def task(self, number: Any) -> tirx.Stmt:
        """Copy the task's part, then write to it."""
        chunks = ceil(self.asked.after / self.chunk)
        row, first = number // chunks, number % chunks * self.chunk
        width: Any = self.chunk
        if chunks > 1:
            width = nest.smaller(nest.constant(self.chunk, INDEX), self.asked.after - first)

        def each(count: int, element: Callable[[Any, Any, Any], tirx.Stmt]) -> tirx.Stmt:
            def columns(step: Any) -> tirx.Stmt:
                return nest.serial(width, lambda column: element(row, step, first + column), INDEX)

            return nest.serial(count, columns, INDEX)

        return nest.sequence(each(self.asked.along, self._copied), each(self.asked.written, self._written))

    def _copied(self, row: Any, along: Any, column: Any) -> tirx.Stmt:
        return nest.store(self.result, self.data[row, along, column], row, along, column)

    def _written(self, row: Any, step: Any, column: Any) -> tirx.Stmt:
        index = self.indices[row, step, column].astype(INDEX)

        def write(at: Any) -> tirx.Stmt:
            value = self.join(self.result[row, at, column], self.values[row, step, column])
            return nest.store(self.result, value, row, at, column)

        return nest.named(tirx.Select(index < 0, index + self.asked.along, index), "at", write)


def _chunk(asked: Scatter, threads: int, lanes: int) -> int:
    """Columns of a task: all, unless threads would have nothing to do; then whole vectors."""
    if asked.before >= threads:
        return asked.after
    parts = ceil(threads / asked.before)
    return min(asked.after, ceil(ceil(asked.after / parts) / lanes) * lanes)


def _signature(asked: Scatter) -> tirx.PrimFunc:
    shape, written = ((asked.before, along, asked.after) for along in (asked.along, asked.written))
    inputs = {
        "data": (shape, asked.dtype),
        "indices": (written, asked.index_dtype),
        "values": (written, asked.dtype),
    }
    return signature(inputs, {"scattered": (shape, asked.dtype)})
