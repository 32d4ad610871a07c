"""Results whose size depends on data: loops that count and collect, and the size as a variable.

    nonzero(x)    places, count = compact(x != 0)    one pass; as many places as x has elements
                  size = match_cast(tensor_to_shape(count))
                  found = places[:size]              allocated when the library runs

What depends on ``found`` has its true size. Only the places are computed for the upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.nest import INDEX
from worker.compiler.translation.emitter import Emitter, dtype_of, shape_of


def places_of(emit: Emitter, mask: relax.Expr) -> relax.Expr:
    """The places of the nonzero elements in the flattened tensor."""
    if dtype_of(mask) != "bool":
        mask = emit(relax.op.not_equal(mask, relax.const(0, dtype_of(mask))))
    sizes = shape_of(mask)
    return chosen_places(emit, mask if len(sizes) == 1 else emit(relax.op.reshape(mask, (prod(sizes),))))


def columns_of(emit: Emitter, places: relax.Expr, sizes: Sequence[Any]) -> list[relax.Expr]:
    """The index along each axis of a tensor of these sizes, from places in the flattened tensor."""
    return [
        emit.tensor_expression(_column, places, prod(sizes[axis + 1 :]), size)
        for axis, size in enumerate(sizes)
    ]


def _column(places: te.Tensor, stride: Any, size: Any) -> te.Tensor:
    def index(place: Any) -> Any:
        return tirx.floormod(tirx.floordiv(places[place], stride), size)

    return te.compute(places.shape, index, "column")


def chosen_places(emit: Emitter, mask: relax.Expr) -> relax.Expr:
    """The places of the true elements of a mask in one row, ascending, as int64 of the true length."""
    bound = shape_of(mask)[0]
    results = [((bound,), INDEX), ((1,), INDEX)]
    places, count = emit.call_loops(write_compaction(bound), "compact", [mask], results)
    return leading(emit, places, emit.size_from(count))


def leading(emit: Emitter, padded: relax.Expr, size: Any) -> relax.Expr:
    """The first ``size`` elements of a row."""
    return emit.tensor_expression(
        lambda row, count: te.compute((count,), lambda place: row[place], "leading"), padded, size
    )


def write_compaction(bound: Any) -> tirx.PrimFunc:
    """A scheduled function from a row of booleans to the places of the true ones, and their number.

    Every step writes a place, which the next one overwrites unless the element is true, so nothing branches.
    """
    size = own_size(bound)
    function = nest.signature(
        {"mask": ((size,), "bool")}, {"places": ((size,), INDEX), "count": ((1,), INDEX)}
    )
    mask, places, count = function.params
    zero = nest.constant(0, INDEX)
    found = nest.registers((1,), INDEX, "found")

    def step(place: Any) -> tirx.Stmt:
        write = nest.store(places, place, found[zero])
        return nest.sequence(write, nest.store(found, found[zero] + mask[place].astype(INDEX), zero))

    loops = nest.sequence(
        nest.declare(found),
        nest.store(found, zero, zero),
        nest.serial(size, step, INDEX),
        nest.store(count, found[zero], zero),
    )
    return nest.with_loops(function, loops)


def own_size(size: Any) -> Any:
    """A size for a function of its own: a number, or a variable that its arguments define."""
    return size if isinstance(size, int) else tirx.Var("n", INDEX)
