"""Sorts of rows, and the largest of each: TVM's runtime orders one row after another, threads share the rows.

Loop order: tasks, each some rows, in parallel where the work is worth it. A row itself is ordered by one
thread, by a stable sort of pairs of value and place.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.nest import INDEX, signature
from worker.compiler.schedules.processors import MIN_PARALLEL_WORK

_TASKS_PER_THREAD = 4


def write_argsort(
    rows: int, width: int, dtypes: tuple[str, str], ascends: bool, threads: int
) -> tirx.PrimFunc:
    """A scheduled function from ``[rows, width]`` to the places of the elements, in order of their values."""
    shape = (rows, width)
    function = signature({"data": (shape, dtypes[0])}, {"places": (shape, dtypes[1])})
    data, places = function.params

    def order(first: Any, count: Any) -> tirx.Stmt:
        arguments = (_rows(data, first, count), _rows(places, first, count), 1, ascends)
        return tirx.Evaluate(tirx.call_packed("tvm.contrib.sort.argsort", *arguments))

    return nest.with_loops(function, _shared(rows, width, threads, order))


def write_topk(
    rows: int, width: int, kept: int, dtypes: tuple[str, str], ascends: bool, threads: int
) -> tirx.PrimFunc:
    """A scheduled function from ``[rows, width]`` to the first ``kept`` values in order, and their places."""
    results = {"values": ((rows, kept), dtypes[0]), "places": ((rows, kept), dtypes[1])}
    function = signature({"data": ((rows, width), dtypes[0])}, results)
    buffers = function.params

    def order(first: Any, count: Any) -> tirx.Stmt:
        arguments = (*(_rows(buffer, first, count) for buffer in buffers), kept, 1, "both", ascends)
        return tirx.Evaluate(tirx.call_packed("tvm.contrib.sort.topk", *arguments))

    return nest.with_loops(function, _shared(rows, width, threads, order))


def _shared(rows: int, width: int, threads: int, order: Callable[[Any, Any], tirx.Stmt]) -> tirx.Stmt:
    """All rows, in tasks of some of them."""
    work = rows * width * max(1, ceil(log2(width)))
    tasks = min(rows, _TASKS_PER_THREAD * threads) if threads > 1 and work >= MIN_PARALLEL_WORK else 1
    size = ceil(rows / tasks)

    def task(number: Any) -> tirx.Stmt:
        return order(number * size, nest.smaller(nest.constant(size, INDEX), rows - number * size))

    loop = nest.parallel if tasks > 1 else nest.serial
    return loop(ceil(rows / size), task, INDEX)


def _rows(buffer: Any, first: Any, count: Any) -> Any:
    """``count`` rows as a tensor of the runtime, whose data begin at ``first``: it ignores offsets."""
    begin = tirx.address_of(buffer[first, 0])
    shape = tirx.tvm_stack_make_shape(count, buffer.shape[1])
    return tirx.tvm_stack_make_array(
        begin, shape, 0, 2, tirx.const(0, str(buffer.dtype)), nest.constant(0, INDEX)
    )
