"""Operators besides convolutions and pools that work on images in blocks."""

from __future__ import annotations

import numpy as np
import tvm_ffi
from tvm import relax

from worker.compiler.layout.convolution_types import Array, Blocked, BlockedGraph, Image, image_of
from worker.compiler.layout.convolution_weights import pack_vector
from worker.compiler.layout.views import Cut
from worker.compiler.schedules.nest import rows_of

ELEMENTWISE = (
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


def map_elements(call: relax.Call, bench: BlockedGraph) -> Blocked | None:
    """An elementwise operator of which an operand is in blocks."""
    output = image_of(call)
    if output is None or not any(bench.blocked(operand) for operand in call.args):
        return None
    lanes = bench.lanes(output.dtype)
    operands = [_in_blocks(operand, output, lanes, bench) for operand in call.args]
    if any(operand is None for operand in operands):
        return None
    return Blocked(bench.emit(relax.Call(call.op, operands, call.attrs)), output.channels, output.sizes)


def divide(call: relax.Call, bench: BlockedGraph) -> Blocked | None:
    """A division by numbers that are the same for all channels, so that none divides by a rest's zeros."""
    divisor = bench.constant(call.args[1])
    if bench.blocked(call.args[0]) is None or divisor is None:
        return None
    if divisor.ndim >= call.ty.ndim - 1 and divisor.shape[1 - call.ty.ndim] != 1:
        return None
    return map_elements(call, bench)


def cast(call: relax.Call, bench: BlockedGraph) -> Blocked | None:
    """``astype`` between dtypes whose blocks are equally wide."""
    data, output = bench.blocked(call.args[0]), image_of(call)
    if data is None or output is None or bench.lanes(output.dtype) != int(data.variable.ty.shape[4]):
        return None
    cast_blocks = bench.emit(relax.op.astype(data.variable, output.dtype))
    return Blocked(cast_blocks, data.channels, data.sizes)


def join(call: relax.Call, bench: BlockedGraph) -> Blocked | None:
    """``concat`` of channels, all in blocks without a rest."""
    output = image_of(call)
    if output is None or call.attrs.axis is None or int(call.attrs.axis) % call.ty.ndim != 1:
        return None
    lanes = bench.lanes(output.dtype)
    blocked = [bench.blocked(part) for part in _fields(call.args[0])]
    if not blocked or any(part is None or part.channels % lanes for part in blocked):
        return None
    variables = [part.variable for part in blocked if part is not None]
    joined = bench.emit(relax.op.concat(variables, axis=1))
    return Blocked(joined, output.channels, output.sizes)


def cut(value: relax.Expr, part: Cut, bench: BlockedGraph) -> Blocked | None:
    """A slice of channels, or a part of a split, that begins and ends between blocks."""
    data, output = bench.blocked(part.whole), image_of(value)
    if data is None or output is None or part.axis != 1:
        return None
    lanes = bench.lanes(output.dtype)
    end = part.first + output.channels
    if part.first % lanes or (end % lanes and end != data.channels):
        return None
    bounds = (part.first // lanes, -(-end // lanes))
    blocks = bench.emit(relax.op.strided_slice(data.variable, [1], *([bound] for bound in bounds)))
    return Blocked(blocks, output.channels, output.sizes)


def reshape(call: relax.Call, bench: BlockedGraph) -> Blocked | None:
    """A reshape that keeps batch and channels is a view of the blocks."""
    data, output = bench.blocked(call.args[0]), image_of(call)
    if data is None or output is None or output.channels != data.channels:
        return None
    batch, blocks, rows, columns, lanes = data.variable.ty.shape
    if not tvm_ffi.structural_equal(call.ty.shape[0], batch):
        return None
    variable, shape = data.variable, (rows_of(output.sizes), output.sizes[-1])
    if shape != (int(rows), int(columns)):
        variable = bench.emit(relax.op.reshape(variable, (batch, blocks, *shape, lanes)))
    return Blocked(variable, data.channels, output.sizes)


def _in_blocks(operand: relax.Expr, output: Image, lanes: int, bench: BlockedGraph) -> relax.Expr | None:
    """An operand in blocks; numbers and constants of one channel stay as they are."""
    if not isinstance(operand.ty, relax.TensorType):
        return operand
    value = bench.constant(operand)
    if value is not None:
        return _constant_in_blocks(value, output, lanes)
    image = image_of(operand)
    if image is None or image.channels != output.channels or bench.lanes(image.dtype) != lanes:
        return None
    if image.sizes != output.sizes and (len(image.sizes) != len(output.sizes) or set(image.sizes) != {1}):
        return None
    blocked = bench.block(operand)
    return blocked.variable if blocked else None


def _constant_in_blocks(value: Array, output: Image, lanes: int) -> relax.Expr | None:
    rank = len(output.sizes) + 2
    if value.ndim > rank:
        return None
    wide = value.reshape((1,) * (rank - value.ndim) + value.shape)
    rows = wide.shape[2:-1]
    if set(rows) != {1}:
        wide = np.broadcast_to(wide, (*wide.shape[:2], *output.sizes[:-1], wide.shape[-1]))
    if wide.shape[1] == 1:
        return _constant(value if value.ndim == 0 else wide.reshape(wide.shape[0], 1, -1, wide.shape[-1], 1))
    return _constant(pack_vector(wide, lanes))


def _fields(operand: relax.Expr) -> tuple[relax.Expr, ...]:
    return tuple(operand.fields) if isinstance(operand, relax.Tuple) else ()


def _constant(values: Array) -> relax.Expr:
    return relax.const(np.ascontiguousarray(values), str(values.dtype))
