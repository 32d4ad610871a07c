"""Tensor expressions of kernels on images in blocks, ``[N, C / lanes, rows, columns, lanes]``.

    convolution   out[n, k, row, column, lane] = sum over channel, *taps, channel lane of
                    image[n, channel, place, channel lane] * weights[k, channel, *taps, channel lane, lane]
    depthwise     out[n, c, row, column, lane] = sum over *taps of
                    image[n, c, place, lane] * weights[c, *taps, lane]
    max_pool      out[n, c, row, column, lane] = largest image[n, c, place, lane] over *taps
    average_pool  the same sum without weights, divided by the number of taps that count

``place`` is ``index * stride + tap * dilation`` in each dimension of an image that a ``border`` block has
padded. The expressions fix no loop order: a kernel's main block is annotated with its family, and the
schedules in ``worker.compiler.schedules.families`` write the loops.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

from tvm import te, tirx

from worker.compiler.layout.extremes import extreme, first
from worker.compiler.layout.images import OPEN, Reader, Tensor, Window, bordered
from worker.compiler.schedules.annotations import (
    ACTIVATED,
    CONVOLUTION,
    DEPTHWISE,
    DILATION,
    DIMENSIONS,
    FACTORS,
    FAMILY,
    GROUP_BLOCKS,
    PADDING,
    POOLING,
    STRIDES,
)
from worker.compiler.schedules.families.convolution.layers import Layer, layer_attributes
from worker.compiler.schedules.nest import Expression, Sizes, join_rows, rows_of, split_rows


def to_blocks(lanes: int) -> Callable[[Tensor], Tensor]:
    """``[N, C, *sizes]`` to blocks; zeros fill the last one."""

    def kernel(plain: Tensor) -> Tensor:
        batch, channels, *rest = plain.shape
        sizes = tuple(rest)
        blocks = -(-int(channels) // lanes)

        def element(n: Any, block: Any, row: Any, column: Any, lane: Any) -> Expression:
            channel = block * lanes + lane
            value = plain[(n, channel, *split_rows(row, sizes), column)]
            if int(channels) == blocks * lanes:
                return value
            return tirx.if_then_else(channel < channels, value, tirx.const(0, str(plain.dtype)))

        return te.compute((batch, blocks, rows_of(sizes), sizes[-1], lanes), element, name="to_blocks")

    return kernel


def from_blocks(channels: int, known: Sizes) -> Callable[[Tensor], Tensor]:
    """Blocks to ``[N, C, *sizes]``; open sizes are those of the blocks."""
    is_open, count = OPEN in known, len(known)

    def kernel(blocked: Tensor) -> Tensor:
        lanes = blocked.shape[4]
        sizes = tuple(blocked.shape[4 - count : 4]) if is_open else known

        def element(n: Any, c: Any, *place: Any) -> Expression:
            return blocked[n, c // lanes, join_rows(place, sizes), place[-1], c % lanes]

        return te.compute((blocked.shape[0], channels, *sizes), element, name="from_blocks")

    return kernel


def regroup(lanes: int, channels: int, source: int, target: int) -> Callable[[Tensor], Tensor]:
    """Blocks to blocks in which groups of another size begin at a first lane.

    Args:
        lanes: channels of a block.
        channels: channels of the image.
        source: channels of a group in the given blocks; ``channels`` if they are not grouped.
        target: channels of a group in the result.
    """
    source_blocks, target_blocks = -(-source // lanes), -(-target // lanes)

    def kernel(blocked: Tensor) -> Tensor:
        def element(n: Any, block: Any, row: Any, column: Any, lane: Any) -> Expression:
            place = block % target_blocks * lanes + lane
            channel = block // target_blocks * target + place
            within = channel % source
            at = (channel // source * source_blocks + within // lanes, row, column, within % lanes)
            inside = tirx.all(place < target, channel < channels)
            return tirx.if_then_else(inside, blocked[(n, *at)], tirx.const(0, str(blocked.dtype)))

        batch, _, rows, columns, _ = blocked.shape
        shape = (batch, channels // target * target_blocks, rows, columns, lanes)
        return te.compute(shape, element, name="regroup")

    return kernel


@cache
def convolution(
    asked: Window, groups: int, layer: Layer | None = None, factors: str | None = None
) -> Callable[[Tensor, Tensor], Tensor]:
    """A convolution of an image in blocks, or of a plain one; a ``layer`` has other algorithms, too.

    ``factors`` is the dtype that the image and the weights had before they were widened.

    The weights of a plain image are ``[K / lanes, inputs, *taps, lanes]``, where ``inputs`` counts the input
    channels of a group. For blocks they are ``[K / lanes, inputs / lanes, *taps, lanes, lanes]``.
    """

    def kernel(data: Tensor, weights: Tensor) -> Tensor:
        window = asked.over(data)
        image = _image(data, window, 0.0)
        taps = window.taps()
        per_group = int(weights.shape[0]) // groups
        channels = input_channels(data, weights)
        first_block = int(weights.shape[1])

        def element(n: Any, k: Any, row: Any, column: Any, lane: Any) -> Expression:
            block = channels[0] if groups == 1 else k // per_group * first_block + channels[0]
            pixel = image(n, block, window.places(row, column, taps), *channels[1:])
            weight = weights[(k, channels[0], *taps, *channels[1:], lane)].astype(data.dtype)
            return te.sum(pixel * weight, axis=[channels[0], *taps, *channels[1:]])

        shape = (data.shape[0], weights.shape[0], *window.shape, weights.shape[-1])
        attributes = {
            FAMILY: CONVOLUTION,
            GROUP_BLOCKS: per_group,
            **_noted(window),
            **layer_attributes(layer),
            **({} if factors is None else {FACTORS: factors}),
        }
        return te.compute(shape, element, name="convolution", attrs=attributes)

    return kernel


def activated_convolution(window: Window) -> Callable[..., Tensor]:
    """A convolution of an ``activated`` image in blocks, which is computed a row at a time."""

    def kernel(data: Tensor, scale: Tensor, shift: Tensor, weights: Tensor) -> Tensor:
        return convolution(window, 1)(_activated(data, scale, shift, {ACTIVATED: True}), weights)

    return kernel


def activated_average(window: Window) -> Callable[..., Tensor]:
    """The mean of each window of an ``activated`` image; windows neither overlap nor leave the image."""

    def kernel(data: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return average_pool(window, counts_border=False)(_activated(data, scale, shift))

    return kernel


def _activated(
    data: Tensor, scale: Tensor, shift: Tensor, attributes: dict[str, Any] | None = None
) -> Tensor:
    """``relu(data * scale + shift)`` in blocks, with a scale and a shift for each channel."""

    def element(n: Any, c: Any, row: Any, column: Any, lane: Any) -> Expression:
        value = data[n, c, row, column, lane] * scale[0, c, 0, 0, lane] + shift[0, c, 0, 0, lane]
        return tirx.Max(tirx.FloatImm(str(data.dtype), 0.0), value)  # NaN stays: LLVM returns the second

    return te.compute(data.shape, element, name="activated", attrs=attributes or {})


def input_channels(data: Tensor, weights: Tensor) -> list[te.IterVar]:
    """The reductions over the input channels of a group: one for a plain image, two for blocks and lanes."""
    axes = (1,) if len(data.shape) == 4 else (1, len(weights.shape) - 2)
    return [te.reduce_axis((0, weights.shape[axis]), "channel") for axis in axes]


@cache
def depthwise(asked: Window) -> Callable[[Tensor, Tensor], Tensor]:
    """One window per channel; the weights are ``[C / lanes, *taps, lanes]``."""

    def kernel(data: Tensor, weights: Tensor) -> Tensor:
        window = asked.over(data)
        image = _image(data, window, 0.0)
        taps = window.taps()

        def element(n: Any, c: Any, row: Any, column: Any, lane: Any) -> Expression:
            pixel = image(n, c, window.places(row, column, taps), lane)
            return te.sum(pixel * weights[(c, *taps, lane)], axis=list(taps))

        shape = (*data.shape[:2], *window.shape, data.shape[4])
        attributes = {FAMILY: DEPTHWISE, **_noted(window)}
        return te.compute(shape, element, name="depthwise", attrs=attributes)

    return kernel


def max_pool(window: Window) -> Callable[[Tensor], Tensor]:
    """The largest element of each window."""

    def kernel(data: Tensor) -> Tensor:
        dtype = str(data.dtype)
        return _pool(data, window.over(data), first(True, dtype).value, extreme(True, dtype), "max_pool")

    return kernel


def average_pool(asked: Window, counts_border: bool) -> Callable[[Tensor], Tensor]:
    """The mean of each window; the border counts as zeros if ``counts_border``, else not at all."""

    def kernel(data: Tensor) -> Tensor:
        window = asked.over(data)
        total = _pool(data, window, 0.0, te.sum, "pool_sum")
        dtype = str(data.dtype)

        def element(n: Any, c: Any, row: Any, column: Any, lane: Any) -> Expression:
            indices = (*split_rows(row, window.output), column)
            count = prod(
                _taps_inside(window, axis, indices[axis], counts_border) for axis in range(len(indices))
            )
            if isinstance(count, int):
                return total[n, c, row, column, lane] * tirx.const(1 / count, dtype)
            return total[n, c, row, column, lane] / count.astype(dtype)

        return te.compute(total.shape, element, name="pool_mean")

    return kernel


def _pool(
    data: Tensor, window: Window, filler: Expression, reduce: Callable[..., Expression], name: str
) -> Tensor:
    image = _image(data, window, filler)
    taps = window.taps()

    def element(n: Any, c: Any, row: Any, column: Any, lane: Any) -> Expression:
        return reduce(image(n, c, window.places(row, column, taps), lane), axis=list(taps))

    shape = (*data.shape[:2], *window.shape, data.shape[4])
    attributes = {FAMILY: POOLING, **_noted(window)}
    return te.compute(shape, element, name=name, attrs=attributes)


def _noted(window: Window) -> dict[str, Any]:
    """What families read of a window."""
    return {
        DIMENSIONS: len(window.image),
        STRIDES: list(window.strides),
        DILATION: list(window.dilation),
        PADDING: [before for before, _ in window.border],
    }


def _image(data: Tensor, window: Window, filler: Expression) -> Reader:
    return bordered(data, window.image, window.border, filler)


def _taps_inside(window: Window, axis: int, index: Expression, counts_border: bool) -> Expression:
    """The number of taps along an axis that count."""
    size, taps, before = window.image[axis], window.kernel[axis], window.before[axis]
    if _never_leaves(window, axis, counts_border):
        return taps
    outside = before if counts_border else 0
    start = index * window.strides[axis] - before
    end = size + (window.after[axis] if counts_border else 0)
    return te.min(start + taps, end) - te.max(start, -outside)


def _never_leaves(window: Window, axis: int, counts_border: bool) -> bool:
    """Whether every window holds as many elements as it has taps."""
    size, before = window.image[axis], window.before[axis]
    if not window.has_known_sizes:
        return counts_border or (before, window.after[axis]) == (0, 0)
    reach = (window.output[axis] - 1) * window.strides[axis] + window.kernel[axis]
    room = size + before + window.after[axis]
    return reach <= room and (counts_border or (before == 0 and reach <= size))
