"""Images in another size, where the sizes do not divide.

TVM rounds the nearest place otherwise than torch, and knows no factor but the ratio of the sizes: such axes
are read at places that are known now.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch._decomp.decompositions import _compute_scale, upsample_compute_output_size
from tvm import relax

from worker.compiler.translation.emitter import Emitter, dtype_of, fixed, shape_of
from worker.compiler.translation.rule import Decomposition, Rules, rules_of
from worker.compiler.translation.rules.indexing import look_up

Sizes = list[int] | None
Factors = list[float] | None


def _nearest(emit: Emitter, data: relax.Expr, sizes: Sizes, factors: Factors) -> Any:
    """``floor(i / factor)``; whole factors are left to TVM, which is right about them."""
    ours, theirs = _spatial(emit, data)
    if all(its % our == 0 for our, its in zip(ours, theirs, strict=True)):
        return emit.stock()
    for axis, scale in enumerate(_scales(ours, theirs, factors)):
        places = np.floor(np.arange(theirs[axis], dtype="float32") * scale).astype("int64")
        data = _read(emit, data, 2 + axis, places)
    return data


def _linear(emit: Emitter, data: relax.Expr, sizes: Sizes, align_corners: bool, factors: Factors) -> Any:
    """Between the two nearest of each axis, at ``(i + 1/2) / factor - 1/2``.

    Where corners are aligned, a single place is the first one; TVM divides by zero there.
    """
    ours, theirs = _spatial(emit, data)
    ratios = _scales(ours, theirs, None)
    has_factors = not np.allclose(_scales(ours, theirs, factors), ratios, rtol=1e-6)
    if 1 not in theirs if align_corners else not has_factors:
        return emit.stock()
    for axis, scale in enumerate(_scales(ours, theirs, factors)):
        at = np.maximum((np.arange(theirs[axis], dtype="float32") + 0.5) * scale - 0.5, 0)
        if align_corners:
            at = np.linspace(0, ours[axis] - 1, theirs[axis], dtype="float32")
        low = np.minimum(np.floor(at), ours[axis] - 1)
        share = relax.const((at - low).reshape((-1,) + (1,) * (1 - axis)), dtype_of(data))
        below = _read(emit, data, 2 + axis, low.astype("int64"))
        above = _read(emit, data, 2 + axis, low.astype("int64") + 1)
        step = emit(relax.op.multiply(emit(relax.op.subtract(above, below)), share))
        data = emit(relax.op.add(below, step))
    return data


def _spatial(emit: Emitter, data: relax.Expr) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return fixed(shape_of(data)[2:], "resizing"), emit.shape[2:]


def _scales(ours: tuple[int, ...], theirs: tuple[int, ...], factors: Factors) -> list[np.float32]:
    """How far apart two neighbors of the result are in the data."""
    if factors is not None:
        return [np.float32(1 / factor) for factor in factors]
    return [np.float32(our / its) for our, its in zip(ours, theirs, strict=True)]


def _read(emit: Emitter, data: relax.Expr, axis: int, places: np.ndarray[Any, Any]) -> relax.Expr:
    last = shape_of(data)[axis] - 1
    return look_up(emit, data, relax.const(np.minimum(places, last), "int64"), axis)


def _trilinear(volume: torch.Tensor, sizes: Sizes, align_corners: bool, factors: Factors) -> torch.Tensor:
    """Axis after axis: torch's decomposition reads each element at eight places, whose indices are long."""
    wanted = upsample_compute_output_size(volume.shape, sizes, factors)
    result = volume if volume.dtype == torch.float64 else volume.float()
    for axis, size in enumerate(wanted):
        scale = _compute_scale(
            volume.shape[2 + axis], size, align_corners, factors[axis] if factors else None
        )
        result = _between(result, 2 + axis, size, scale, align_corners)
    return result.to(volume.dtype)


def _between(data: torch.Tensor, axis: int, size: int, scale: float, align_corners: bool) -> torch.Tensor:
    """Between the two nearest of one axis."""
    places = torch.arange(size, dtype=data.dtype)
    at = places * scale if align_corners else ((places + 0.5) * scale - 0.5).clamp(min=0)
    low = at.to(torch.int64)
    below = data.index_select(axis, low)
    above = data.index_select(axis, (low + 1).clamp(max=data.shape[axis] - 1))
    share = (at - low).reshape(-1, *[1] * (data.dim() - 1 - axis))
    return below + (above - below) * share


RULES: Rules = (
    *rules_of({"aten.upsample_nearest2d.vec": _nearest, "aten.upsample_bilinear2d.vec": _linear}),
    Decomposition("aten.upsample_trilinear3d.vec", _trilinear),
)
