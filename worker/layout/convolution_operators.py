"""Which operators work on blocks, and how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from worker.layout import convolution_kernels as kernels
from worker.layout.convolution_kernels import Window
from worker.layout.convolution_types import Array, Blocked, Image, Rule, Workbench, image_of
from worker.layout.convolution_weights import (
    merge,
    merged_groups,
    pack_dense,
    pack_depthwise,
    pack_vector,
)

_ELEMENTWISE = (
    "abs",
    "add",
    "clip",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nn.gelu",
    "nn.gelu_tanh",
    "nn.leakyrelu",
    "nn.relu",
    "nn.relu6",
    "nn.silu",
    "sigmoid",
    "subtract",
    "tanh",
)
"""Operators that stay finite on channels that hold no meaning."""


def convolve(call: relax.Call, bench: Workbench) -> Blocked | None:
    """``nn.conv2d`` with constant weights."""
    data, weights = call.args[0], bench.constant(call.args[1])
    image, attributes = image_of(data), call.attrs
    if weights is None or image is None or str(weights.dtype) != image.dtype or not _is_plain(attributes):
        return None
    window = _window(attributes, weights.shape[2:], call)
    groups = int(attributes.groups)
    if window is None:
        return None
    if groups == image.channels == weights.shape[0] and groups > 1:
        return _convolve_depthwise(data, weights, window, bench)
    return _convolve_dense(data, image, weights, window, groups, bench)


def _convolve_depthwise(data: relax.Expr, weights: Array, window: Window, bench: Workbench) -> Blocked | None:
    blocked = bench.block(data)
    if blocked is None:
        return None
    packed = _constant(pack_depthwise(weights, bench.lanes(str(weights.dtype))))
    name = "depthwise_conv2d"
    return Blocked(bench.kernel(kernels.depthwise(window), name, blocked.variable, packed), blocked.channels)


def _convolve_dense(
    data: relax.Expr, image: Image, weights: Array, window: Window, groups: int, bench: Workbench
) -> Blocked | None:
    lanes = bench.lanes(image.dtype)
    in_blocks = bench.blocked(data) is not None or image.channels >= 2 * lanes
    outputs, inputs = weights.shape[0], weights.shape[1]
    merged = merged_groups(outputs // groups, inputs, groups, lanes, in_blocks)
    if merged is None:
        return None
    blocked = bench.block(data) if in_blocks else None
    packed = pack_dense(merge(weights, groups, merged) if merged > 1 else weights, lanes, in_blocks)
    kernel = kernels.convolution(window, groups // merged)
    operand = blocked.variable if blocked else data
    return Blocked(bench.kernel(kernel, "conv2d", operand, _constant(packed)), outputs)


def pool(call: relax.Call, bench: Workbench) -> Blocked | None:
    """``nn.max_pool2d`` and ``nn.avg_pool2d`` of an image in blocks."""
    data, attributes = bench.blocked(call.args[0]), call.attrs
    if data is None or attributes.layout != "NCHW":
        return None
    window = _window(attributes, attributes.pool_size, call)
    if window is None:
        return None
    if call.op.name == "relax.nn.max_pool2d":
        return Blocked(bench.kernel(kernels.max_pool(window), "max_pool2d", data.variable), data.channels)
    if window.dilation != (1, 1):
        return None
    kernel = kernels.average_pool(window, bool(attributes.count_include_pad))
    return Blocked(bench.kernel(kernel, "avg_pool2d", data.variable), data.channels)


def pool_adaptively(call: relax.Call, bench: Workbench) -> Blocked | None:
    """``nn.adaptive_avg_pool2d`` to a divisor of an image's size."""
    data, image = bench.blocked(call.args[0]), image_of(call.args[0])
    output = image_of(call)
    if data is None or image is None or output is None or call.attrs.layout != "NCHW":
        return None
    if image.rows % output.rows or image.columns % output.columns:
        return None
    return _pool_evenly(data, image, (output.rows, output.columns), bench)


def average(call: relax.Call, bench: Workbench) -> Blocked | None:
    """``mean`` over an image's rows and columns."""
    data, image = bench.blocked(call.args[0]), image_of(call.args[0])
    axes = {int(axis) % 4 for axis in call.attrs.axis or ()}
    if data is None or image is None or axes != {2, 3} or not call.attrs.keepdims:
        return None
    return _pool_evenly(data, image, (1, 1), bench)


def _pool_evenly(data: Blocked, image: Image, output: tuple[int, int], bench: Workbench) -> Blocked:
    size = (image.rows // output[0], image.columns // output[1])
    window = Window(size, size, (1, 1), (0, 0), (0, 0), output)
    kernel = kernels.average_pool(window, counts_border=False)
    return Blocked(bench.kernel(kernel, "avg_pool2d", data.variable), data.channels)


def map_elements(call: relax.Call, bench: Workbench) -> Blocked | None:
    """An elementwise operator of which an operand is in blocks."""
    output = image_of(call)
    if output is None or not any(bench.blocked(operand) for operand in call.args):
        return None
    lanes = bench.lanes(output.dtype)
    operands = [_in_blocks(operand, output, lanes, bench) for operand in call.args]
    if any(operand is None for operand in operands):
        return None
    return Blocked(bench.emit(relax.Call(call.op, operands, call.attrs)), output.channels)


def _in_blocks(operand: relax.Expr, output: Image, lanes: int, bench: Workbench) -> relax.Expr | None:
    """An operand in blocks; numbers and constants of one channel stay as they are."""
    if not isinstance(operand.ty, relax.TensorType):
        return operand
    value = bench.constant(operand)
    if value is not None:
        return _constant_in_blocks(value, lanes) if value.ndim <= 4 else None
    image = image_of(operand)
    if image is None or image.channels != output.channels or image.dtype != output.dtype:
        return None
    blocked = bench.block(operand)
    return blocked.variable if blocked else None


def _constant_in_blocks(value: Array, lanes: int) -> relax.Expr:
    wide = value.reshape((1,) * (4 - value.ndim) + value.shape)
    if wide.shape[1] == 1:
        return _constant(value if value.ndim == 0 else wide[..., np.newaxis])
    return _constant(pack_vector(wide, lanes))


def join(call: relax.Call, bench: Workbench) -> Blocked | None:
    """``concat`` of channels, all in blocks without a rest."""
    parts, output = _fields(call.args[0]), image_of(call)
    if output is None or call.attrs.axis is None or int(call.attrs.axis) % 4 != 1:
        return None
    lanes = bench.lanes(output.dtype)
    blocked = [bench.blocked(part) for part in parts]
    if not blocked or any(part is None or part.channels % lanes for part in blocked):
        return None
    variables = [part.variable for part in blocked if part is not None]
    return Blocked(bench.emit(relax.op.concat(variables, axis=1)), output.channels)


RULES: dict[str, Rule] = {
    "relax.nn.conv2d": convolve,
    "relax.nn.max_pool2d": pool,
    "relax.nn.avg_pool2d": pool,
    "relax.nn.adaptive_avg_pool2d": pool_adaptively,
    "relax.mean": average,
    "relax.concat": join,
    **{f"relax.{name}": map_elements for name in _ELEMENTWISE},
}
"""By the operator's name."""


def _window(attributes: Any, kernel: Sequence[Any], call: relax.Call) -> Window | None:
    output = image_of(call)
    if output is None:
        return None
    top, left, bottom, right = map(int, attributes.padding)
    return Window(
        kernel=_pair(kernel),
        strides=_pair(attributes.strides),
        dilation=_pair(attributes.dilation),
        before=(top, left),
        after=(bottom, right),
        output=(output.rows, output.columns),
    )


def _is_plain(attributes: Any) -> bool:
    layouts = (attributes.data_layout, attributes.kernel_layout, attributes.out_layout)
    return layouts == ("NCHW", "OIHW", "NCHW")


def _pair(values: Sequence[Any]) -> tuple[int, int]:
    rows, columns = map(int, values)
    return rows, columns


def _fields(operand: relax.Expr) -> tuple[relax.Expr, ...]:
    return tuple(operand.fields) if isinstance(operand, relax.Tuple) else ()


def _constant(values: Array) -> relax.Expr:
    return relax.const(values, str(values.dtype))
