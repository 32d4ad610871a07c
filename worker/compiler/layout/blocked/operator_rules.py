"""Rules for the operators that work on blocks besides convolutions.

An elementwise operator applies to the blocks unchanged; constants of one number per channel are put in blocks
at compile time. ``concat`` along channels joins blocks. Slices of whole blocks are slices; other slices, and
shuffles of channels, only say in which slots the channels lie. A pool, or a mean over pixels, becomes a
kernel of ``compute``. A product reads a flattened image in the order of the blocks, by constant weights whose
rows are in the same order. A rule returns None where the plain tensor must be read.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import tvm_ffi
from tvm import relax

from worker.compiler.layout.blocked import compute
from worker.compiler.layout.blocked.activation import activation_of
from worker.compiler.layout.blocked.blocked_graph import MOST_SPARE, Array, Blocked, BlockedGraph, Postponed
from worker.compiler.layout.blocked.weight_packing import pack_vector, spread_channels
from worker.compiler.layout.constants import constant_of
from worker.compiler.layout.images import AVERAGED, IMAGE_LAYOUTS, Image, Window, image_of, pool_window_of
from worker.compiler.layout.relax_graph import static_shape
from worker.compiler.layout.views import Cut
from worker.compiler.schedules.nest import Sizes, rows_of

ELEMENTWISE = (
    "abs",
    "add",
    "ceil",
    "clip",
    "floor",
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
    "round",
    "sigmoid",
    "subtract",
    "tanh",
    "trunc",
)
"""Operators whose results stay finite on the lanes past the last channel."""


def map_elements(call: relax.Call, graph: BlockedGraph) -> Blocked | None:
    """Apply an elementwise operator if at least one operand is in blocks."""
    output = image_of(call, may_be_open=True)
    if output is None or not any(graph.spread(operand) for operand in call.args):
        return None
    lanes, like = graph.lanes(output.dtype), _common_slots(call, graph)
    operands = [_in_blocks(operand, output, lanes, graph, like) for operand in call.args]
    if any(operand is None for operand in operands):
        return None
    slots = None if like is None else like.slots
    return Blocked(
        graph.emit_result(relax.Call(call.op, operands, call.attrs)), output.channels, output.sizes, slots
    )


def _common_slots(call: relax.Call, graph: BlockedGraph) -> Blocked | None:
    """An operand whose slots all tensors of a call share; None if they must be without gaps."""
    tensors = [operand for operand in call.args if isinstance(operand.ty, relax.TensorType)]
    found = [graph.compact(operand) for operand in tensors if graph.constant(operand) is None]
    known = [operand for operand in found if operand is not None]
    if len(known) != len(found) or known[0].slots is None:
        return None
    are_alike = all((one.slots, one.blocks) == (known[0].slots, known[0].blocks) for one in known)
    return known[0] if are_alike else None


def divide(call: relax.Call, graph: BlockedGraph) -> Blocked | None:
    """Divide by numbers that are equal for all channels: others would be padded with zeros."""
    divisor = graph.constant(call.args[1])
    if graph.spread(call.args[0]) is None or divisor is None:
        return None
    if divisor.ndim >= call.ty.ndim - 1 and divisor.shape[1 - call.ty.ndim] != 1:
        return None
    return map_elements(call, graph)


def cast(call: relax.Call, graph: BlockedGraph) -> Blocked | None:
    """Cast between dtypes whose blocks have equally many lanes."""
    data, output = graph.compact(call.args[0]), image_of(call, may_be_open=True)
    if data is None or output is None or graph.lanes(output.dtype) != data.lanes:
        return None
    cast_blocks = graph.emit_result(relax.op.astype(data.variable, output.dtype))
    return replace(data, variable=cast_blocks)


def join(call: relax.Call, graph: BlockedGraph) -> Blocked | None:
    """Join channels; parts that do not fill their last block leave gaps between the channels."""
    output = image_of(call, may_be_open=True)
    if output is None or call.attrs.axis is None or int(call.attrs.axis) % call.ty.ndim != 1:
        return None
    found = [graph.spread(part) for part in _fields(call.args[0])]
    if not found or not all(part is not None and _may_be_joined(part) for part in found):
        return None
    parts = [part for part in map(graph.compact, _fields(call.args[0])) if part is not None]
    joined = graph.emit_result(relax.op.concat([part.variable for part in parts], axis=1))
    slots, first = list[int](), 0
    for part in parts:
        slots += [first + place for place in part.places]
        first += part.blocks * part.lanes
    return Blocked(joined, output.channels, output.sizes).with_slots(tuple(slots))


def _may_be_joined(part: Blocked) -> bool:
    """Whether a part leaves no gap, or gaps in a tensor whose shape is known, which may be copied later."""
    return part.has_known_shape or (part.slots is None and part.channels == part.blocks * part.lanes)


def cut(value: relax.Expr, part: Cut, graph: BlockedGraph) -> Blocked | None:
    """Take a slice of channels, or a part of a split; without a copy if it is not whole blocks."""
    data, output = graph.spread(part.whole), image_of(value)
    if data is None or output is None or part.axis != 1:
        return None
    lanes, end = data.lanes, part.first + output.channels
    if data.slots is None and not part.first % lanes and (not end % lanes or end == data.channels):
        bounds = (part.first // lanes, -(-end // lanes))
        blocks = graph.emit_result(relax.op.strided_slice(data.variable, [1], *([bound] for bound in bounds)))
        return Blocked(blocks, output.channels, output.sizes)
    return data.with_slots(data.places[part.first : end]) if data.has_known_shape else None


def split(call: relax.Call, graph: BlockedGraph) -> Postponed | None:
    """Postpone a split of channels, whose parts are ``cut``."""
    data = graph.spread(call.args[0])
    if data is None or int(call.attrs.axis) % call.args[0].ty.ndim != 1 or not data.has_known_shape:
        return None
    return Postponed(data)


def permute(call: relax.Call, graph: BlockedGraph) -> Postponed | None:
    """Exchange the two dimensions that a reshape has made of the channels, as a shuffle of channels does."""
    data = graph.postponed(call.args[0])
    if data is None or data.slots is None or not call.attrs.axes:
        return None
    if [int(axis) for axis in call.attrs.axes] != [0, 2, 1, *range(3, call.ty.ndim)]:
        return None
    return Postponed(data.data, data.slots.T)


def reshape(call: relax.Call, graph: BlockedGraph) -> Blocked | Postponed | None:
    """Reshape the sizes of an image, or its channels, or flatten both; its batch stays the same."""
    if call.ty.ndim == 0:
        return None
    data, output = graph.spread(call.args[0]), image_of(call)
    if data is not None and _is_flat(call, data):
        return Postponed(data)
    if data is None or output is None or output.channels != data.channels or data.is_open:
        return _reshape_channels(call, graph)
    batch, blocks, rows, columns, lanes = data.variable.ty.shape
    if not tvm_ffi.structural_equal(call.ty.shape[0], batch):
        return None
    variable, shape = data.variable, (rows_of(output.sizes), output.sizes[-1])
    if shape != (int(rows), int(columns)):
        variable = graph.emit_result(relax.op.reshape(variable, (batch, blocks, *shape, lanes)))
    return replace(data, variable=variable, sizes=output.sizes)


def _is_flat(operand: relax.Expr, data: Blocked) -> bool:
    """Whether an operand holds an image in one row for each batch."""
    batch, *sizes = operand.ty.shape
    if data.is_open:
        return False
    size = data.channels * prod(data.sizes)
    return sizes == [size] and tvm_ffi.structural_equal(batch, data.variable.ty.shape[0])


def multiply_flat(call: relax.Call, graph: BlockedGraph) -> relax.Expr | None:
    """Multiply a flattened image by a constant matrix whose rows are put in the order of the blocks.

    The rows of lanes without a channel are zeros. Where there are many, the image is copied instead.
    """
    flat, weights = graph.postponed(call.args[0]), graph.constant(call.args[1])
    if flat is None or weights is None or weights.ndim != 2 or not _is_flat(call.args[0], flat.data):
        return None
    data = flat.data
    depth, pixels = data.blocks * data.lanes, prod(data.sizes)
    if data.slots is not None or depth > (1 + MOST_SPARE) * data.channels:
        return None
    by_channel = weights.reshape(data.channels, pixels, -1)
    spread = spread_channels(by_channel, 0, data.places, depth).reshape(data.blocks, data.lanes, pixels, -1)
    rows = spread.swapaxes(1, 2).reshape(depth * pixels, -1)
    image = relax.op.reshape(data.variable, (data.variable.ty.shape[0], depth * pixels))
    return relax.op.matmul(graph.emit(image), constant_of(rows), call.attrs.out_dtype)


def _reshape_channels(call: relax.Call, graph: BlockedGraph) -> Blocked | Postponed | None:
    """Lay channels in two dimensions, or in one again."""
    shape, known = static_shape(call), graph.postponed(call.args[0])
    data = graph.spread(call.args[0]) if known is None else known.data
    if (
        shape is None
        or data is None
        or not data.has_known_shape
        or shape[0] != int(data.variable.ty.shape[0])
    ):
        return None
    if known is None and shape[3:] == data.sizes and shape[1] * shape[2] == data.channels:
        return Postponed(data, np.array(data.places).reshape(shape[1:3]))
    if known is None or known.slots is None or shape[1:] != (known.slots.size, *data.sizes):
        return None
    return data.with_slots(tuple(map(int, known.slots.ravel())))


def _in_blocks(
    operand: relax.Expr, output: Image, lanes: int, graph: BlockedGraph, like: Blocked | None
) -> relax.Expr | None:
    """An operand in blocks, with the slots of ``like``; scalars and constants of one channel stay."""
    if not isinstance(operand.ty, relax.TensorType):
        return operand
    value = graph.constant(operand)
    if value is not None:
        return _constant_in_blocks(value, output, lanes, like)
    image = image_of(operand, may_be_open=True)
    if image is None or image.channels != output.channels or graph.lanes(image.dtype) != lanes:
        return None
    if image.sizes != output.sizes and (len(image.sizes) != len(output.sizes) or set(image.sizes) != {1}):
        return None
    blocked = graph.block(operand) if like is None else graph.compact(operand)
    return blocked.variable if blocked else None


def _constant_in_blocks(value: Array, output: Image, lanes: int, like: Blocked | None) -> relax.Expr | None:
    rank = len(output.sizes) + 2
    if value.ndim > rank:
        return None
    wide = value.reshape((1,) * (rank - value.ndim) + value.shape)
    rows = wide.shape[2:-1]
    if set(rows) != {1}:
        if output.is_open:
            return None
        wide = np.broadcast_to(wide, (*wide.shape[:2], *output.sizes[:-1], wide.shape[-1]))
    if wide.shape[1] == 1:
        in_blocks = (wide.shape[0], 1, -1, wide.shape[-1], 1)
        return constant_of(value.reshape(1) if value.ndim == 0 else wide.reshape(in_blocks))
    if like is not None:
        wide = spread_channels(wide, 1, like.places, like.blocks * lanes)
    return constant_of(pack_vector(wide, lanes))


def _fields(operand: relax.Expr) -> tuple[relax.Expr, ...]:
    return tuple(operand.fields) if isinstance(operand, relax.Tuple) else ()


def pool(call: relax.Call, graph: BlockedGraph) -> Blocked | None:
    """Compute ``nn.max_pool…`` and ``nn.avg_pool…``."""
    data, window = graph.compact(call.args[0]), pool_window_of(call)
    if data is None or window is None:
        return None
    if "max_pool" in call.op.name:
        variable = graph.kernel(compute.max_pool(window), "max_pool", data.variable)
        return Blocked(variable, data.channels, window.output, data.slots)
    if str(call.ty.dtype) not in AVERAGED or set(window.dilation) != {1}:
        return None
    activation = activation_of(data.variable, graph) if window.kernel == window.strides else None
    if activation is not None and not any(map(any, window.border)) and set(window.after) == {0}:
        variable = graph.kernel(compute.activated_average(window), "avg_pool", *activation)
    else:
        kernel = compute.average_pool(window, bool(call.attrs.count_include_pad))
        variable = graph.kernel(kernel, "avg_pool", data.variable)
    return Blocked(variable, data.channels, window.output, data.slots)


def pool_adaptively(call: relax.Call, graph: BlockedGraph) -> Blocked | None:
    """Compute ``nn.adaptive_avg_pool…`` to sizes that divide the image's."""
    image, output = image_of(call.args[0]), image_of(call)
    if image is None or output is None or call.attrs.layout != IMAGE_LAYOUTS[len(image.sizes)]:
        return None
    if any(size % wanted for size, wanted in zip(image.sizes, output.sizes, strict=True)):
        return None
    return _pool_evenly(call.args[0], image, output.sizes, graph)


def average(call: relax.Call, graph: BlockedGraph) -> Blocked | None:
    """Compute ``mean`` over some or all sizes of an image."""
    image = image_of(call.args[0])
    axes = {int(axis) % call.args[0].ty.ndim for axis in call.attrs.axis or ()}
    if image is None or not axes or not axes.isdisjoint({0, 1}) or not call.attrs.keepdims:
        return None
    output = tuple(1 if axis + 2 in axes else size for axis, size in enumerate(image.sizes))
    return _pool_evenly(call.args[0], image, output, graph)


def _pool_evenly(operand: relax.Expr, image: Image, output: Sizes, graph: BlockedGraph) -> Blocked | None:
    data = graph.compact(operand)
    if data is None or image.dtype not in AVERAGED:
        return None
    taps = tuple(size // wanted for size, wanted in zip(image.sizes, output, strict=True))
    ones, zeros = (1,) * len(taps), (0,) * len(taps)
    window = Window(image.sizes, taps, taps, ones, zeros, zeros, output)
    kernel = compute.average_pool(window, counts_border=False)
    return Blocked(graph.kernel(kernel, "avg_pool", data.variable), data.channels, output, data.slots)
