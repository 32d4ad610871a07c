"""Tensor expressions over the blocked layout ``[N, C / lanes, H, W, lanes]``.

One vector holds ``lanes`` channels of one pixel. Channels that fill up the last vector hold no meaning;
weights that meet them are zero. Windows slide over a copy with borders, made by a block of its own. A
kernel's main block is annotated with its family, which is what the schedules go by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

FAMILY = "bessemer.family"
"""The annotation that names a block's family: one of the following."""
CONVOLUTION = "conv2d"
DEPTHWISE = "depthwise"
POOLING = "pooling"
GROUP_BLOCKS = "bessemer.group_blocks"
"""The annotation of a convolution that counts the output blocks that read the same inputs."""

Tensor = Any
Expression = Any


@dataclass(frozen=True)
class Window:
    """Places of a window of ``kernel`` taps on an image, ``output`` in all; pairs are (rows, columns)."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]
    output: tuple[int, int]

    def place(self, axis: int, index: Expression, tap: Expression) -> Expression:
        """The row (axis 0) or column (axis 1) of the bordered image under a tap."""
        return index * self.strides[axis] + tap * self.dilation[axis]

    def taps(self) -> tuple[te.IterVar, te.IterVar]:
        """The reductions over the window."""
        return te.reduce_axis((0, self.kernel[0]), "r"), te.reduce_axis((0, self.kernel[1]), "s")

    def border(self, axis: int, size: int) -> tuple[int, int]:
        """Pixels to add before and after, as many as the last window needs."""
        needed = (self.output[axis] - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilation[axis]
        return self.before[axis], max(0, needed + 1 - size - self.before[axis])


def to_blocks(lanes: int) -> Callable[[Tensor], Tensor]:
    """``[N, C, H, W]`` to blocks, filled up with zeros."""

    def kernel(plain: Tensor) -> Tensor:
        batch, channels, *image = plain.shape
        blocks = -(-int(channels) // lanes)

        def element(n: Any, block: Any, y: Any, x: Any, lane: Any) -> Expression:
            channel = block * lanes + lane
            if int(channels) == blocks * lanes:
                return plain[n, channel, y, x]
            return tirx.if_then_else(
                channel < channels, plain[n, channel, y, x], tirx.const(0, str(plain.dtype))
            )

        return te.compute((batch, blocks, *image, lanes), element, name="to_blocks")

    return kernel


def from_blocks(channels: int) -> Callable[[Tensor], Tensor]:
    """Blocks to ``[N, C, H, W]``."""

    def kernel(blocked: Tensor) -> Tensor:
        batch, _, *image, lanes = blocked.shape
        return te.compute(
            (batch, channels, *image),
            lambda n, c, y, x: blocked[n, c // lanes, y, x, c % lanes],
            name="from_blocks",
        )

    return kernel


def convolution(window: Window, groups: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A convolution of a blocked image, or of a plain one, whose channels are then read one by one.

    The weights are ``[K / lanes, inputs, R, S, lanes]``, ``inputs`` being the input channels of a group; for
    a blocked image ``inputs`` is split: ``[K / lanes, inputs / lanes, R, S, lanes, lanes]``.
    """

    def kernel(data: Tensor, weights: Tensor) -> Tensor:
        image = bordered(data, window, 0.0)
        r, s = window.taps()
        per_group = int(weights.shape[0]) // groups
        channels = [te.reduce_axis((0, weights.shape[axis]), "ci") for axis in _channel_axes(weights)]
        first_block = int(weights.shape[1])

        def element(n: Any, k: Any, y: Any, x: Any, lane: Any) -> Expression:
            place = (window.place(0, y, r), window.place(1, x, s))
            block = channels[0] if groups == 1 else k // per_group * first_block + channels[0]
            pixel = image[(n, block, *place, *channels[1:])]
            weight = weights[(k, channels[0], r, s, *channels[1:], lane)]
            return te.sum(pixel * weight, axis=[channels[0], r, s, *channels[1:]])

        shape = (data.shape[0], weights.shape[0], *window.output, weights.shape[-1])
        return te.compute(shape, element, name="conv2d", attrs={FAMILY: CONVOLUTION, GROUP_BLOCKS: per_group})

    return kernel


def depthwise(window: Window) -> Callable[[Tensor, Tensor], Tensor]:
    """One window per channel; the weights are ``[C / lanes, R, S, lanes]``."""

    def kernel(data: Tensor, weights: Tensor) -> Tensor:
        image = bordered(data, window, 0.0)
        r, s = window.taps()
        return te.compute(
            (*data.shape[:2], *window.output, data.shape[4]),
            lambda n, c, y, x, lane: te.sum(
                image[n, c, window.place(0, y, r), window.place(1, x, s), lane] * weights[c, r, s, lane],
                axis=[r, s],
            ),
            name="depthwise",
            attrs={FAMILY: DEPTHWISE},
        )

    return kernel


def max_pool(window: Window) -> Callable[[Tensor], Tensor]:
    """The largest element of each window."""

    def kernel(data: Tensor) -> Tensor:
        image = bordered(data, window, tirx.min_value(str(data.dtype)))
        r, s = window.taps()
        return te.compute(
            (*data.shape[:2], *window.output, data.shape[4]),
            lambda n, c, y, x, lane: te.max(
                image[n, c, window.place(0, y, r), window.place(1, x, s), lane], axis=[r, s]
            ),
            name="max_pool",
            attrs={FAMILY: POOLING},
        )

    return kernel


def average_pool(window: Window, counts_border: bool) -> Callable[[Tensor], Tensor]:
    """The mean of each window; the border counts as zeros where ``counts_border``, else not at all."""

    def kernel(data: Tensor) -> Tensor:
        image = bordered(data, window, 0.0)
        r, s = window.taps()
        dtype = str(data.dtype)
        total = te.compute(
            (*data.shape[:2], *window.output, data.shape[4]),
            lambda n, c, y, x, lane: te.sum(
                image[n, c, window.place(0, y, r), window.place(1, x, s), lane], axis=[r, s]
            ),
            name="pool_sum",
            attrs={FAMILY: POOLING},
        )

        def size(axis: int, index: Expression) -> Expression:
            if _never_leaves(window, axis, int(data.shape[2 + axis]), counts_border):
                return window.kernel[axis]
            outside = window.before[axis] if counts_border else 0
            start = index * window.strides[axis] - window.before[axis]
            end = data.shape[2 + axis] + (window.after[axis] if counts_border else 0)
            return te.min(start + window.kernel[axis], end) - te.max(start, -outside)

        def element(n: Any, c: Any, y: Any, x: Any, lane: Any) -> Expression:
            count = size(0, y) * size(1, x)
            if isinstance(count, int):
                return total[n, c, y, x, lane] * tirx.const(1 / count, dtype)
            return total[n, c, y, x, lane] / count.astype(dtype)

        return te.compute(total.shape, element, name="pool_mean")

    return kernel


def bordered(data: Tensor, window: Window, value: Expression) -> Tensor:
    """The image with the border that the windows reach into; the image itself where they do not."""
    (top, bottom), (left, right) = (window.border(axis, int(data.shape[2 + axis])) for axis in (0, 1))
    if (top, bottom, left, right) == (0, 0, 0, 0):
        return data
    batch, channels, rows, columns, *lanes = data.shape
    filler = tirx.const(value, str(data.dtype)) if isinstance(value, float) else value

    def element(n: Any, c: Any, y: Any, x: Any, *lane: Any) -> Expression:
        inside = tirx.all(y >= top, y < rows + top, x >= left, x < columns + left)
        return tirx.if_then_else(inside, data[(n, c, y - top, x - left, *lane)], filler)

    shape = (batch, channels, rows + top + bottom, columns + left + right, *lanes)
    return te.compute(shape, element, name="border")


def _channel_axes(weights: Tensor) -> tuple[int, ...]:
    return (1,) if len(weights.shape) == 5 else (1, 4)


def _never_leaves(window: Window, axis: int, size: int, counts_border: bool) -> bool:
    """Whether every window holds as many elements as it has taps."""
    reach = (window.output[axis] - 1) * window.strides[axis] + window.kernel[axis]
    room = size + window.before[axis] + window.after[axis]
    return reach <= room and (counts_border or (window.before[axis] == 0 and reach <= size))
