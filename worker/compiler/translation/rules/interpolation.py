"""Resizing images and volumes: nearest, linear, cubic and antialiased.

TVM rounds the nearest pixel differently from torch and supports no scale factor but the ratio of the sizes.
Where that matters, nearest and linear resizing read each axis at constant positions. Cubic and antialiased
resizing multiply each axis by a constant matrix of weights. Dynamic sizes are resized by ``open_resizing``.

Source: torch's ``aten/src/ATen/native/cpu/UpSampleKernel.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch._decomp.decompositions import _compute_scale, upsample_compute_output_size
from tvm import relax

from worker.compiler.translation.dtypes import is_floating, wide
from worker.compiler.translation.emitter import Emitter, dtype_of, fixed, shape_of
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.open_resizing import has_open_sizes, linear, nearest
from worker.compiler.translation.rule import Decomposition, Rules, Translate, from_torch, rules_of
from worker.compiler.translation.rules.indexing import look_up

Sizes = list[int] | None
Factors = list[float] | None


def _nearest(emit: Emitter, data: relax.Expr, sizes: Sizes, factors: Factors) -> Any:
    """Reads position ``floor(i / factor)``. TVM handles integer factors correctly itself."""
    if has_open_sizes(data, sizes):
        return nearest(emit, data, sizes, factors)
    given, wanted = _spatial_sizes(emit, data)
    scales = _nearest_scales(given, wanted, factors)
    return _read_nearest(emit, data, wanted, scales) if scales else emit.stock()


def _nearest_by_pixels(
    emit: Emitter, data: relax.Expr, sizes: list[int], rows: float | None, columns: float | None
) -> Any:
    """``_nearest`` as a trace writes it: the size is given, and the factors as well or not at all."""
    if has_open_sizes(data, sizes):
        return nearest(emit, data, sizes, None)
    given, wanted = _spatial_sizes(emit, data)
    scales = _nearest_scales(given, wanted, None if rows is None or columns is None else [rows, columns])
    if scales:
        return _read_nearest(emit, data, wanted, scales)
    return emit(relax.op.image.resize2d(data, wanted, layout="NCHW", method="nearest_neighbor"))


def _nearest_scales(
    given: tuple[int, ...], wanted: tuple[int, ...], factors: Factors
) -> list[np.float32] | None:
    """How far apart the read pixels are; None if the sizes alone say so, and their ratios are whole.

    Torch ignores the factors where the sizes are equal or the result's is twice the data's.
    """
    ratios, scales = _scales(given, wanted, None), _scales(given, wanted, factors)
    scales = [
        ratio if new in (old, 2 * old) else scale
        for old, new, ratio, scale in zip(given, wanted, ratios, scales, strict=True)
    ]
    is_whole = all(new % old == 0 for old, new in zip(given, wanted, strict=True))
    return None if is_whole and scales == ratios else scales


def _read_nearest(
    emit: Emitter, data: relax.Expr, wanted: tuple[int, ...], scales: list[np.float32]
) -> relax.Expr:
    for axis, scale in enumerate(scales):
        places = np.floor(np.arange(wanted[axis], dtype="float32") * scale).astype("int64")
        data = _read(emit, data, 2 + axis, places)
    return data


def _nearest_of(offset: float) -> Translate:
    """Reads position ``floor((i + offset) / factor)`` of each axis; a factor of None is the sizes' ratio."""

    def translate(emit: Emitter, data: relax.Expr, sizes: list[int], *factors: float | None) -> relax.Expr:
        if offset == 0 and has_open_sizes(data, sizes):
            return nearest(emit, data, sizes, None)
        given, wanted = _spatial_sizes(emit, data)
        for axis, (old, new, factor) in enumerate(zip(given, wanted, factors, strict=True)):
            scale = np.float32(1 / factor if factor else old / new)
            places = np.floor((np.arange(new, dtype="float32") + np.float32(offset)) * scale)
            data = _read(emit, data, 2 + axis, places.astype("int64"))
        return data

    return translate


def _linear(emit: Emitter, data: relax.Expr, sizes: Sizes, align_corners: bool, factors: Factors) -> Any:
    """Interpolates between the two nearest pixels of each axis, at ``(i + 1/2) / factor - 1/2``.

    With aligned corners, a result of size 1 reads the first pixel; TVM divides by zero there. As in torch,
    bytes are rounded after the columns and after the rows, halves up.
    """
    if has_open_sizes(data, sizes):
        return linear(emit, data, sizes, align_corners, factors)
    given, wanted = _spatial_sizes(emit, data)
    dtype = dtype_of(data)
    rounds = not is_floating(dtype)
    if rounds:
        data = emit.cast(data, "float32")
    scales = _scales(given, wanted, factors)
    has_factors = not np.allclose(scales, _scales(given, wanted, None), rtol=1e-6)
    if not rounds and (1 not in wanted if align_corners else not has_factors):
        return emit.stock()
    axes = list(enumerate(scales))
    for axis, scale in reversed(axes) if rounds else axes:
        at = np.maximum((np.arange(wanted[axis], dtype="float32") + 0.5) * scale - 0.5, 0)
        if align_corners:
            at = np.linspace(0, given[axis] - 1, wanted[axis], dtype="float32")
        low = np.minimum(np.floor(at), given[axis] - 1)
        share = relax.const((at - low).reshape((-1,) + (1,) * (1 - axis)), dtype_of(data))
        below = _read(emit, data, 2 + axis, low.astype("int64"))
        above = _read(emit, data, 2 + axis, low.astype("int64") + 1)
        step = emit(relax.op.multiply(emit(relax.op.subtract(above, below)), share))
        data = emit(relax.op.add(below, step))
        if rounds:
            data = emit(relax.op.floor(emit(relax.op.add(data, relax.const(0.5, "float32")))))
    return emit.cast(data, dtype)


def _spatial_sizes(emit: Emitter, data: relax.Expr) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of an image and of the result, whose batch may be dynamic."""
    given = fixed(shape_of(data)[2:], "resizing")
    return given, fixed(tuple(emit.sizes or emit.shape)[2:], "resizing")


def _scales(given: tuple[int, ...], wanted: tuple[int, ...], factors: Factors) -> list[np.float32]:
    """How far apart two neighbors of the result are in the data."""
    if factors is not None:
        return [np.float32(1 / factor) for factor in factors]
    return [np.float32(old / new) for old, new in zip(given, wanted, strict=True)]


def _read(emit: Emitter, data: relax.Expr, axis: int, places: np.ndarray[Any, Any]) -> relax.Expr:
    last = shape_of(data)[axis] - 1
    return look_up(emit, data, relax.const(np.minimum(places, last), "int64"), axis)


def _trilinear(volume: torch.Tensor, sizes: Sizes, align_corners: bool, factors: Factors) -> torch.Tensor:
    """One axis after another: torch's decomposition reads eight elements by long index expressions."""
    wanted = upsample_compute_output_size(volume.shape, sizes, factors)
    return _trilinear_by_voxels(volume, wanted, align_corners, *(factors or (None,) * len(wanted)))


def _trilinear_by_voxels(
    volume: torch.Tensor, sizes: list[int], align_corners: bool, *factors: float | None
) -> torch.Tensor:
    result = volume if volume.dtype == torch.float64 else volume.float()
    given = factors or (None,) * len(sizes)
    for axis, (size, factor) in enumerate(zip(sizes, given, strict=True), start=2):
        scale = _compute_scale(volume.shape[axis], size, align_corners, factor)
        result = _between(result, axis, size, scale, align_corners)
    return result.to(volume.dtype)


def _between(data: torch.Tensor, axis: int, size: int, scale: float, align_corners: bool) -> torch.Tensor:
    """Interpolate linearly along one axis."""
    places = torch.arange(size, dtype=data.dtype)
    at = places * scale if align_corners else ((places + 0.5) * scale - 0.5).clamp(min=0)
    low = at.to(torch.int64)
    below = data.index_select(axis, low)
    above = data.index_select(axis, (low + 1).clamp(max=data.shape[axis] - 1))
    share = (at - low).reshape(-1, *[1] * (data.dim() - 1 - axis))
    return below + (above - below) * share


Numbers = NDArray[np.float64]
_SHARP, _SOFT = -0.75, -0.5
"""The parameter of the cubic kernel, without and with antialiasing."""


def _antialiased(weight: Callable[[Numbers], Numbers], reach: int) -> Translate:
    """Where the image shrinks by a factor, the weights reach farther by the same factor."""

    def translate(
        emit: Emitter,
        data: relax.Expr,
        sizes: list[int],
        align_corners: bool,
        rows: float | None = None,
        columns: float | None = None,
    ) -> relax.Expr:
        given, wanted = _weighted_sizes(emit, data)
        steps = [
            _step(old, new, align_corners, factor)
            for old, new, factor in zip(given, wanted, (rows, columns), strict=True)
        ]
        matrices = [
            _spread(old, new, step, weight, reach)
            for old, new, step in zip(given, wanted, steps, strict=True)
        ]
        return _resampled(emit, data, matrices)

    return translate


def _step(given: int, wanted: int, align_corners: bool, factor: float | None) -> float:
    """How far apart two neighbors of the result are in the data."""
    if align_corners:
        return (given - 1) / (wanted - 1) if wanted > 1 else 0.0
    return 1 / factor if factor else given / wanted


def _spread(
    given: int, wanted: int, step: float, weight: Callable[[Numbers], Numbers], reach: int
) -> Numbers:
    """The matrix of weights, ``[wanted, given]``."""
    stretch = max(step, 1.0)
    support = reach / 2 * stretch
    centers = step * (np.arange(wanted) + 0.5)
    first = np.maximum((centers - support + 0.5).astype("int64"), 0)
    end = np.minimum((centers + support + 0.5).astype("int64"), given)
    places = np.arange(given)
    weights = weight((places - centers[:, None] + 0.5) / stretch)
    weights[(places < first[:, None]) | (places >= end[:, None])] = 0
    return weights / weights.sum(1, keepdims=True)


def _triangle(distance: Numbers) -> Numbers:
    return np.maximum(1 - np.abs(distance), 0)


def _cubic(distance: Numbers, sharpness: float = _SOFT) -> Numbers:
    x = np.abs(distance)
    near = ((sharpness + 2) * x - (sharpness + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * sharpness
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _bicubic(
    emit: Emitter, data: relax.Expr, sizes: Any, align_corners: bool, factors: list[float] | None
) -> Any:
    """TVM supports only the ratio of the sizes as factor, and a fixed number of images and channels."""
    given, wanted = _weighted_sizes(emit, data)
    if all(isinstance(size, int) for size in shape_of(data)):
        ratios = [old / new for old, new in zip(given, wanted, strict=True)]
        if factors is None or align_corners or np.allclose([1 / each for each in factors], ratios, rtol=1e-6):
            return emit.stock()
    steps = [
        _step(old, new, align_corners, factor)
        for old, new, factor in zip(given, wanted, factors or (None, None), strict=True)
    ]
    matrices = [
        _four_neighbors(old, new, step, align_corners)
        for old, new, step in zip(given, wanted, steps, strict=True)
    ]
    return _resampled(emit, data, matrices)


def _four_neighbors(given: int, wanted: int, step: float, align_corners: bool) -> Numbers:
    """Weights of four neighbors; beyond an edge, the edge pixel is repeated."""
    places = np.arange(wanted) * step if align_corners else step * (np.arange(wanted) + 0.5) - 0.5
    first = np.floor(places).astype("int64")
    weights = np.zeros((wanted, given))
    for offset in range(-1, 3):
        share = _cubic(places - first - offset, _SHARP)
        np.add.at(weights, (np.arange(wanted), np.clip(first + offset, 0, given - 1)), share)
    return weights


def _weighted_sizes(emit: Emitter, data: relax.Expr) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not is_floating(dtype_of(data)):
        raise UntranslatableError(f"cubic or antialiased resizing of {dtype_of(data)}")
    return _spatial_sizes(emit, data)


def _resampled(emit: Emitter, data: relax.Expr, matrices: list[Numbers]) -> relax.Expr:
    dtype = dtype_of(data)
    rows, columns = (relax.const(matrix, wide(dtype)) for matrix in (matrices[0], matrices[1].T))
    widened = emit.cast(data, wide(dtype))
    return emit.cast(emit(relax.op.matmul(rows, emit(relax.op.matmul(widened, columns)))), dtype)


_NEAREST = {
    f"aten.{name}{rank}d.default": _nearest_of(offset)
    for name, offset, ranks in (("upsample_nearest", 0, (1, 3)), ("_upsample_nearest_exact", 0.5, (1, 2, 3)))
    for rank in ranks
}

RULES: Rules = (
    *rules_of(_NEAREST),
    *rules_of(
        {
            "aten._upsample_bicubic2d_aa.default": _antialiased(_cubic, 4),
            "aten._upsample_bilinear2d_aa.default": _antialiased(_triangle, 2),
            "aten.upsample_bicubic2d.vec": _bicubic,
            "aten.upsample_bilinear2d.vec": _linear,
            "aten.upsample_nearest2d.default": _nearest_by_pixels,
            "aten.upsample_nearest2d.vec": _nearest,
        }
    ),
    from_torch(torch.ops.aten.upsample_bilinear2d.default),
    Decomposition("aten.upsample_trilinear3d.default", _trilinear_by_voxels),
    Decomposition("aten.upsample_trilinear3d.vec", _trilinear),
)
