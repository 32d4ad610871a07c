"""Convolutions of groups that share vectors as tensor expressions, and their packed weights.

    pixels   bundled[n, bundle, row, column, i * groups + g] = image[n, input channel i of group g]
    outputs  out[n, k, row, column, lane] = sum over i, *taps of bundled[...] * weights[...]

The weights are ``[bundles, vectors, tap rows, inputs, tap columns, lanes]``, which is the order in which the
loops of ``worker.compiler.schedules.families.convolution.grouped`` read them. ``bundles.Bundle`` says which
channel is where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx

from worker.compiler.layout.images import Tensor, Window
from worker.compiler.schedules.annotations import BUNDLE, DILATION, FAMILY, GROUPED, PADDING, STEPS
from worker.compiler.schedules.families.convolution.bundles import Bundle
from worker.compiler.schedules.nest import Expression

Array = NDArray[Any]


def pack_grouped(weights: Array, bundle: Bundle) -> Array:
    """``[K, C / groups, *taps]`` in the layout that ``grouped_convolution`` reads.

    Zeros stand for the groups that the last bundle lacks.
    """
    rows, columns = _two(weights.shape[2:], 1)
    missing = -weights.shape[0] % (bundle.groups * bundle.outputs)
    filled = np.pad(weights, ((0, missing), *((0, 0),) * (weights.ndim - 1)))
    per_vector = bundle.lanes // bundle.groups
    split = filled.reshape(-1, bundle.groups, bundle.vectors, per_vector, bundle.inputs, rows, columns)
    ordered = split.transpose(0, 2, 5, 4, 6, 3, 1)
    return np.ascontiguousarray(ordered.reshape(*ordered.shape[:5], bundle.lanes))


def grouped_convolution(window: Window, bundle: Bundle, count: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A convolution of ``count`` groups, of a sequence or an image in blocks."""
    sizes, before = _two(window.image, 1), _two(window.before, 0)
    steps, dilation = _two(window.strides, 1), _two(window.dilation, 1)
    border = _two(window.border, (0, 0))
    wide = tuple(size + sum(around) for size, around in zip(sizes, border, strict=True))
    groups, inputs, outputs, lanes = bundle.groups, bundle.inputs, bundle.outputs, bundle.lanes

    def kernel(data: Tensor, weights: Tensor) -> Tensor:
        bundles, vectors, tap_rows, _, tap_columns, _ = weights.shape
        dtype = str(data.dtype)

        def pixel(n: Any, number: Any, row: Any, column: Any, element: Any) -> Expression:
            channel = number * groups * inputs + element % groups * inputs + element // groups
            y, x = row - before[0], column - before[1]
            inside = tirx.all(y >= 0, y < sizes[0], x >= 0, x < sizes[1], channel < count * inputs)
            value = data[n, channel // lanes, y, x, channel % lanes]
            return tirx.if_then_else(inside, value, tirx.const(0, dtype))

        def output(n: Any, k: Any, row: Any, column: Any, lane: Any) -> Expression:
            channel = k % vectors * lanes + lane
            group, number = channel // outputs, channel % outputs
            place = number * groups + group
            at = (row * steps[0] + down * dilation[0], column * steps[1] + across * dilation[1])
            pixels = image[(n, k // vectors, *at, i * groups + group)]
            weight = weights[k // vectors, place // lanes, down, i, across, place % lanes]
            return te.sum(pixels * weight, axis=[i, down, across])

        i = te.reduce_axis((0, inputs), "channel")
        down, across = (te.reduce_axis((0, size), "tap") for size in (tap_rows, tap_columns))
        image = te.compute((data.shape[0], bundles, *wide, groups * inputs), pixel, name="bundled")
        shape = (data.shape[0], -(-count * outputs // lanes), *window.shape, lanes)
        attributes = {
            FAMILY: GROUPED,
            BUNDLE: (groups, inputs, outputs),
            STEPS: steps,
            DILATION: dilation,
            PADDING: before,
        }
        return te.compute(shape, output, name="grouped", attrs=attributes)

    return kernel


def _two(sizes: Any, missing: Any) -> tuple[Any, Any]:
    """The numbers of rows and columns; a sequence has one row."""
    return (missing, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])
