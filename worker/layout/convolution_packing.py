"""Packing, when the model runs, of convolution weights that are not constant.

The orders are those of ``convolution_weights``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from worker.layout.convolution_weights import Groups
from worker.layout.convolution_window import Expression, Tensor


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


def pack_dense_tensor(
    groups: Groups, merged: int, lanes: int, blocked_input: bool, is_transposed: bool, dtype: str
) -> Callable[[Tensor], Tensor]:
    """As ``merge`` and ``pack_dense``, after ``transpose_weights`` where ``is_transposed``."""
    outputs, inputs = groups.count * groups.outputs, merged * groups.inputs

    def kernel(weights: Tensor) -> Tensor:
        taps = weights.shape[2:]

        def weight(output: Any, place: Any, tap: Any) -> Expression:
            group = output // groups.outputs
            channel = place - group % merged * groups.inputs
            inside = tirx.all(output < outputs, channel >= 0, channel < groups.inputs)
            at = (
                (group * groups.inputs + channel, output % groups.outputs)
                if is_transposed
                else (output, channel)
            )
            value = weights[(*at, *tap)].astype(dtype)
            return tirx.if_then_else(inside, value, tirx.const(0, dtype))

        def blocked(k: Any, c: Any, *rest: Any) -> Expression:
            *tap, place, lane = rest
            return weight(k * lanes + lane, c * lanes + place, tap)

        def plain(k: Any, c: Any, *rest: Any) -> Expression:
            *tap, lane = rest
            return weight(k * lanes + lane, c, tap)

        blocks = -(-outputs // lanes)
        if blocked_input:
            shape = (blocks, -(-inputs // lanes), *taps, lanes, lanes)
            return te.compute(shape, blocked, name="pack_weights")
        return te.compute((blocks, inputs, *taps, lanes), plain, name="pack_weights")

    return kernel
