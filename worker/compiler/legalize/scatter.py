"""Writes to places that indices name, along one axis.

    scatter_elements(x, indices, values, axis)
    x as [before, along, after]; indices and values as [before, written, after]

    parallel if worth it: for task in before * chunks of after
        for place in along, column in chunk          scattered[b, place, column] = data[b, place, column]
        for step in written, column in chunk
            at = indices[b, step, column], plus along if negative
            if 0 <= at < along
                scattered[b, at, column] = join(scattered[b, at, column], values[b, step, column])

torch raises an error for an index out of bounds; here it writes nothing. Two indices may name the same place,
so writes along the axis are in order. Tasks are independent, since an element stays in its row and column.
Without anything before and after the axis there is one task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from tvm import relax, tirx

from worker.compiler.layout.relax_graph import static_shape
from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import SCATTER
from worker.compiler.schedules.nest import INDEX, is_nan, signature
from worker.compiler.schedules.processors import WORK_PER_THREAD, Machine, current_machine, threads_pay

Join = Callable[[Any, Any], Any]


def _or_nan(old: Any, value: Any) -> Any:
    """The value, or NaN if the old one is: LLVM compiles an extreme of NaN to its second operand."""
    return tirx.Select(is_nan(old), old, value) if "float" in nest.dtype_of(old) else value


JOINS: dict[str, Join] = {
    "update": lambda _old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": lambda old, new: _or_nan(old, tirx.max(old, new)),
    "min": lambda old, new: _or_nan(old, tirx.min(old, new)),
}
"""The value of a place after a write, by the reduction's name in Relax."""


@dataclass(frozen=True)
class Scatter:
    """``[before, along, after]`` of ``dtype``, and ``[before, written, after]`` of indices and values."""

    before: int
    along: int
    written: int
    after: int
    dtype: str
    index_dtype: str
    reduction: str


def write_scatter(asked: Scatter, machine: Machine) -> tirx.PrimFunc:
    """A scheduled function from a tensor, indices and values to the tensor with the values in it."""
    shape, written = _shapes(asked)
    inputs = {
        "data": (shape, asked.dtype),
        "indices": (written, asked.index_dtype),
        "values": (written, asked.dtype),
    }
    function = signature(inputs, {"scattered": (shape, asked.dtype)})
    work = asked.before * (asked.along + asked.written) * asked.after
    return _with_tasks(asked, machine, work, function, *function.params).with_attr(SCATTER, asked.reduction)


def write_scatter_in_place(asked: Scatter, machine: Machine) -> tirx.PrimFunc:
    """A scheduled function that writes values to a tensor, its last argument after indices and values."""
    shape, written = _shapes(asked)
    inputs = {"indices": (written, asked.index_dtype), "values": (written, asked.dtype)}
    function = signature(inputs, {"scattered": (shape, asked.dtype)})
    work = asked.before * asked.written * asked.after
    return _with_tasks(asked, machine, work, function, None, *function.params)


def _with_tasks(
    asked: Scatter, machine: Machine, work: int, function: tirx.PrimFunc, *arguments: Any
) -> tirx.PrimFunc:
    threads = machine.threads if threads_pay(machine.threads, work, WORK_PER_THREAD) else 1
    chunk = _chunk(asked, threads, machine.lanes(nest.bits_of(asked.dtype)))
    tasks = asked.before * ceil(asked.after / chunk)
    task, parallel = _Writer(asked, chunk, *arguments).task, threads > 1 and tasks > 1
    return nest.with_loops(function, nest.tasks(tasks, task, INDEX, parallel=parallel))


@dataclass(frozen=True)
class _Writer:
    """Writes the loops of a task: one row, and at most ``chunk`` columns. Without data, it copies none."""

    asked: Scatter
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

        write = each(self.asked.written, self._written)
        return write if self.data is None else nest.sequence(each(self.asked.along, self._copied), write)

    def _copied(self, row: Any, along: Any, column: Any) -> tirx.Stmt:
        return nest.store(self.result, self.data[row, along, column], row, along, column)

    def _written(self, row: Any, step: Any, column: Any) -> tirx.Stmt:
        index = self.indices[row, step, column].astype(INDEX)

        def write(at: Any) -> tirx.Stmt:
            value = JOINS[self.asked.reduction](self.result[row, at, column], self.values[row, step, column])
            is_inside = tirx.all(at >= 0, at < self.asked.along)
            return tirx.IfThenElse(is_inside, nest.store(self.result, value, row, at, column), None)

        return nest.named(tirx.Select(index < 0, index + self.asked.along, index), "at", write)


def _chunk(asked: Scatter, threads: int, lanes: int) -> int:
    """Columns of a task: all, or whole vectors if threads would be idle otherwise."""
    if asked.before >= threads:
        return asked.after
    parts = ceil(threads / asked.before)
    return min(asked.after, ceil(ceil(asked.after / parts) / lanes) * lanes)


def _shapes(asked: Scatter) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """The shapes of the tensor, and of indices and values."""
    before, after = asked.before, asked.after
    return (before, asked.along, after), (before, asked.written, after)


def scatter_of(function: tirx.PrimFunc) -> Scatter | None:
    """What a function of ``write_scatter`` computes; None for other functions."""
    if not function.attrs or SCATTER not in function.attrs:
        return None
    data, indices = function.params[:2]
    (before, along, after), written = map(int, data.shape), int(indices.shape[1])
    return Scatter(
        before, along, written, after, str(data.dtype), str(indices.dtype), str(function.attrs[SCATTER])
    )


def scatter_elements(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Legalize ``scatter_elements`` if indices and tensor have the same sizes beside the axis."""
    data, indices, values = call.args
    shape, written = static_shape(data), static_shape(indices)
    reduction = str(call.attrs.reduction)
    if shape is None or written is None or reduction not in JOINS or prod(shape) * prod(written) == 0:
        return None
    axis = int(call.attrs.axis) % len(shape)
    beside = [(*sizes[:axis], *sizes[axis + 1 :]) for sizes in (shape, written)]
    if static_shape(values) != written or beside[0] != beside[1]:
        return None
    before, after = prod(shape[:axis]), prod(shape[axis + 1 :])
    asked = Scatter(
        before, shape[axis], written[axis], after, str(data.ty.dtype), str(indices.ty.dtype), reduction
    )
    function = write_scatter(asked, current_machine())
    operands = [
        bb.emit(relax.op.reshape(operand, (before, along, after)))
        for operand, along in ((data, shape[axis]), (indices, written[axis]), (values, written[axis]))
    ]
    kind = relax.TensorType((before, shape[axis], after), asked.dtype)
    scattered = bb.emit(relax.call_tir(bb.add_func(function, "scatter"), operands, kind))
    return relax.op.reshape(scattered, shape)
