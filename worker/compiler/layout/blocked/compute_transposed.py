"""Tensor expressions of transposed convolutions of images in blocks.

    out[n, k, row, column, lane] = sum over channel, *taps, channel lane of
        image[n, channel, place, channel lane] * weights[k, channel, *taps, channel lane, lane]
        where (index + before - tap * dilation) % stride == 0 in each dimension, else 0
    place = (index + before - tap * dilation) // stride

The condition depends only on the pixel's phase, which is its index modulo the stride. The schedule
(``worker.compiler.schedules.families.convolution.transposed``) writes its loops by phase, so it knows at
compile time which taps count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from worker.compiler.layout.blocked.compute import input_channels
from worker.compiler.layout.images import Tensor, bordered
from worker.compiler.schedules.annotations import (
    DILATION,
    FAMILY,
    GROUP_BLOCKS,
    OUTPUT,
    PADDING,
    STRIDES,
    TRANSPOSED,
)
from worker.compiler.schedules.nest import Expression, Sizes, rows_of, split_rows


@dataclass(frozen=True)
class TransposedWindow:
    """The window of a transposed convolution; padding cuts pixels off the output."""

    image: Sizes
    kernel: Sizes
    strides: Sizes
    dilation: Sizes
    before: Sizes
    after: Sizes
    output: Sizes

    @property
    def border(self) -> tuple[tuple[int, int], ...]:
        """Pixels to add before and after the input, as many as the outermost outputs' taps need.

        A border also covers the places of taps between two pixels, which are never read: TVM does not inline
        around a read that it cannot prove to be inside.
        """
        axes = range(len(self.image))
        needed = tuple((max(0, self._before(axis, 0)), self._after(axis)) for axis in axes)
        if not any(map(any, needed)):
            return needed
        return tuple((max(0, self._before(axis, self.strides[axis] - 1)), self._after(axis)) for axis in axes)

    def _before(self, axis: int, between: int) -> int:
        reach = (self.kernel[axis] - 1) * self.dilation[axis] - self.before[axis]
        return (reach + between) // self.strides[axis]

    def _after(self, axis: int) -> int:
        last = (self.output[axis] - 1 + self.before[axis]) // self.strides[axis]
        return max(0, last - self.image[axis] + 1)

    def places(
        self, row: Expression, column: Expression, taps: Sequence[Expression]
    ) -> tuple[list[Expression], list[Expression]]:
        """The places of taps on the bordered input, and the conditions under which they exist."""
        indices = (*split_rows(row, self.output), column)
        places, conditions = [], []
        for axis, (index, tap) in enumerate(zip(indices, taps, strict=True)):
            stride, start = self.strides[axis], self.border[axis][0] * self.strides[axis]
            number = index + (self.before[axis] + start) - tap * self.dilation[axis]
            places.append(number // stride)
            if stride > 1:
                conditions.append(number % stride == 0)
        return places, conditions

    def attributes(self, blocks_per_group: int) -> dict[str, Any]:
        """The annotations that the schedule reads."""
        return {
            FAMILY: TRANSPOSED,
            GROUP_BLOCKS: blocks_per_group,
            STRIDES: list(self.strides),
            DILATION: list(self.dilation),
            PADDING: list(self.before),
            OUTPUT: list(self.output),
        }


def transposed_convolution(window: TransposedWindow, groups: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A transposed convolution; data and weights have the layouts of ``compute.convolution``."""

    def kernel(data: Tensor, weights: Tensor) -> Tensor:
        image = bordered(data, window.image, window.border, 0.0)
        taps = _taps(window)
        per_group, first_block = int(weights.shape[0]) // groups, int(weights.shape[1])
        channels = input_channels(data, weights)

        def element(n: Any, k: Any, row: Any, column: Any, lane: Any) -> Expression:
            block = channels[0] if groups == 1 else k // per_group * first_block + channels[0]
            places, conditions = window.places(row, column, taps)
            product = (
                image(n, block, places, *channels[1:]) * weights[(k, channels[0], *taps, *channels[1:], lane)]
            )
            return te.sum(_where(conditions, product), axis=[channels[0], *taps, *channels[1:]])

        shape = (
            data.shape[0],
            weights.shape[0],
            rows_of(window.output),
            window.output[-1],
            weights.shape[-1],
        )
        return te.compute(shape, element, name="transposed", attrs=window.attributes(per_group))

    return kernel


def transposed_depthwise(window: TransposedWindow) -> Callable[[Tensor, Tensor], Tensor]:
    """A transposed depthwise convolution; the weights are ``[C / lanes, *taps, lanes]``."""

    def kernel(data: Tensor, weights: Tensor) -> Tensor:
        image = bordered(data, window.image, window.border, 0.0)
        taps = _taps(window)

        def element(n: Any, c: Any, row: Any, column: Any, lane: Any) -> Expression:
            places, conditions = window.places(row, column, taps)
            product = image(n, c, places, lane) * weights[(c, *taps, lane)]
            return te.sum(_where(conditions, product), axis=list(taps))

        shape = (*data.shape[:2], rows_of(window.output), window.output[-1], data.shape[4])
        return te.compute(shape, element, name="transposed", attrs=window.attributes(1))

    return kernel


def _taps(window: TransposedWindow) -> tuple[te.IterVar, ...]:
    return tuple(te.reduce_axis((0, size), "tap") for size in window.kernel)


def _where(conditions: list[Expression], value: Expression) -> Expression:
    if not conditions:
        return value
    return tirx.if_then_else(tirx.all(*conditions), value, tirx.const(0, str(value.ty.dtype)))
