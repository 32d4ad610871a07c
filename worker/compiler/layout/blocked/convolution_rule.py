"""The rule for ``nn.conv1d`` to ``nn.conv3d`` and their transposed forms, in blocks.

    dense       image in blocks, or plain with fewer than two blocks of channels; see ``compute.convolution``
    depthwise   one input and one output channel per group; weights ``[C / lanes, *taps, lanes]``
    3x3 or 3    dense ones of stride 1 by Winograd's algorithm if that is faster; see ``winograd``
    grouped     several groups share the vectors of a bundle; see ``grouped``
    otherwise   a few groups merge into one with zeros between them, so that each starts at a first lane
    or          ``regroup`` copies inputs and outputs so that each group fills whole blocks

``prefers_bundles`` decides between bundles and the others, ``weight_packing.merged_groups`` between merging
and copying. Bundles need constant weights, and sequences or images of two dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf, prod
from typing import Any

from tvm import relax, tirx

from worker.compiler.layout.blocked import compute
from worker.compiler.layout.blocked.activation import Activation, activation_of
from worker.compiler.layout.blocked.blocked_graph import Array, Blocked, BlockedGraph
from worker.compiler.layout.blocked.compute_transposed import (
    TransposedWindow,
    transposed_convolution,
    transposed_depthwise,
)
from worker.compiler.layout.blocked.grouped import grouped_convolution, pack_grouped
from worker.compiler.layout.blocked.weight_packing import (
    Groups,
    Packing,
    merged_groups,
    pack_constant,
    pack_depthwise,
    pack_depthwise_tensor,
    pack_tensor,
    spread_channels,
)
from worker.compiler.layout.blocked.winograd import pack_winograd, winograd, winograd_error
from worker.compiler.layout.images import HALVES, SUMS, Image, Window, halves, image_of, integers
from worker.compiler.schedules.families.convolution.bundles import Bundle, smallest_bundle
from worker.compiler.schedules.families.convolution.layers import DIRECT, Layer
from worker.compiler.schedules.families.convolution.winograd_plan import WinogradShape, faster_by_winograd
from worker.compiler.schedules.families.convolution.winograd_points import TAPS
from worker.compiler.schedules.nest import rows_of
from worker.compiler.schedules.processors import Machine

AnyWindow = Window | TransposedWindow

_GATHER_CYCLES = 3
"""Cycles for each vector that ``gather`` writes: two loads and a shuffle or two, and the store."""

_ROWS_PER_THREAD = 4
_LEAST_COLUMNS = 14
"""Images whose activation a convolution computes with each row: narrower ones need joined rows."""
_FLOAT_BYTES = 4

_LAYOUTS = {
    1: ("NCW", ("OIW", "IOW")),
    2: ("NCHW", ("OIHW", "IOHW")),
    3: ("NCDHW", ("OIDHW", "IODHW")),
}
"""By number of dimensions: the layout of data, and of weights, ordinary and transposed."""


@dataclass(frozen=True)
class _Convolution:
    """A convolution that a call asks for."""

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

    def packed_dtype(self, blocked: bool) -> str:
        """The dtype of packed dense weights: if the image is in blocks, kernels widen half precision."""
        own = str(self.weights.ty.dtype)
        return own if own in HALVES and blocked and not self.is_transposed else self.output.dtype


def convolve(call: relax.Call, graph: BlockedGraph) -> Blocked | None:
    """Compute a convolution in blocks."""
    conv = _read(call)
    if conv is None or not _fits(conv) or conv.output.dtype not in SUMS:
        return None
    if conv.is_depthwise:
        return _depthwise(conv, graph)
    return Blocked(_dense(conv, graph), conv.output.channels, conv.output.sizes)


def _depthwise(conv: _Convolution, graph: BlockedGraph) -> Blocked | None:
    constant = graph.constant(conv.weights)
    data = (graph.compact(conv.data) if constant is not None else None) or graph.block(conv.data)
    if data is None:
        return None
    lanes, dtype = graph.lanes(conv.output.dtype), conv.output.dtype
    if constant is not None and data.slots is not None:
        constant = spread_channels(constant, 0, data.slots, data.blocks * lanes)
    weights = (
        graph.kernel(pack_depthwise_tensor(lanes, dtype), "pack_weights", conv.weights)
        if constant is None
        else relax.const(pack_depthwise(constant.astype(dtype), lanes), dtype)
    )
    kernel = (
        transposed_depthwise(conv.window)
        if isinstance(conv.window, TransposedWindow)
        else compute.depthwise(conv.window)
    )
    result = graph.kernel(kernel, _name(conv, "depthwise_"), _cast(data.variable, dtype, graph), weights)
    return Blocked(result, conv.output.channels, conv.output.sizes, data.slots)


def _dense(conv: _Convolution, graph: BlockedGraph) -> relax.Var:
    conv = _with_gaps(conv, graph)
    groups, lanes = conv.groups, graph.lanes(conv.output.dtype)
    in_bundles = _in_bundles(conv, lanes, graph)
    if in_bundles is not None:
        return in_bundles
    blocked = graph.spread(conv.data)
    if blocked is None and (conv.image.channels >= 2 * lanes):
        blocked = graph.block(conv.data)
    merged = merged_groups(groups, lanes, blocked is not None)
    if merged is None:
        return _in_filled_groups(conv, graph)
    data = blocked.variable if blocked else _plain_rows(conv, graph)
    dtype = conv.packed_dtype(blocked is not None)
    packing = Packing(groups, merged, lanes, blocked is not None, conv.is_transposed, dtype)
    return _call_dense(conv, data, packing, graph)


def _with_gaps(conv: _Convolution, graph: BlockedGraph) -> _Convolution:
    """A convolution that reads all slots of its image, if multiplying gaps by zero is cheaper than a copy.

    Otherwise the image is without gaps.
    """
    data, weights = graph.spread(conv.data), graph.constant(conv.weights)
    if data is None or data.slots is None or data.is_open:
        return conv
    if weights is None or conv.groups.count > 1 or conv.is_transposed or _copies(conv, data, graph.machine):
        graph.blocked(conv.data)
        return conv
    slots = data.blocks * data.lanes
    spread = spread_channels(weights, 1, data.slots, slots)
    return replace(
        conv,
        weights=relax.const(spread, str(spread.dtype)),
        image=conv.image._replace(channels=slots),
        groups=replace(conv.groups, inputs=slots),
    )


def _copies(conv: _Convolution, data: Blocked, machine: Machine) -> bool:
    """Whether collecting the channels takes less time than multiplying the gaps between them."""
    if not data.spare_blocks:
        return False
    blocks = -(-conv.output.channels // data.lanes)
    added = data.spare_blocks * data.lanes * prod(conv.window.kernel) * blocks * prod(conv.output.sizes)
    return added / machine.fma_ports > _GATHER_CYCLES * (data.blocks - data.spare_blocks) * prod(data.sizes)


def _in_bundles(conv: _Convolution, lanes: int, graph: BlockedGraph) -> relax.Var | None:
    """Compute several groups in each vector, if that is less work and the family fits."""
    constant, window, groups = graph.constant(conv.weights), conv.window, conv.groups
    if groups.count == 1 or constant is None or not isinstance(window, Window) or len(window.image) > 2:
        return None
    if conv.image.is_open:
        return None
    is_plain = graph.blocked(conv.data) is None and conv.image.channels < 2 * lanes
    bundle = smallest_bundle(groups.inputs, groups.outputs, lanes)
    if is_plain or graph.machine.scalable or not prefers_bundles(bundle, conv, graph.machine):
        return None
    data, dtype = graph.block(conv.data), conv.output.dtype
    if data is None:
        return None
    weights = relax.const(pack_grouped(constant.astype(dtype), bundle), dtype)
    kernel = grouped_convolution(window, bundle, groups.count)
    return graph.kernel(kernel, _name(conv, "grouped_"), _cast(data.variable, dtype, graph), weights)


def prefers_bundles(bundle: Bundle, conv: _Convolution, machine: Machine) -> bool:
    """Whether bundles take no more work than merged groups, and less memory than the family of dense ones.

    That family reads the weights of large groups less often.
    """
    groups, lanes = conv.groups, bundle.lanes
    weights = bundle.groups * bundle.outputs * bundle.inputs * prod(conv.window.kernel)
    if bundle.groups == 1:
        return weights * _FLOAT_BYTES <= machine.l2_bytes // 4
    merged = merged_groups(groups, lanes, blocked_input=True)
    vectors = ceil(groups.count / bundle.groups) * bundle.vectors
    return merged is None or vectors <= ceil(groups.count * groups.outputs / lanes) * merged


def _in_filled_groups(conv: _Convolution, graph: BlockedGraph) -> relax.Var:
    """Pad each group's inputs and outputs to whole blocks, which copies both."""
    groups = conv.groups
    lanes, blocked = graph.lanes(conv.output.dtype), graph.block(conv.data)
    if blocked is None:
        raise ValueError("the operand of a convolution is not an image")
    channels, outputs = conv.image.channels, conv.output.channels
    apart = compute.regroup(lanes, channels, channels, groups.inputs)
    data = graph.kernel(apart, "regroup", blocked.variable)
    packing = Packing(groups, None, lanes, True, conv.is_transposed, conv.packed_dtype(blocked=True))
    result = _call_dense(conv, data, packing, graph)
    together = compute.regroup(lanes, outputs, groups.outputs, outputs)
    return graph.kernel(together, "regroup", result)


def _call_dense(conv: _Convolution, data: relax.Expr, packing: Packing, graph: BlockedGraph) -> relax.Var:
    constant = graph.constant(conv.weights)
    layer = _layer(conv, data, packing, graph) if constant is not None else None
    shape = None if layer is None or constant is None else _winograd_shape(layer, constant, graph)
    if shape is not None and layer is not None and constant is not None and isinstance(conv.window, Window):
        transformed = relax.const(
            pack_winograd(constant, shape.side, shape.lanes, shape.blocks), packing.dtype
        )
        return graph.kernel(
            winograd(conv.window, shape.side, layer), f"{_name(conv)}_winograd", data, transformed
        )
    weights = (
        graph.kernel(pack_tensor(packing), "pack_weights", conv.weights)
        if constant is None
        else relax.const(pack_constant(constant, packing), packing.dtype)
    )
    activation = _activation(conv, data, packing, graph)
    if activation is not None and isinstance(conv.window, Window):
        return graph.kernel(compute.activated_convolution(conv.window), _name(conv), *activation, weights)
    groups = packing.groups.count // packing.side_by_side
    dtype = conv.output.dtype
    both = {conv.image.dtype, str(conv.weights.ty.dtype)}
    factors = conv.image.dtype if len(both) == 1 and dtype == "float32" and both <= HALVES else None
    kernel = (
        transposed_convolution(conv.window, groups)
        if isinstance(conv.window, TransposedWindow)
        else compute.convolution(conv.window, groups, layer, factors)
    )
    return graph.kernel(kernel, _name(conv), _cast(data, dtype, graph), weights)


def _activation(
    conv: _Convolution, data: relax.Expr, packing: Packing, graph: BlockedGraph
) -> Activation | None:
    """What activates the image, if that is computed a row at a time.

    That needs rows enough for all threads, and weights that stay in the cache while rows change.
    """
    if not graph.choices.activates or conv.image.is_open:
        return None
    window, machine = conv.window, graph.machine
    rows, columns = rows_of(conv.output.sizes), conv.output.sizes[-1]
    weights = prod((conv.output.channels, *map(int, list(data.ty.shape)[1::3]))) * _FLOAT_BYTES
    if packing.dtype != "float32" or not isinstance(window, Window):
        return None
    if {*window.kernel, *window.strides} != {1} or window.image != window.output:
        return None
    if packing.groups.count > 1 or not packing.blocked_input:
        return None
    if (
        conv.image.dtype != packing.dtype
        or rows < _ROWS_PER_THREAD * machine.threads
        or columns < _LEAST_COLUMNS
    ):
        return None
    if weights > machine.l2_bytes // 2:
        return None
    return activation_of(data, graph)


def _layer(conv: _Convolution, data: relax.Expr, packing: Packing, graph: BlockedGraph) -> Layer | None:
    """The layer among whose algorithms a search may choose; None if only the direct one is possible."""
    if graph.winograd_error == 0 or conv.image.is_open or not _fits_winograd(conv, packing):
        return None
    batch, channels, height, width, lanes = data.ty.shape
    images = batch if isinstance(batch, tirx.IntImm) else 1
    outputs = -(-conv.output.channels // packing.lanes)
    sizes = conv.output.sizes
    numbers = (images, channels, height, width, outputs, rows_of(sizes), sizes[-1], lanes)
    return Layer(*map(int, (*numbers, len(sizes))))


def _winograd_shape(layer: Layer, weights: Array, graph: BlockedGraph) -> WinogradShape | None:
    """The tiles of Winograd's algorithm if a search wants them or they are expected to be faster.

    They must be exact enough. Where the search's choice is not, the processor's model chooses.
    """
    wanted = graph.choices.sides.get(layer)
    if wanted == DIRECT:
        return None
    expected = faster_by_winograd(layer.direct, graph.machine)
    chosen = faster_by_winograd(layer.direct, graph.machine, inf) if wanted is not None else ()
    return next(
        (
            shape
            for shape in (*(shape for shape in chosen if shape.side == wanted), *expected)
            if winograd_error(weights, shape.side) <= graph.winograd_error
        ),
        None,
    )


def _fits_winograd(conv: _Convolution, packing: Packing) -> bool:
    """Whether a convolution has the taps and the layout that Winograd's algorithm is written for."""
    window = conv.window
    return (
        isinstance(window, Window)
        and packing.groups.count == 1
        and packing.blocked_input
        and packing.dtype == conv.image.dtype == "float32"
        and window.kernel in ((TAPS,), (TAPS, TAPS))
        and {*window.strides, *window.dilation} == {1}
        and max(*window.before, *window.after) < TAPS
    )


def _name(conv: _Convolution, kind: str = "") -> str:
    return f"{'transposed_' if conv.is_transposed else ''}{kind}conv{len(conv.image.sizes)}d"


def _plain_rows(conv: _Convolution, graph: BlockedGraph) -> relax.Expr:
    """The plain image as ``[N, C, rows, columns]``."""
    data, sizes = graph.plain(conv.data), conv.image.sizes
    if len(sizes) == 2:
        return data
    shape = (data.ty.shape[0], conv.image.channels, rows_of(sizes), data.ty.shape[-1])
    return graph.emit(relax.op.reshape(data, shape))


def _cast(data: relax.Expr, dtype: str, graph: BlockedGraph) -> relax.Expr:
    return data if str(data.ty.dtype) == dtype else graph.emit(relax.op.astype(data, dtype))


def _read(call: relax.Call) -> _Convolution | None:
    data, weights, attributes = call.args[0], call.args[1], call.attrs
    is_transposed = hasattr(attributes, "output_padding")
    image, output = (image_of(each, may_be_open=not is_transposed) for each in (data, call))
    if image is None or output is None or not _is_plain(attributes, len(image.sizes)):
        return None
    known = image_of(weights)
    if known is None or not isinstance(weights.ty.shape, relax.ShapeExpr):
        return None
    outer = int(weights.ty.shape[0])
    count = int(attributes.groups)
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


def _fits(conv: _Convolution) -> bool:
    """Whether no size is 0."""
    sizes = () if conv.image.is_open else (*conv.image.sizes, *conv.output.sizes)
    everything = (*sizes, *conv.window.kernel, conv.image.channels)
    return min(everything) > 0 and conv.output.channels > 0


def _is_plain(attributes: Any, dimensions: int) -> bool:
    data, weights = _LAYOUTS[dimensions]
    layouts = (attributes.data_layout, attributes.out_layout)
    return layouts == (data, data) and attributes.kernel_layout in weights
