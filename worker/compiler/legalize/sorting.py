"""Sorts of rows and the largest elements of rows, divided among threads.

    argsort(x, axis)  →  x moved and reshaped to [rows, width]; argsort; moved back
    topk(x, k, axis)  →  the same; for floats the elements are gathered by their places

    parallel if worth it: for task in groups of rows
        call_packed("tvm.contrib.sort.argsort", rows of the task)

TVM's runtime orders one row after another, by a stable sort of pairs of value and place; here threads share
the rows. The runtime compares floats with ``<``, which leaves rows with NaN unsorted, and has no code for
integers under 32 bits: ``sort_keys`` turns both into int32 or int64 keys in the order that torch sorts by.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2, prod
from typing import Any

from tvm import relax, te, tirx

from worker.compiler.layout.relax_graph import static_shape
from worker.compiler.legalize.sorting_by_rank import LONGEST_ROW, places_by_rank
from worker.compiler.schedules import nest
from worker.compiler.schedules.gpu.chips import current_gpu
from worker.compiler.schedules.nest import INDEX, signature
from worker.compiler.schedules.processors import WORK_PER_THREAD, current_machine, threads_pay
from worker.compiler.translation.comparison_keys import BITS_OF_INFINITY, WIDE, key_of

_TASKS_PER_THREAD = 4


def argsort(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Legalize ``argsort``; an axis other than the last moves there and back."""
    keys = sort_keys(bb, call.args[0])
    if keys is not None:
        return relax.op.argsort(keys, call.attrs.axis, call.attrs.descending, str(call.ty.dtype))
    data, shape = call.args[0], static_shape(call.args[0])
    if shape is None or prod(shape) == 0:
        return None
    axis = int(call.attrs.axis) % len(shape)
    rows, width = prod(shape) // shape[axis], shape[axis]
    dtypes = (str(data.ty.dtype), str(call.ty.dtype))
    strips = _strips(bb, data, shape, axis)
    if _by_rank(width):
        places = places_by_rank(bb, strips, width, dtypes[1], not call.attrs.descending)
        return _back(bb, places, shape, axis)
    function = write_argsort(rows, width, dtypes, not call.attrs.descending, current_machine().threads)
    kind = relax.TensorType((rows, width), dtypes[1])
    places = bb.emit(relax.call_tir(bb.add_func(function, "argsort"), [strips], kind))
    return _back(bb, places, shape, axis)


def topk(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Legalize ``topk`` that returns values and places, along any axis."""
    data, shape, attributes = call.args[0], static_shape(call.args[0]), call.attrs
    keys = sort_keys(bb, data) if str(attributes.ret_type) == "both" else None
    if keys is not None:
        return _by_keys(bb, keys, call)
    if shape is None or prod(shape) == 0 or str(attributes.ret_type) != "both":
        return None
    axis, kept = int(attributes.axis) % len(shape), int(attributes.k)
    if not 0 < kept <= shape[axis]:
        return None
    rows, width = prod(shape) // shape[axis], shape[axis]
    dtypes = (str(data.ty.dtype), str(attributes.dtype))
    strips = _strips(bb, data, shape, axis)
    sizes = (*shape[:axis], kept, *shape[axis + 1 :])
    if _by_rank(width):
        found = places_by_rank(bb, strips, kept, dtypes[1], not attributes.largest)
        values = bb.emit(relax.op.gather_elements(strips, found, 1))
        return relax.Tuple([_back(bb, rows_of, sizes, axis) for rows_of in (values, found)])
    function = write_topk(rows, width, kept, dtypes, not attributes.largest, current_machine().threads)
    kinds = [relax.TensorType((rows, kept), dtype) for dtype in dtypes]
    both = bb.emit(relax.call_tir(bb.add_func(function, "topk"), [strips], kinds))
    return relax.Tuple([_back(bb, bb.emit(relax.TupleGetItem(both, item)), sizes, axis) for item in (0, 1)])


def _by_rank(width: int) -> bool:
    """Whether the target is a GPU, which cannot call the runtime's sorts, and a row is short enough."""
    return current_gpu() is not None and width <= LONGEST_ROW


def _by_keys(bb: relax.BlockBuilder, keys: relax.Expr, call: relax.Call) -> relax.Expr:
    """The elements with the largest keys, and their places."""
    data, attributes = call.args[0], call.attrs
    axis, dtype = int(attributes.axis), str(attributes.dtype)
    both = bb.emit(relax.op.topk(keys, attributes.k, axis, "both", attributes.largest, dtype))
    places = bb.emit(relax.TupleGetItem(both, 1))
    return relax.Tuple([bb.emit(relax.op.gather_elements(data, places, axis)), places])


def _strips(bb: relax.BlockBuilder, data: relax.Expr, shape: tuple[int, ...], axis: int) -> relax.Expr:
    """The tensor as rows ``[rows, width]`` along an axis."""
    if axis != len(shape) - 1:
        data = bb.emit(relax.op.permute_dims(data, [*_others(len(shape), axis), axis]))
    return bb.emit(relax.op.reshape(data, (prod(_without(shape, axis)), shape[axis])))


def _back(bb: relax.BlockBuilder, rows: relax.Expr, shape: tuple[int, ...], axis: int) -> relax.Expr:
    """The inverse of ``_strips``."""
    moved = relax.op.reshape(rows, (*_without(shape, axis), shape[axis]))
    if axis == len(shape) - 1:
        return bb.emit(moved)
    order = [*_others(len(shape), axis), axis]
    return bb.emit(relax.op.permute_dims(bb.emit(moved), [order.index(place) for place in range(len(shape))]))


def _others(rank: int, axis: int) -> list[int]:
    return [place for place in range(rank) if place != axis]


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def write_argsort(
    rows: int, width: int, dtypes: tuple[str, str], ascends: bool, threads: int
) -> tirx.PrimFunc:
    """A scheduled function from ``[rows, width]`` to the places of each row's elements in order."""
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
    """A scheduled function from ``[rows, width]`` to each row's first ``kept`` values and their places."""
    results = {"values": ((rows, kept), dtypes[0]), "places": ((rows, kept), dtypes[1])}
    function = signature({"data": ((rows, width), dtypes[0])}, results)
    buffers = function.params

    def order(first: Any, count: Any) -> tirx.Stmt:
        arguments = (*(_rows(buffer, first, count) for buffer in buffers), kept, 1, "both", ascends)
        return tirx.Evaluate(tirx.call_packed("tvm.contrib.sort.topk", *arguments))

    return nest.with_loops(function, _shared(rows, width, threads, order))


def _shared(rows: int, width: int, threads: int, order: Callable[[Any, Any], tirx.Stmt]) -> tirx.Stmt:
    """Order all rows, some per task."""
    work = rows * width * max(1, ceil(log2(width)))
    tasks = min(rows, _TASKS_PER_THREAD * threads) if threads_pay(threads, work, WORK_PER_THREAD) else 1
    size = ceil(rows / tasks)

    def task(number: Any) -> tirx.Stmt:
        return order(number * size, nest.smaller(nest.constant(size, INDEX), rows - number * size))

    return nest.tasks(ceil(rows / size), task, INDEX, parallel=tasks > 1)


def _rows(buffer: Any, first: Any, count: Any) -> Any:
    """``count`` rows as a runtime tensor whose data begins at ``first``: the runtime ignores offsets."""
    begin = tirx.address_of(buffer[first, 0])
    shape = tirx.tvm_stack_make_shape(count, buffer.shape[1])
    return tirx.tvm_stack_make_array(
        begin, shape, 0, 2, tirx.const(0, str(buffer.dtype)), nest.constant(0, INDEX)
    )


def sort_keys(bb: relax.BlockBuilder, data: relax.Expr) -> relax.Expr | None:
    """A tensor of int32 or int64 keys; None if the elements can be compared themselves."""
    dtype = str(data.ty.dtype)
    if dtype not in WIDE and dtype not in BITS_OF_INFINITY:
        return None
    return bb.emit(bb.call_te(_keys, data, primfunc_name_hint="sort_keys"))


def _keys(data: te.Tensor) -> te.Tensor:
    wide = WIDE.get(str(data.dtype), str(data.dtype))
    return te.compute(data.shape, lambda *place: key_of(data[place].astype(wide), wide), name="keys")
