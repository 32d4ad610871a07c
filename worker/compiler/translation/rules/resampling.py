"""Images in another size by weights of several neighbors, with or without antialiasing.

Each axis is a product with a matrix of weights that is known now.

Source: torch's ``aten/src/ATen/native/cpu/UpSampleKernel.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from worker.compiler.translation.dtypes import is_floating, wide
from worker.compiler.translation.emitter import Emitter, dtype_of, fixed, shape_of
from worker.compiler.translation.rule import Rules, Translate, rules_of
from worker.compiler.translation.untranslatable import UntranslatableError

Numbers = NDArray[np.float64]

_SHARP, _SOFT = -0.75, -0.5
"""The parameter of the cubic: without antialiasing, and with it."""


def _antialiased(weight: Callable[[Numbers], Numbers], reach: int) -> Translate:
    """Where the image shrinks, the weights reach as much farther."""

    def translate(
        emit: Emitter,
        data: relax.Expr,
        sizes: list[int],
        align_corners: bool,
        rows: float | None = None,
        columns: float | None = None,
    ) -> relax.Expr:
        ours, theirs = _spatial(emit, data)
        steps = [
            _step(one, its, align_corners, factor)
            for one, its, factor in zip(ours, theirs, (rows, columns), strict=True)
        ]
        matrices = [
            _spread(one, its, step, weight, reach) for one, its, step in zip(ours, theirs, steps, strict=True)
        ]
        return _resampled(emit, data, matrices)

    return translate


def _step(ours: int, theirs: int, align_corners: bool, factor: float | None) -> float:
    """How far apart two neighbors of the result are in the data."""
    if align_corners:
        return (ours - 1) / (theirs - 1) if theirs > 1 else 0.0
    return 1 / factor if factor else ours / theirs


def _spread(ours: int, theirs: int, step: float, weight: Callable[[Numbers], Numbers], reach: int) -> Numbers:
    """Weights of ``[theirs, ours]``."""
    stretch = max(step, 1.0)
    support = reach / 2 * stretch
    centers = step * (np.arange(theirs) + 0.5)
    first = np.maximum((centers - support + 0.5).astype("int64"), 0)
    end = np.minimum((centers + support + 0.5).astype("int64"), ours)
    places = np.arange(ours)
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
    """TVM knows no factor but the ratio of the sizes."""
    if factors is None or align_corners:
        return emit.stock()
    ours, theirs = _spatial(emit, data)
    ratios = [one / its for one, its in zip(ours, theirs, strict=True)]
    if np.allclose([1 / factor for factor in factors], ratios, rtol=1e-6):
        return emit.stock()
    matrices = [
        _four_neighbors(one, its, 1 / factor) for one, its, factor in zip(ours, theirs, factors, strict=True)
    ]
    return _resampled(emit, data, matrices)


def _four_neighbors(ours: int, theirs: int, step: float) -> Numbers:
    """Beyond the edges, its pixel stands for those that are not there."""
    places = step * (np.arange(theirs) + 0.5) - 0.5
    first = np.floor(places).astype("int64")
    weights = np.zeros((theirs, ours))
    for offset in range(-1, 3):
        share = _cubic(places - first - offset, _SHARP)
        np.add.at(weights, (np.arange(theirs), np.clip(first + offset, 0, ours - 1)), share)
    return weights


def _spatial(emit: Emitter, data: relax.Expr) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not is_floating(dtype_of(data)):
        raise UntranslatableError(f"resizing {dtype_of(data)} by weights of several neighbors")
    return fixed(shape_of(data)[2:], "resizing"), emit.shape[2:]


def _resampled(emit: Emitter, data: relax.Expr, matrices: list[Numbers]) -> relax.Expr:
    dtype = dtype_of(data)
    rows, columns = (relax.const(matrix, wide(dtype)) for matrix in (matrices[0], matrices[1].T))
    widened = emit.cast(data, wide(dtype))
    return emit.cast(emit(relax.op.matmul(rows, emit(relax.op.matmul(widened, columns)))), dtype)


RULES: Rules = rules_of(
    {
        "aten._upsample_bicubic2d_aa.default": _antialiased(_cubic, 4),
        "aten._upsample_bilinear2d_aa.default": _antialiased(_triangle, 2),
        "aten.upsample_bicubic2d.vec": _bicubic,
    }
)
