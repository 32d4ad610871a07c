"""Results whose size depends on data: places of nonzero elements, distinct elements, counts, repetitions."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.fx import Graph
from torch.utils._sympy.value_ranges import ValueRanges
from tvm import relax, te, tirx, topi

from worker.compiler.schedules import nest
from worker.compiler.schedules.nest import INDEX, is_nan
from worker.compiler.translation.compaction import chosen_places, columns_of, own_size, places_of
from worker.compiler.translation.dtypes import is_floating
from worker.compiler.translation.emitter import SIZES_OF_DATA, Emitter, axis_of, dtype_of, shape_of
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.rule import Rules, rules_of

VALUES, INVERSE, COUNTS = range(3)
"""The results of ``unique``."""
_PARTS_OF_SIZES: ValueRanges[Any] = ValueRanges(-SIZES_OF_DATA.upper, SIZES_OF_DATA.upper)


def _nonzero(emit: Emitter, data: relax.Expr) -> relax.Expr:
    if not shape_of(data):
        raise UntranslatableError("nonzero of a scalar")
    places, sizes = places_of(emit, data), shape_of(data)
    if len(sizes) == 1:
        return emit(relax.op.expand_dims(places, 1))
    return emit(relax.op.stack(columns_of(emit, places, sizes), 1))


def _masked_select(emit: Emitter, data: relax.Expr, mask: relax.Expr) -> relax.Expr:
    data, mask = _broadcast(emit, data, mask)
    return emit(relax.op.take(_flat(emit, data), places_of(emit, mask), axis=0, mode="clip"))


def _broadcast(emit: Emitter, *tensors: relax.Expr) -> list[relax.Expr]:
    shapes = list(map(shape_of, tensors))
    if shapes[0] == shapes[1]:
        return list(tensors)
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    wanted = [two if isinstance(one, int) and one == 1 else one for one, two in zip(*aligned, strict=True)]
    return [emit(relax.op.broadcast_to(tensor, wanted)) for tensor in tensors]


def _flat(emit: Emitter, data: relax.Expr) -> relax.Expr:
    shape = shape_of(data)
    return data if len(shape) == 1 else emit(relax.op.reshape(data, (prod(shape),)))


def _unique(
    emit: Emitter, data: relax.Expr, in_order: bool, return_inverse: bool, return_counts: bool
) -> tuple[Any, ...]:
    """The distinct elements, always in ascending order."""
    flat, dtype = _flat(emit, data), dtype_of(data)
    if dtype == "bool":
        flat = emit(relax.op.astype(flat, "int32"))
    order = emit(relax.op.argsort(flat, 0, False, INDEX))
    rows = emit(relax.op.take(flat, order, axis=0, mode="clip"))
    values, inverse, counts = _distinct(emit, rows, order)
    shaped = None if inverse is None else emit(relax.op.reshape(inverse, shape_of(data)))
    return emit.cast(values, dtype), shaped, counts


def _unique_consecutive(
    emit: Emitter, data: relax.Expr, return_inverse: bool, return_counts: bool, axis: int | None
) -> tuple[Any, ...]:
    """The elements, or slices along an axis, that differ from the one before."""
    if axis is not None:
        return _along(emit, data, axis, is_ordered=True)
    values, inverse, counts = _distinct(emit, _flat(emit, data), None)
    return values, None if inverse is None else emit(relax.op.reshape(inverse, shape_of(data))), counts


def _unique_along(
    emit: Emitter, data: relax.Expr, axis: int, in_order: bool, return_inverse: bool, return_counts: bool
) -> tuple[Any, ...]:
    """The distinct slices along an axis, in lexicographic order."""
    return _along(emit, data, axis, is_ordered=False)


def _along(emit: Emitter, data: relax.Expr, axis: int, is_ordered: bool) -> tuple[Any, ...]:
    if not shape_of(data):
        raise UntranslatableError("distinct slices of a scalar")
    axis = axis_of(axis, len(shape_of(data)))
    order = [axis, *(one for one in range(len(shape_of(data))) if one != axis)]
    moved = data if axis == 0 else emit(relax.op.permute_dims(data, order))
    count, *others = shape_of(moved)
    rows = emit(relax.op.reshape(moved, (count, prod(others))))
    places = None
    if not is_ordered:
        places = _order_of_rows(emit, rows)
        rows = emit(relax.op.take(rows, places, axis=0, mode="clip"))
    values, inverse, counts = _distinct(emit, rows, places)
    shaped = emit(relax.op.reshape(values, (shape_of(values)[0], *others)))
    back = (
        shaped
        if axis == 0
        else emit(relax.op.permute_dims(shaped, [order.index(one) for one in sorted(order)]))
    )
    return back, inverse, counts


def _distinct(emit: Emitter, rows: relax.Expr, order: relax.Expr | None) -> tuple[Any, Any, Any]:
    """The first of each group of equal neighbors, the group of each row, and the size of each group.

    Args:
        emit: binds expressions.
        rows: one row of elements, or rows; equal ones are neighbors.
        order: where each row was before it was sorted; None if it is still there.
    """
    count = shape_of(rows)[0]
    is_first = emit.tensor_expression(_differs_from_the_one_before, rows)
    firsts = chosen_places(emit, is_first)
    values = emit(relax.op.take(rows, firsts, axis=0, mode="clip"))
    inverse = counts = None
    if emit.reads(INVERSE):
        groups = emit(relax.op.cumsum(emit(relax.op.astype(is_first, INDEX)), 0))
        inverse = emit(relax.op.subtract(groups, relax.const(1, INDEX)))
        if order is not None:
            inverse = emit(relax.op.scatter_elements(emit(relax.op.zeros_like(inverse)), order, inverse, 0))
    if emit.reads(COUNTS):
        counts = emit.tensor_expression(_lengths, firsts, count)
    return values, inverse, counts


def _differs_from_the_one_before(rows: te.Tensor) -> te.Tensor:
    def differs(*place: Any) -> Any:
        row, *column = place
        before = tirx.max(row - 1, 0)
        one, other = rows[(row, *column)], rows[(before, *column)]
        if not is_floating(str(rows.dtype)):
            return one != other
        # TVM's comparison denies that NaN differs from anything
        return tirx.any(one != other, is_nan(one), is_nan(other))

    if len(rows.shape) == 1:
        return te.compute(rows.shape, lambda row: tirx.any(row == 0, differs(row)), "is_first")
    column = te.reduce_axis((0, rows.shape[1]), "column")
    unequal = te.compute(
        rows.shape[:1], lambda row: te.max(differs(row, column).astype("int32"), axis=column), "unequal"
    )
    return te.compute(rows.shape[:1], lambda row: tirx.any(row == 0, unequal[row] > 0), "is_first")


def _lengths(firsts: te.Tensor, end: Any) -> te.Tensor:
    count = firsts.shape[0]

    def length(group: Any) -> Any:
        after = firsts[tirx.min(group + 1, count - 1)]
        return tirx.Select(group + 1 < count, after, tirx.const(0, INDEX) + end) - firsts[group]

    return te.compute(firsts.shape, length, "lengths")


def _order_of_rows(emit: Emitter, rows: relax.Expr) -> relax.Expr:
    """The places of rows in lexicographic order; equal rows keep their order."""
    count, width = shape_of(rows)
    function = write_row_order(count, width, dtype_of(rows))
    (places,) = emit.call_loops(function, "row_order", [rows], [((count,), INDEX)])
    return places


def write_row_order(rows: Any, columns: Any, dtype: str) -> tirx.PrimFunc:
    """A scheduled function from rows to their places in lexicographic order, by comparing all pairs."""
    count, width = own_size(rows), columns if isinstance(columns, int) else tirx.Var("m", INDEX)
    function = nest.signature({"data": ((count, width), dtype)}, {"places": ((count,), INDEX)})
    data, places = function.params
    zero = nest.constant(0, INDEX)
    rank, state = nest.registers((1,), INDEX, "rank"), nest.registers((1,), INDEX, "state")

    def task(row: Any) -> tirx.Stmt:
        def other(number: Any) -> tirx.Stmt:
            def column(place: Any) -> tirx.Stmt:
                one, two = data[number, place], data[row, place]
                sign = tirx.Select(
                    one < two,
                    nest.constant(-1, INDEX),
                    tirx.Select(two < one, nest.constant(1, INDEX), zero),
                )
                return nest.store(state, tirx.Select(state[zero] == 0, sign, state[zero]), zero)

            is_before = tirx.any(state[zero] < 0, tirx.all(state[zero] == 0, number < row))
            return nest.sequence(
                nest.store(state, zero, zero),
                nest.serial(width, column, INDEX),
                nest.store(rank, rank[zero] + is_before.astype(INDEX), zero),
            )

        return nest.sequence(
            nest.store(rank, zero, zero),
            nest.serial(count, other, INDEX),
            nest.store(places, row.astype(INDEX), rank[zero]),
        )

    loops = nest.sequence(nest.declare(rank), nest.declare(state), nest.serial(count, task, INDEX))
    return nest.with_loops(function, loops)


def _bin_count(emit: Emitter, data: relax.Expr, weights: relax.Expr | None, minimum: int) -> relax.Expr:
    """The number of occurrences of each whole number, or the sum of their weights."""
    numbers = emit.cast(data, INDEX)
    if shape_of(data) == (0,):
        return emit(relax.op.zeros((minimum,), emit.dtype))
    top = emit(relax.op.maximum(emit(relax.op.max(numbers)), relax.const(minimum - 1, INDEX)))
    size = emit.checked_size_from(emit(relax.op.add(top, relax.const(1, INDEX))))
    added = emit.full(shape_of(data), 1, INDEX) if weights is None else emit.cast(weights, emit.dtype)
    bins = emit(relax.op.zeros((size,), emit.dtype))
    return emit(relax.op.scatter_elements(bins, numbers, added, 0, "add"))


def _repeats(emit: Emitter, repeats: relax.Expr, *, output_size: Any) -> relax.Expr:
    """The source position of each element of ``repeat_interleave``."""
    ends = emit(relax.op.cumsum(emit.cast(repeats, INDEX), 0))
    size = (
        emit.checked_size_from(emit(relax.op.sum(emit.cast(repeats, INDEX))))
        if output_size is None
        else output_size
    )

    def source(bounds: te.Tensor, count: Any) -> te.Tensor:
        places = te.compute((count,), lambda place: place.astype(INDEX), "places")
        return topi.searchsorted(bounds, places, True, INDEX)

    return emit.cast(emit.tensor_expression(source, ends, size), emit.dtype)


def _number(emit: Emitter, data: relax.Expr) -> Any:
    """A number that the program reads from a tensor, which may become a size."""
    number = emit.node.meta["val"]
    limits = _limits(number, emit.node.graph) if isinstance(number, torch.SymInt) else None
    return emit.stock() if limits is None else emit.checked_size_from(data, limits)


def _limits(number: torch.SymInt, graph: Graph) -> ValueRanges[Any] | None:
    """The range of a number on which sizes of tensors depend; None if none do."""
    values = (node.meta.get("val") for node in graph.nodes)
    sizes = (size for value in values if isinstance(value, torch.Tensor) for size in value.shape)
    expressions = {size.node.expr for size in sizes if isinstance(size, torch.SymInt)}
    own = number.node.expr
    if not any(own in expression.free_symbols for expression in expressions):
        return None
    limits = SIZES_OF_DATA if own in expressions else _PARTS_OF_SIZES
    return limits & number.node.shape_env.var_to_range.get(own, limits)


RULES: Rules = rules_of(
    {
        "aten._local_scalar_dense.default": _number,
        "aten._unique2.default": _unique,
        "aten.bincount.default": _bin_count,
        "aten.masked_select.default": _masked_select,
        "aten.nonzero.default": _nonzero,
        "aten.repeat_interleave.Tensor": _repeats,
        "aten.unique_consecutive.default": _unique_consecutive,
        "aten.unique_dim.default": _unique_along,
    }
)
