"""Packing of convolution weights: groups merged, vectors filled up, in the order in which kernels read."""

from __future__ import annotations

from math import gcd, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MAX_MERGED = 4
"""Groups that are merged into one, at most: merged groups multiply with that many times as many zeros."""


def pack_vector(values: Array, lanes: int) -> Array:
    """``[N, C, H, W]`` to ``[N, C / lanes, H, W, lanes]``, filled up with zeros."""
    batch, channels, rows, columns = values.shape
    blocks = -(-channels // lanes)
    filled = _fill(values, 1, blocks * lanes)
    return np.ascontiguousarray(filled.reshape(batch, blocks, lanes, rows, columns).transpose(0, 1, 3, 4, 2))


def pack_dense(weights: Array, lanes: int, blocked_input: bool) -> Array:
    """``[K, C, R, S]`` in the order that ``convolution_kernels.convolution`` reads.

    Args:
        weights: C counts the inputs of one group.
        lanes: elements per vector.
        blocked_input: whether the image is in blocks, so that C is split too.

    Returns:
        ``[K / lanes, C / lanes, R, S, lanes, lanes]`` or ``[K / lanes, C, R, S, lanes]``.
    """
    outputs, inputs, rows, columns = weights.shape
    blocks = -(-outputs // lanes)
    filled = _fill(weights, 0, blocks * lanes)
    if not blocked_input:
        split = filled.reshape(blocks, lanes, inputs, rows, columns)
        return np.ascontiguousarray(split.transpose(0, 2, 3, 4, 1))
    input_blocks = -(-inputs // lanes)
    filled = _fill(filled, 1, input_blocks * lanes)
    split = filled.reshape(blocks, lanes, input_blocks, lanes, rows, columns)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1))


def pack_depthwise(weights: Array, lanes: int) -> Array:
    """``[C, 1, R, S]`` to ``[C / lanes, R, S, lanes]``."""
    channels, _, rows, columns = weights.shape
    blocks = -(-channels // lanes)
    filled = _fill(weights[:, 0], 0, blocks * lanes)
    return np.ascontiguousarray(filled.reshape(blocks, lanes, rows, columns).transpose(0, 2, 3, 1))


def merged_groups(outputs: int, inputs: int, groups: int, lanes: int, blocked_input: bool) -> int | None:
    """How many groups to merge so that each merged one begins at a vector's first lane.

    Args:
        outputs: output channels of one group.
        inputs: input channels of one group.
        groups: how many groups there are.
        lanes: elements per vector.
        blocked_input: whether input channels lie in vectors too.

    Returns:
        The number, 1 where nothing needs merging; all groups where they are few; None where merging them
        would multiply mostly with zeros.
    """
    if groups == 1:
        return 1
    needed = lanes // gcd(outputs, lanes)
    if blocked_input:
        needed = lcm(needed, lanes // gcd(inputs, lanes))
    if groups % needed == 0 and needed <= MAX_MERGED:
        return needed
    return groups if groups <= MAX_MERGED else None


def merge(weights: Array, groups: int, merged: int) -> Array:
    """``[K, C, R, S]`` with the weights of ``merged`` groups side by side: ``[K, merged * C, R, S]``.

    Outputs keep their order; weights between different groups are zero.
    """
    outputs, inputs, rows, columns = weights.shape
    per_group = outputs // groups
    wide = np.zeros((outputs, merged * inputs, rows, columns), weights.dtype)
    for group in range(groups):
        place = group % merged * inputs
        channels = slice(group * per_group, (group + 1) * per_group)
        wide[channels, place : place + inputs] = weights[channels]
    return wide


def _fill(values: Array, axis: int, size: int) -> Array:
    missing = size - values.shape[axis]
    if missing == 0:
        return values
    widths = [(0, missing if dimension == axis else 0) for dimension in range(values.ndim)]
    return np.pad(values, widths)
