"""Our own TensorIR for operators that work row by row: sorts, the largest elements, scattered writes."""

from __future__ import annotations

from math import prod

from tvm import relax

from worker.compiler.layout.views import static_shape
from worker.compiler.legalize.ordering import write_argsort, write_topk
from worker.compiler.legalize.registry import current_machine
from worker.compiler.legalize.scatter import JOINS, Scatter, write_scatter
from worker.compiler.legalize.sort_keys import sort_keys


def argsort(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """``argsort`` along any axis; others than the last are moved there and back."""
    keys = sort_keys(bb, call.args[0])
    if keys is not None:
        return relax.op.argsort(keys, call.attrs.axis, call.attrs.descending, str(call.ty.dtype))
    data, shape = call.args[0], static_shape(call.args[0])
    if shape is None or prod(shape) == 0:
        return None
    axis = int(call.attrs.axis) % len(shape)
    rows, width = prod(shape) // shape[axis], shape[axis]
    dtypes = (str(data.ty.dtype), str(call.ty.dtype))
    function = write_argsort(rows, width, dtypes, not call.attrs.descending, current_machine().threads)
    strips = _strips(bb, data, shape, axis)
    kind = relax.TensorType((rows, width), dtypes[1])
    places = bb.emit(relax.call_tir(bb.add_func(function, "argsort"), [strips], kind))
    return _back(bb, places, shape, axis)


def topk(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """``topk`` of values and places along any axis."""
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
    function = write_topk(rows, width, kept, dtypes, not attributes.largest, current_machine().threads)
    strips = _strips(bb, data, shape, axis)
    kinds = [relax.TensorType((rows, kept), dtype) for dtype in dtypes]
    both = bb.emit(relax.call_tir(bb.add_func(function, "topk"), [strips], kinds))
    sizes = (*shape[:axis], kept, *shape[axis + 1 :])
    return relax.Tuple([_back(bb, bb.emit(relax.TupleGetItem(both, item)), sizes, axis) for item in (0, 1)])


def _by_keys(bb: relax.BlockBuilder, keys: relax.Expr, call: relax.Call) -> relax.Expr:
    """The elements whose keys are the largest, and their places."""
    data, attributes = call.args[0], call.attrs
    axis, dtype = int(attributes.axis), str(attributes.dtype)
    both = bb.emit(relax.op.topk(keys, attributes.k, axis, "both", attributes.largest, dtype))
    places = bb.emit(relax.TupleGetItem(both, 1))
    return relax.Tuple([bb.emit(relax.op.gather_elements(data, places, axis)), places])


def scatter(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """``scatter_elements`` whose indices are as many as the elements beside the axis."""
    data, indices, values = call.args
    shape, written = static_shape(data), static_shape(indices)
    join = JOINS.get(str(call.attrs.reduction))
    if shape is None or written is None or join is None or prod(shape) * prod(written) == 0:
        return None
    axis = int(call.attrs.axis) % len(shape)
    if static_shape(values) != written or _without(shape, axis) != _without(written, axis):
        return None
    before, after = prod(shape[:axis]), prod(shape[axis + 1 :])
    asked = Scatter(before, shape[axis], written[axis], after, str(data.ty.dtype), str(indices.ty.dtype))
    function = write_scatter(asked, join, current_machine())
    operands = [
        bb.emit(relax.op.reshape(operand, (before, along, after)))
        for operand, along in ((data, shape[axis]), (indices, written[axis]), (values, written[axis]))
    ]
    kind = relax.TensorType((before, shape[axis], after), asked.dtype)
    scattered = bb.emit(relax.call_tir(bb.add_func(function, "scatter"), operands, kind))
    return relax.op.reshape(scattered, shape)


def _strips(bb: relax.BlockBuilder, data: relax.Expr, shape: tuple[int, ...], axis: int) -> relax.Expr:
    """The tensor as rows along an axis."""
    if axis != len(shape) - 1:
        data = bb.emit(relax.op.permute_dims(data, [*_others(len(shape), axis), axis]))
    return bb.emit(relax.op.reshape(data, (prod(_without(shape, axis)), shape[axis])))


def _back(bb: relax.BlockBuilder, rows: relax.Expr, shape: tuple[int, ...], axis: int) -> relax.Expr:
    """Rows as a tensor that they lie along an axis of."""
    moved = relax.op.reshape(rows, (*_without(shape, axis), shape[axis]))
    if axis == len(shape) - 1:
        return bb.emit(moved)
    order = [*_others(len(shape), axis), axis]
    return bb.emit(relax.op.permute_dims(bb.emit(moved), [order.index(place) for place in range(len(shape))]))


def _others(rank: int, axis: int) -> list[int]:
    return [place for place in range(rank) if place != axis]


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])
