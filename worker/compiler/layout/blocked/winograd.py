"""Winograd's convolutions F(m x m, 3 x 3) and F(m, 3) as tensor expressions on blocks, and their weights.

    transformed[i, j, n, c, ty, tx, lane]  = sum over y, x of B^T[i, y] * B^T[j, x] * image[...]
    product[i, j, n, k, ty, tx, lane]      = sum over c, channel lane of transformed[...] * weights[...]
    winograd[n, k, row, column, lane]      = sum over i, j of A^T[row % m, i] * A^T[column % m, j] *
                                             product[...]

``ty`` and ``tx`` count tiles of ``m`` outputs. A sequence has one row of tiles, which its transforms leave as
it is (``winograd_points.tile_of``). The weights ``G g G^T`` are ``[groups, n * n, channels,
blocks * lanes]`` for groups of ``blocks`` output blocks, which is the order in which the loops of
``worker.compiler.schedules.families.convolution.winograd`` read them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx

from worker.compiler.layout.images import Tensor, Window
from worker.compiler.schedules.annotations import FAMILY, PADDING, SIDE, WINOGRAD
from worker.compiler.schedules.families.convolution.layers import Layer, layer_attributes
from worker.compiler.schedules.families.convolution.winograd_points import (
    Matrix,
    reach_of,
    tile_of,
    transforms,
)
from worker.compiler.schedules.nest import Expression

Array = NDArray[Any]

_SAMPLED_OUTPUTS = 16
_SAMPLED_TILES = 8


def transform_weights(weights: Array, side: int) -> Array:
    """``[K, C, 3, 3]`` or ``[K, C, 3]`` to ``G g G^T``, ``[points, K, C]`` in float64."""
    down, across = (np.array(transforms(each).weights) for each in _tile(weights, side))
    taps = weights.astype(np.float64).reshape(*weights.shape[:2], -1)
    return np.tensordot(np.kron(down, across), taps, axes=(1, 2))


def _tile(weights: Array, side: int) -> tuple[int, int]:
    return tile_of(side, weights.ndim - 2)


def pack_winograd(weights: Array, side: int, lanes: int, blocks: int) -> Array:
    """``[K, C, 3, 3]`` or ``[K, C, 3]`` in the layout that ``winograd`` reads; zeros fill the last blocks.

    Args:
        weights: the weights, in float32.
        side: outputs of a tile's side.
        lanes: channels of a block.
        blocks: output blocks of a group; they divide the output's.
    """
    transformed = transform_weights(weights, side).astype(weights.dtype)
    points, outputs, inputs = transformed.shape
    filled = np.pad(transformed, ((0, 0), (0, -outputs % lanes), (0, -inputs % lanes)))
    grouped = filled.reshape(points, -1, blocks * lanes, filled.shape[2])
    return np.ascontiguousarray(grouped.transpose(1, 0, 3, 2))


def winograd_error(weights: Array, side: int) -> float:
    """The largest error of a few tiles against float64, relative to the largest output.

    The pixels are normally distributed numbers, the same ones every time. A sample of the output channels is
    computed as the kernel does it, in float32 and with all input channels in order.

    Args:
        weights: ``[K, C, 3, 3]`` or ``[K, C, 3]``; the error is infinity unless all are finite.
        side: outputs of a tile's side.
    """
    sample = weights[:: max(1, weights.shape[0] // _SAMPLED_OUTPUTS)]
    if not np.isfinite(sample).all():
        return np.inf
    size = (_SAMPLED_TILES, weights.shape[1], *reach_of(_tile(weights, side)))
    pixels = np.random.default_rng(0).standard_normal(size)
    exact, rounded = (_convolve(pixels.astype(np.float32), sample, side, dtype) for dtype in ("f8", "f4"))
    scale = np.abs(exact).max()
    return 0.0 if scale == 0 else float(np.abs(exact - rounded).max() / scale)


def _convolve(pixels: Array, weights: Array, side: int, dtype: str) -> Array:
    """The outputs of tiles, ``[tiles, K, rows, columns]``, computed in a dtype."""
    down, across = map(transforms, _tile(weights, side))
    image = np.array(down.image, dtype) @ pixels.astype(dtype)
    transformed = image @ np.array(across.image, dtype).T
    taps = transform_weights(weights, side).astype(dtype).transpose(2, 1, 0)
    sums = np.zeros((len(pixels), len(weights), *transformed.shape[2:]), dtype)
    for channel, factors in enumerate(taps.reshape(*taps.shape[:2], *transformed.shape[2:])):
        sums += transformed[:, channel, np.newaxis] * factors
    return np.asarray(np.array(down.output, dtype) @ sums @ np.array(across.output, dtype).T)


@cache
def winograd(window: Window, side: int, layer: Layer) -> Callable[[Tensor, Tensor], Tensor]:
    """A convolution of 3 x 3 taps, or 3 of a sequence, stride 1 and no dilation of an image in blocks."""
    tile = tile_of(side, len(window.output))
    (height, width), reach = tile, reach_of(tile)
    above, along = map(transforms, tile)
    top, left = (0, *window.before)[-2:]

    def kernel(data: Tensor, weights: Tensor) -> Tensor:
        batch, channels, rows, columns, lanes = data.shape
        tiles = tuple(-(-size // side) for size, side in zip(window.shape, tile, strict=True))
        per_group = int(weights.shape[3]) // int(lanes)
        blocks = int(weights.shape[0]) * per_group
        dtype = str(data.dtype)

        def pixel(n: Any, c: Any, y: Any, x: Any, lane: Any) -> Expression:
            row, column = y - top, x - left
            inside = tirx.all(row >= 0, row < rows, column >= 0, column < columns)
            return tirx.if_then_else(inside, data[n, c, row, column, lane], tirx.const(0, dtype))

        def transformed(i: Any, j: Any, n: Any, c: Any, ty: Any, tx: Any, lane: Any) -> Expression:
            factor = _entry(above.image, i, down, dtype) * _entry(along.image, j, across, dtype)
            value = factor * pixel(n, c, ty * height + down, tx * width + across, lane)
            return te.sum(value, axis=[down, across])

        def product(i: Any, j: Any, n: Any, k: Any, ty: Any, tx: Any, lane: Any) -> Expression:
            place = (i * reach[1] + j, channel * lanes + channel_lane, k % per_group * lanes + lane)
            value = image[i, j, n, channel, ty, tx, channel_lane] * weights[(k // per_group, *place)]
            return te.sum(value, axis=[channel, channel_lane])

        def output(n: Any, k: Any, row: Any, column: Any, lane: Any) -> Expression:
            factor = _entry(above.output, row % height, first, dtype) * _entry(
                along.output, column % width, second, dtype
            )
            value = factor * products[first, second, n, k, row // height, column // width, lane]
            return te.sum(value, axis=[first, second])

        down, first = (te.reduce_axis((0, reach[0]), name) for name in "yi")
        across, second = (te.reduce_axis((0, reach[1]), name) for name in "xj")
        channel, channel_lane = te.reduce_axis((0, channels), "c"), te.reduce_axis((0, lanes), "cl")
        image = te.compute((*reach, batch, channels, *tiles, lanes), transformed, name="transformed")
        products = te.compute((*reach, batch, blocks, *tiles, lanes), product, name="product")
        attributes = {FAMILY: WINOGRAD, SIDE: side, PADDING: window.before, **layer_attributes(layer)}
        return te.compute((batch, blocks, *window.shape, lanes), output, name="winograd", attrs=attributes)

    return kernel


def _entry(matrix: Matrix, row: Any, column: Any, dtype: str) -> Expression:
    """An element of a constant matrix."""
    value: Expression = tirx.const(0, dtype)
    for i, numbers in enumerate(matrix):
        for j, number in enumerate(numbers):
            if number:
                here = tirx.all(row == i, column == j)
                value = tirx.Select(here, tirx.const(number, dtype), value)
    return value
