"""Convolutions of few channels, such as a network's first one, for tensor cores.

    y = nn.conv2d(x, W), 3 channels       packed[n, h, w * 4 + c] = x[n, c, h - top, w - left], or zero
                                     →    y[n, h, w, o] = sum over (i, t) of
                                              packed[n, h * stride + i, w * stride * 4 + t] * W'[o, i, t]

Three channels do not fill a vector: threads would load each element alone, with its own test for the border.
The packed image has a power of two of channels and its border, so the taps of a window's row, ``t``, are next
to each other and begin where a vector may. They are the depth of a product, filled up with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx
from tvm.relax import BlockBuilder

from worker.compiler.layout.relax_graph import static_shape
from worker.compiler.schedules.gpu.chips import current_gpu
from worker.compiler.schedules.nest import bits_of

Array = NDArray[Any]

_MOST_CHANNELS = 3
_LEAST_COLUMNS = 16
_VECTOR_BITS = 128
"""What a thread copies at once."""


@dataclass(frozen=True)
class FewChannels:
    """A convolution of few channels.

    Attributes:
        image: batch, channels, rows and columns of the image.
        window: rows and columns.
        strides: along rows and columns.
        border: rows above and columns to the left.
        result: rows, columns and channels of the result.
        vector: the elements that a thread copies at once.
    """

    image: tuple[int, int, int, int]
    window: tuple[int, int]
    strides: tuple[int, int]
    border: tuple[int, int]
    result: tuple[int, int, int]
    vector: int

    @property
    def lanes(self) -> int:
        """The channels of the packed image."""
        return 2 if self.image[1] <= 2 else 4

    @property
    def taps(self) -> int:
        """The elements of a row of a window, filled up to vectors."""
        vector = min(self.vector, self.strides[1] * self.lanes)
        return ceil(self.window[1] * self.lanes / vector) * vector

    @property
    def rows(self) -> int:
        """The rows of the packed image."""
        return (self.result[0] - 1) * self.strides[0] + self.window[0]

    @property
    def columns(self) -> int:
        """The elements of a row of the packed image."""
        used = (self.result[1] - 1) * self.strides[1] * self.lanes + self.taps
        return ceil(used / self.vector) * self.vector

    def packed(self, image: te.Tensor, channels_last: bool) -> te.Tensor:
        """The packed image."""
        batch, channels, rows, columns = self.image
        top, left = self.border

        def element(n: Any, row: Any, place: Any) -> Any:
            channel, y = tirx.floormod(place, self.lanes), row - top
            x = tirx.floordiv(place, self.lanes) - left
            inside = tirx.all(channel < channels, y >= 0, y < rows, x >= 0, x < columns)
            value = image(n, y, x, channel) if channels_last else image(n, channel, y, x)
            return tirx.if_then_else(inside, value, tirx.const(0, image.dtype))

        return te.compute((batch, self.rows, self.columns), element, "packed")

    def weights(self, values: Array) -> Array:
        """Weights ``[outputs, rows, taps]`` of those in OIHW."""
        outputs, channels, rows, columns = values.shape
        filled = np.zeros((outputs, rows, self.taps), values.dtype)
        row = filled[:, :, : columns * self.lanes].reshape(outputs, rows, columns, self.lanes)
        row[..., :channels] = np.transpose(values, (0, 2, 3, 1))
        filled[:, :, : columns * self.lanes] = row.reshape(outputs, rows, -1)
        return filled

    def convolved(self, packed: te.Tensor, weights: te.Tensor, dtype: str) -> te.Tensor:
        """The result with channels last."""
        down, along = self.strides
        i = te.reduce_axis((0, self.window[0]), "i")
        t = te.reduce_axis((0, self.taps), "t")

        def element(n: Any, row: Any, column: Any, output: Any) -> Any:
            left = packed(n, row * down + i, column * (along * self.lanes) + t)
            right = weights(output, i, t)
            if dtype != packed.dtype:
                left, right = left.astype(dtype), right.astype(dtype)
            return te.sum(left * right, axis=(i, t))

        return te.compute((self.image[0], *self.result), element, "conv2d")


def few_channels(call: relax.Call) -> FewChannels | None:
    """A convolution that is worth packing; None for others."""
    gpu, attributes = current_gpu(), call.attrs
    data, weights = (static_shape(operand) for operand in call.args)
    result = static_shape(call)
    if gpu is None or data is None or weights is None or result is None:
        return None
    dtype = str(call.args[0].ty.dtype)
    is_multiplied = dtype == "float16" or (
        gpu.has_bfloat16 and (dtype == "bfloat16" or (dtype == "float32" and gpu.tf32))
    )
    vector = _VECTOR_BITS // bits_of(dtype)
    is_plain = int(attributes.groups) == 1 and all(int(dilation) == 1 for dilation in attributes.dilation)
    if not is_multiplied or not is_plain or str(call.ty.dtype) != "float32":
        return None
    if data[1] > _MOST_CHANNELS or weights[0] < _LEAST_COLUMNS or weights[3] == 1:
        return None
    strides, padding = tuple(map(int, attributes.strides)), tuple(map(int, attributes.padding))
    if not any(padding) and (strides[1] * data[1]) % vector == 0 and (data[3] * data[1]) % vector == 0:
        return None  # windows begin where vectors may
    return FewChannels(
        image=(data[0], data[1], data[2], data[3]),
        window=(weights[2], weights[3]),
        strides=(strides[0], strides[-1]),
        border=(padding[0], padding[1]),
        result=(result[2], result[3], result[1]),
        vector=vector,
    )


def convolve_few_channels(
    plan: FewChannels, image: relax.Expr, channels_last: bool, weights: relax.Expr, builder: BlockBuilder
) -> relax.Var:
    """Emit the packed image and the convolution.

    Args:
        plan: the convolution.
        image: the operand in the new graph.
        channels_last: whether its channels are the last axis.
        weights: the packed weights.
        builder: the builder of the new graph.
    """
    packed = builder.emit(
        builder.call_te(lambda x: plan.packed(x, channels_last), image, primfunc_name_hint="packed_image")
    )
    return builder.emit(
        builder.call_te(
            lambda x, w: plan.convolved(x, w, "float32"), packed, weights, primfunc_name_hint="conv2d"
        )
    )
