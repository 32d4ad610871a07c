"""Packing of convolution weights: constants when the model is compiled, others when it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from worker.compiler.layout.convolution_weights import (
    Array,
    Groups,
    fill_groups,
    merge,
    pack_dense,
    transpose_weights,
)
from worker.compiler.layout.convolution_window import Tensor
from worker.compiler.schedules.nest import Expression


def pack_depthwise_tensor(lanes: int, dtype: str) -> Callable[[Tensor], Tensor]:
    """As ``pack_depthwise``."""

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
    """How dense weights are packed.

    ``merged`` counts the groups that are merged into one; where it is None, each group's outputs are filled
    up to whole vectors. Weights of transposed convolutions are ``[C, K / groups, *taps]``.
    """

    groups: Groups
    merged: int | None
    lanes: int
    blocked_input: bool
    is_transposed: bool
    dtype: str

    @property
    def whole_outputs(self) -> int:
        """Outputs of a group, with those that fill it up."""
        outputs = self.groups.outputs
        return outputs if self.merged else -(-outputs // self.lanes) * self.lanes

    @property
    def side_by_side(self) -> int:
        """Groups that read the same inputs."""
        return self.merged or 1


def pack_constant(weights: Array, packing: Packing) -> Array:
    """Weights in the order that kernels read."""
    values = weights.astype(packing.dtype)
    if packing.is_transposed:
        values = transpose_weights(values, packing.groups.count)
    if packing.merged is None:
        values = fill_groups(values, packing.groups.count, packing.lanes)
    elif packing.merged > 1:
        values = merge(values, packing.groups.count, packing.merged)
    return pack_dense(values, packing.lanes, packing.blocked_input)


def pack_tensor(packing: Packing) -> Callable[[Tensor], Tensor]:
    """As ``pack_constant``, when the model runs."""
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
