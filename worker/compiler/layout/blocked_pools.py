"""Pools of images in blocks."""

from __future__ import annotations

from tvm import relax

from worker.compiler.layout import convolution_kernels as kernels
from worker.compiler.layout.convolution_operators import halves, integers
from worker.compiler.layout.convolution_types import FLOATS, Blocked, BlockedGraph, Image, image_of
from worker.compiler.layout.convolution_window import Window
from worker.compiler.schedules.nest import Sizes

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def pool(call: relax.Call, bench: BlockedGraph) -> Blocked | None:
    """``nn.max_pool…`` and ``nn.avg_pool…`` of an image in blocks."""
    data, window = bench.blocked(call.args[0]), window_of(call)
    if data is None or window is None:
        return None
    if "max_pool" in call.op.name:
        variable = bench.kernel(kernels.max_pool(window), "max_pool", data.variable)
        return Blocked(variable, data.channels, window.output)
    if str(call.ty.dtype) not in FLOATS or set(window.dilation) != {1}:
        return None
    kernel = kernels.average_pool(window, bool(call.attrs.count_include_pad))
    return Blocked(bench.kernel(kernel, "avg_pool", data.variable), data.channels, window.output)


def pool_adaptively(call: relax.Call, bench: BlockedGraph) -> Blocked | None:
    """``nn.adaptive_avg_pool…`` to a divisor of an image's size."""
    image, output = image_of(call.args[0]), image_of(call)
    if image is None or output is None or call.attrs.layout != _LAYOUTS[len(image.sizes)]:
        return None
    if any(size % wanted for size, wanted in zip(image.sizes, output.sizes, strict=True)):
        return None
    return _pool_evenly(call.args[0], image, output.sizes, bench)


def average(call: relax.Call, bench: BlockedGraph) -> Blocked | None:
    """``mean`` over all dimensions of an image, or over some."""
    image = image_of(call.args[0])
    axes = {int(axis) % call.args[0].ty.ndim for axis in call.attrs.axis or ()}
    if image is None or not axes or not axes.isdisjoint({0, 1}) or not call.attrs.keepdims:
        return None
    output = tuple(1 if axis + 2 in axes else size for axis, size in enumerate(image.sizes))
    return _pool_evenly(call.args[0], image, output, bench)


def _pool_evenly(operand: relax.Expr, image: Image, output: Sizes, bench: BlockedGraph) -> Blocked | None:
    data = bench.blocked(operand)
    if data is None or image.dtype not in FLOATS:
        return None
    taps = tuple(size // wanted for size, wanted in zip(image.sizes, output, strict=True))
    ones, zeros = (1,) * len(taps), (0,) * len(taps)
    window = Window(image.sizes, taps, taps, ones, zeros, zeros, output)
    kernel = kernels.average_pool(window, counts_border=False)
    return Blocked(bench.kernel(kernel, "avg_pool", data.variable), data.channels, output)


def window_of(call: relax.Call) -> Window | None:
    """How a pool's window slides; None where the image has open sizes or another layout."""
    attributes, image, output = call.attrs, image_of(call.args[0]), image_of(call)
    if image is None or output is None or attributes.layout != _LAYOUTS[len(image.sizes)]:
        return None
    return Window(
        image.sizes,
        integers(attributes.pool_size),
        integers(attributes.strides),
        integers(attributes.dilation),
        *halves(attributes.padding),
        output.sizes,
    )
