"""The memory layouts of convolution weights: numpy packs constants, a kernel packs other tensors.

    dense, image in blocks   [K, C / groups, *taps] → [K / lanes, C / groups / lanes, *taps, lanes, lanes]
    dense, plain image       [K, C / groups, *taps] → [K / lanes, C / groups, *taps, lanes]
    depthwise                [C, 1, *taps]          → [C / lanes, *taps, lanes]
    per-channel constant     [N, C, *rows, columns] → [N, C / lanes, rows, columns, lanes]

The last axis runs over output channels; before it, if the image is in blocks, the lanes of the input
channels. Zeros fill the last block. Merging ``m`` groups widens ``C / groups`` to ``m * C / groups``, with
zeros between different groups. Transposed convolutions have ``[C, K / groups, *taps]`` and are swapped first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx

from worker.compiler.layout.images import Tensor
from worker.compiler.schedules.nest import Expression

Array = NDArray[Any]

MAX_MERGED = 4
"""The most groups to merge: merging ``m`` groups multiplies the work by ``m``, the rest being zeros."""


@dataclass(frozen=True)
class Groups:
    """The number of groups of a convolution, and the channels that each reads and writes."""

    count: int
    inputs: int
    outputs: int


def pack_vector(values: Array, lanes: int) -> Array:
    """``[N, C, *rows, columns]`` to ``[N, C / lanes, rows, columns, lanes]``, padded with zeros."""
    batch, channels, *_, columns = values.shape
    blocks = -(-channels // lanes)
    filled = _fill(values, 1, blocks * lanes)
    return np.ascontiguousarray(filled.reshape(batch, blocks, lanes, -1, columns).transpose(0, 1, 3, 4, 2))


def spread_channels(values: Array, axis: int, slots: Sequence[int], size: int) -> Array:
    """Values of channels at the channels' slots along an axis of ``size`` slots; zeros fill the others."""
    shape = (*values.shape[:axis], size, *values.shape[axis + 1 :])
    spread = np.zeros(shape, values.dtype)
    spread[(slice(None),) * axis + (list(slots),)] = values
    return spread


def pack_dense(weights: Array, lanes: int, blocked_input: bool) -> Array:
    """``[K, C, *taps]`` in the layout that ``compute.convolution`` reads.

    Args:
        weights: C counts the input channels of one group.
        lanes: channels per block.
        blocked_input: whether the image is in blocks, so that C is split too.

    Returns:
        ``[K / lanes, C / lanes, *taps, lanes, lanes]`` or ``[K / lanes, C, *taps, lanes]``.
    """
    outputs, inputs, *taps = weights.shape
    blocks = -(-outputs // lanes)
    filled = _fill(weights, 0, blocks * lanes)
    if not blocked_input:
        return np.ascontiguousarray(np.moveaxis(filled.reshape(blocks, lanes, inputs, *taps), 1, -1))
    input_blocks = -(-inputs // lanes)
    filled = _fill(filled, 1, input_blocks * lanes)
    split = filled.reshape(blocks, lanes, input_blocks, lanes, *taps)
    return np.ascontiguousarray(np.moveaxis(split, (3, 1), (-2, -1)))


def pack_depthwise(weights: Array, lanes: int) -> Array:
    """``[C, 1, *taps]`` to ``[C / lanes, *taps, lanes]``."""
    channels, _, *taps = weights.shape
    blocks = -(-channels // lanes)
    filled = _fill(weights[:, 0], 0, blocks * lanes)
    return np.ascontiguousarray(np.moveaxis(filled.reshape(blocks, lanes, *taps), 1, -1))


def merged_groups(groups: Groups, lanes: int, blocked_input: bool) -> int | None:
    """The number of groups to merge so that each merged group begins at a first lane.

    Args:
        groups: the groups of the convolution.
        lanes: channels per block.
        blocked_input: whether input channels are in blocks too.

    Returns:
        1 if groups need no merging; all groups if they are few; None if merging would multiply mostly by
        zeros, so that each group is padded by itself.
    """
    if groups.count == 1:
        return 1
    needed = lanes // gcd(groups.outputs, lanes)
    if blocked_input:
        needed = lcm(needed, lanes // gcd(groups.inputs, lanes))
    if groups.count % needed == 0 and needed <= MAX_MERGED:
        return needed
    return groups.count if groups.count <= MAX_MERGED else None


def merge(weights: Array, groups: int, merged: int) -> Array:
    """``[K, C, *taps]`` to ``[K, merged * C, *taps]``: weights between different groups are zero.

    Outputs keep their order.
    """
    outputs, inputs, *taps = weights.shape
    per_group = outputs // groups
    wide = np.zeros((outputs, merged * inputs, *taps), weights.dtype)
    for group in range(groups):
        place = group % merged * inputs
        channels = slice(group * per_group, (group + 1) * per_group)
        wide[channels, place : place + inputs] = weights[channels]
    return wide


def fill_groups(weights: Array, groups: int, lanes: int) -> Array:
    """``[K, C, *taps]`` with each group's outputs padded to whole blocks."""
    outputs, *rest = weights.shape
    split = weights.reshape(groups, outputs // groups, *rest)
    whole = -(-split.shape[1] // lanes) * lanes
    return _fill(split, 1, whole).reshape(groups * whole, *rest)


def transpose_weights(weights: Array, groups: int) -> Array:
    """Weights of a transposed convolution, ``[C, K / groups, *taps]``, as ``[K, C / groups, *taps]``."""
    inputs, outputs, *taps = weights.shape
    split = weights.reshape(groups, inputs // groups, outputs, *taps)
    return split.swapaxes(1, 2).reshape(groups * outputs, inputs // groups, *taps)


def _fill(values: Array, axis: int, size: int) -> Array:
    missing = size - values.shape[axis]
    if missing == 0:
        return values
    widths = [(0, missing if dimension == axis else 0) for dimension in range(values.ndim)]
    return np.pad(values, widths)


def pack_depthwise_tensor(lanes: int, dtype: str) -> Callable[[Tensor], Tensor]:
    """A kernel that does what ``pack_depthwise`` does."""

    def kernel(weights: Tensor) -> Tensor:
        channels, _, *taps = weights.shape

        def element(block: Any, *rest: Any) -> Expression:
            *tap, lane = rest
            channel = block * lanes + lane
            value = weights[(channel, 0, *tap)].astype(dtype)
            return tirx.if_then_else(channel < channels, value, tirx.const(0, dtype))

        return te.compute((-(-int(channels) // lanes), *taps, lanes), element, name="pack_weights")

    return kernel


@dataclass(frozen=True)
class Packing:
    """How to pack dense weights.

    ``merged`` is the number of groups in a merged one; if None, each group's outputs are padded to whole
    blocks. Weights of transposed convolutions are ``[C, K / groups, *taps]``.
    """

    groups: Groups
    merged: int | None
    lanes: int
    blocked_input: bool
    is_transposed: bool
    dtype: str

    @property
    def whole_outputs(self) -> int:
        """Outputs of a group, padding included."""
        outputs = self.groups.outputs
        return outputs if self.merged else -(-outputs // self.lanes) * self.lanes

    @property
    def side_by_side(self) -> int:
        """Groups that read the same inputs."""
        return self.merged or 1


def pack_constant(weights: Array, packing: Packing) -> Array:
    """Weights in the layout that kernels read."""
    values = weights.astype(packing.dtype)
    if packing.is_transposed:
        values = transpose_weights(values, packing.groups.count)
    if packing.merged is None:
        values = fill_groups(values, packing.groups.count, packing.lanes)
    elif packing.merged > 1:
        values = merge(values, packing.groups.count, packing.merged)
    return pack_dense(values, packing.lanes, packing.blocked_input)


def pack_tensor(packing: Packing) -> Callable[[Tensor], Tensor]:
    """A kernel that does what ``pack_constant`` does."""
    groups, lanes, whole = packing.groups, packing.lanes, packing.whole_outputs

    def kernel(weights: Tensor) -> Tensor:
        def weight(k: Any, c: Any, tap: Any) -> Expression:
            group, output = k // whole, k % whole
            channel = c - group % packing.side_by_side * groups.inputs
            inside = tirx.all(
                group < groups.count, output < groups.outputs, channel >= 0, channel < groups.inputs
            )
            at = (
                (group * groups.inputs + channel, output)
                if packing.is_transposed
                else (group * groups.outputs + output, channel)
            )
            value = weights[(*at, *tap)].astype(packing.dtype)
            return tirx.if_then_else(inside, value, tirx.const(0, packing.dtype))

        def blocked(k: Any, c: Any, *rest: Any) -> Expression:
            *tap, place, lane = rest
            return weight(k * lanes + lane, c * lanes + place, tap)

        def plain(k: Any, c: Any, *rest: Any) -> Expression:
            *tap, lane = rest
            return weight(k * lanes + lane, c, tap)

        taps = weights.shape[2:]
        blocks, inputs = -(-groups.count * whole // lanes), packing.side_by_side * groups.inputs
        if packing.blocked_input:
            shape = (blocks, -(-inputs // lanes), *taps, lanes, lanes)
            return te.compute(shape, blocked, name="pack_weights")
        return te.compute((blocks, inputs, *taps, lanes), plain, name="pack_weights")

    return kernel
