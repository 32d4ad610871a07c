"""Convolutions in blocks, transposed ones too, of images of one to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from worker.compiler.layout import convolution_kernels as kernels
from worker.compiler.layout.convolution_packing import (
    Packing,
    pack_constant,
    pack_depthwise_tensor,
    pack_tensor,
)
from worker.compiler.layout.convolution_transposed import (
    TransposedWindow,
    transposed_convolution,
    transposed_depthwise,
)
from worker.compiler.layout.convolution_types import Blocked, BlockedGraph, Image, image_of
from worker.compiler.layout.convolution_weights import Groups, merged_groups, pack_depthwise
from worker.compiler.layout.convolution_window import Window
from worker.compiler.schedules.nest import rows_of

AnyWindow = Window | TransposedWindow

_LAYOUTS = {
    1: ("NCW", ("OIW", "IOW")),
    2: ("NCHW", ("OIHW", "IOHW")),
    3: ("NCDHW", ("OIDHW", "IODHW")),
}
"""By the image's dimensions: of data, and of weights for ordinary and transposed convolutions."""


@dataclass(frozen=True)
class _Convolution:
    """A convolution that a call asks for; ``outputs`` and ``groups.inputs`` count channels."""

    data: relax.Expr
    weights: relax.Expr
    image: Image
    output: Image
    window: AnyWindow
    groups: Groups

    @property
    def is_transposed(self) -> bool:
        return isinstance(self.window, TransposedWindow)

    @property
    def is_depthwise(self) -> bool:
        groups = self.groups
        return groups.count > 1 and groups.inputs == groups.outputs == 1


def convolve(call: relax.Call, bench: BlockedGraph) -> Blocked | None:
    """``nn.conv1d``, ``nn.conv2d``, ``nn.conv3d`` and their transposed kinds."""
    asked = _read(call)
    if asked is None or not _fits(asked):
        return None
    variable = _depthwise(asked, bench) if asked.is_depthwise else _dense(asked, bench)
    return None if variable is None else Blocked(variable, asked.output.channels, asked.output.sizes)


def _depthwise(asked: _Convolution, bench: BlockedGraph) -> relax.Var | None:
    data = bench.block(asked.data)
    if data is None:
        return None
    lanes, dtype = bench.lanes(asked.output.dtype), asked.output.dtype
    constant = bench.constant(asked.weights)
    weights = (
        bench.kernel(pack_depthwise_tensor(lanes, dtype), "pack_weights", asked.weights)
        if constant is None
        else relax.const(pack_depthwise(constant.astype(dtype), lanes), dtype)
    )
    kernel = (
        transposed_depthwise(asked.window)
        if isinstance(asked.window, TransposedWindow)
        else kernels.depthwise(asked.window)
    )
    return bench.kernel(kernel, _name(asked, "depthwise_"), _cast(data.variable, dtype, bench), weights)


def _dense(asked: _Convolution, bench: BlockedGraph) -> relax.Var:
    dtype, groups = asked.output.dtype, asked.groups
    lanes = bench.lanes(dtype)
    blocked = bench.blocked(asked.data)
    if blocked is None and (asked.image.channels >= 2 * lanes):
        blocked = bench.block(asked.data)
    merged = merged_groups(groups, lanes, blocked is not None)
    if merged is None:
        return _in_filled_groups(asked, bench)
    data = blocked.variable if blocked else _plain_rows(asked, bench)
    packing = Packing(groups, merged, lanes, blocked is not None, asked.is_transposed, dtype)
    return _call_dense(asked, data, packing, bench)


def _in_filled_groups(asked: _Convolution, bench: BlockedGraph) -> relax.Var:
    """Each group filled up to whole blocks, inputs and outputs; both are copied for that."""
    dtype, groups = asked.output.dtype, asked.groups
    lanes, blocked = bench.lanes(dtype), bench.block(asked.data)
    if blocked is None:
        raise ValueError("a convolution of what is no image")
    channels, outputs = asked.image.channels, asked.output.channels
    apart = kernels.regroup(lanes, channels, channels, groups.inputs)
    data = bench.kernel(apart, "regroup", blocked.variable)
    packing = Packing(groups, None, lanes, True, asked.is_transposed, dtype)
    result = _call_dense(asked, data, packing, bench)
    together = kernels.regroup(lanes, outputs, groups.outputs, outputs)
    return bench.kernel(together, "regroup", result)


def _call_dense(asked: _Convolution, data: relax.Expr, packing: Packing, bench: BlockedGraph) -> relax.Var:
    constant = bench.constant(asked.weights)
    weights = (
        bench.kernel(pack_tensor(packing), "pack_weights", asked.weights)
        if constant is None
        else relax.const(pack_constant(constant, packing), packing.dtype)
    )
    groups = packing.groups.count // packing.side_by_side
    kernel = (
        transposed_convolution(asked.window, groups)
        if isinstance(asked.window, TransposedWindow)
        else kernels.convolution(asked.window, groups)
    )
    return bench.kernel(kernel, _name(asked), _cast(data, packing.dtype, bench), weights)


def _name(asked: _Convolution, kind: str = "") -> str:
    return f"{'transposed_' if asked.is_transposed else ''}{kind}conv{len(asked.image.sizes)}d"


def _plain_rows(asked: _Convolution, bench: BlockedGraph) -> relax.Expr:
    """The plain image as ``[N, C, rows, columns]``."""
    data, sizes = bench.plain(asked.data), asked.image.sizes
    if len(sizes) == 2:
        return data
    shape = (data.ty.shape[0], asked.image.channels, rows_of(sizes), sizes[-1])
    return bench.emit(relax.op.reshape(data, shape))


def _cast(data: relax.Expr, dtype: str, bench: BlockedGraph) -> relax.Expr:
    return data if str(data.ty.dtype) == dtype else bench.emit(relax.op.astype(data, dtype))


def _read(call: relax.Call) -> _Convolution | None:
    data, weights, attributes = call.args[0], call.args[1], call.attrs
    image, output = image_of(data), image_of(call)
    if image is None or output is None or not _is_plain(attributes, len(image.sizes)):
        return None
    known = image_of(weights)
    if known is None or not isinstance(weights.ty.shape, relax.ShapeExpr):
        return None
    outer = int(weights.ty.shape[0])
    count = int(attributes.groups)
    is_transposed = hasattr(attributes, "output_padding")
    inputs, outputs = (outer, known.channels) if is_transposed else (known.channels, outer)
    groups = (
        Groups(count, inputs // count, outputs) if is_transposed else Groups(count, inputs, outputs // count)
    )
    window = (TransposedWindow if is_transposed else Window)(*_window(attributes, image, known.sizes, output))
    return _Convolution(data, weights, image, output, window, groups)


def _window(
    attributes: Any, image: Image, kernel: tuple[int, ...], output: Image
) -> tuple[tuple[int, ...], ...]:
    before, after = halves(attributes.padding)
    return (
        image.sizes,
        kernel,
        integers(attributes.strides),
        integers(attributes.dilation),
        before,
        after,
        output.sizes,
    )


def _fits(asked: _Convolution) -> bool:
    """Whether there is something to compute, in a dtype that holds both operands' values."""
    everything = (*asked.image.sizes, *asked.output.sizes, *asked.window.kernel, asked.image.channels)
    return min(everything) > 0 and asked.output.channels > 0


def halves(padding: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after."""
    values = integers(padding)
    return values[: len(values) // 2], values[len(values) // 2 :]


def integers(values: Sequence[Any]) -> tuple[int, ...]:
    """Attributes as numbers."""
    return tuple(int(value) for value in values)


def _is_plain(attributes: Any, dimensions: int) -> bool:
    data, weights = _LAYOUTS[dimensions]
    layouts = (attributes.data_layout, attributes.out_layout)
    return layouts == (data, data) and attributes.kernel_layout in weights
