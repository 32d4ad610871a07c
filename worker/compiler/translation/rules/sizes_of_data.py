"""Results whose size depends on data."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import relax

from worker.compiler.translation.compaction import columns_of, places_of
from worker.compiler.translation.emitter import Emitter, shape_of
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.rule import Rules, rules_of


def _nonzero(emit: Emitter, data: relax.Expr) -> relax.Expr:
    if not shape_of(data):
        raise UntranslatableError("nonzero of a scalar")
    places, sizes = places_of(emit, data), shape_of(data)
    if len(sizes) == 1:
        return emit(relax.op.expand_dims(places, 1))
    return emit(relax.op.stack(columns_of(emit, places, sizes), 1))


def _masked_select(emit: Emitter, data: relax.Expr, mask: relax.Expr) -> relax.Expr:
    data, mask = _broadcast(emit, data, mask)
    flat = emit(relax.op.reshape(data, (prod(shape_of(data)),)))
    return emit(relax.op.take(flat, places_of(emit, mask), axis=0, mode="clip"))


def _broadcast(emit: Emitter, *tensors: relax.Expr) -> list[relax.Expr]:
    shapes = list(map(shape_of, tensors))
    if shapes[0] == shapes[1]:
        return list(tensors)
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    wanted = [two if isinstance(one, int) and one == 1 else one for one, two in zip(*aligned, strict=True)]
    return [emit(relax.op.broadcast_to(tensor, wanted)) for tensor in tensors]


RULES: Rules = rules_of(
    {
        "aten.masked_select.default": _masked_select,
        "aten.nonzero.default": _nonzero,
    }
)
