"""Sorting and counting."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax

from worker.translation.emitter import Emitter, axis_of, shape_of
from worker.translation.rule import Decomposition, Rules, rules_of


def _sort(emit: Emitter, data: relax.Expr, axis: int = -1, descending: bool = False) -> tuple[Any, Any]:
    """Values and places. Equal elements keep their order: TVM's sort is a stable one."""
    if not shape_of(data):
        return data, emit(relax.op.zeros((), "int64"))
    axis = axis_of(axis, len(shape_of(data)))
    places = emit(relax.op.argsort(data, axis, descending, "int64"))
    return emit(relax.op.gather_elements(data, places, axis)), places


def _stable_sort(emit: Emitter, data: relax.Expr, *, dim: int, descending: bool) -> tuple[Any, Any]:
    return _sort(emit, data, dim, descending)


def _histogram(data: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """How many elements lie in each of ``bins`` equal ranges; the last one is closed."""
    if min == max:
        raise NotImplementedError("histc with bounds that depend on the data")
    place = ((data - min) * (bins / (max - min))).floor().clamp(max=bins - 1)
    inside = (data >= min) & (data <= max)
    hits = (place.flatten().unsqueeze(0) == torch.arange(bins).unsqueeze(1)) & inside.flatten()
    return hits.sum(1).to(data.dtype)


RULES: Rules = (
    *rules_of({"aten.sort.default": _sort, "aten.sort.stable": _stable_sort}),
    Decomposition("aten.histc.default", _histogram),
)
