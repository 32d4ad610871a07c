"""Recurrent layers: a product of all steps with the inputs' weights, then one loop over the steps.

::

    for layer in layers:
        inputs = data · input_weightsᵀ + biases             # both directions, all steps
        data, hidden, kept = recurrence(inputs, weights, …)   # one function, schedules/recurrence

torch decomposes these operators into a graph with every step written out. On packed sequences, each row stops
at its own length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from worker.compiler.schedules.annotations import LANES
from worker.compiler.schedules.gpu.chips import current_gpu
from worker.compiler.schedules.processors import current_machine
from worker.compiler.schedules.recurrence.cells import GRU, LSTM, RNN_RELU, RNN_TANH, Cell
from worker.compiler.schedules.recurrence.layer import kinds_of, write_recurrence
from worker.compiler.schedules.recurrence.plan import Recurrence, Tiling, plan_for_gpu, plan_recurrence
from worker.compiler.translation.dtypes import wide
from worker.compiler.translation.emitter import Emitter, dtype_of, fixed, shape_of
from worker.compiler.translation.rule import Rules, rules_of

STATES = ("first_hidden", "first_kept")


@dataclass(frozen=True)
class _Weights:
    """The tensors of one layer, one for each direction. Biases and projections may be absent."""

    of_inputs: list[Any]
    of_hidden: list[Any]
    input_bias: list[Any]
    hidden_bias: list[Any]
    projection: list[Any]


@dataclass(frozen=True)
class _Network:
    """What the operator says about all layers."""

    emit: Emitter
    cell: Cell
    directions: int
    batch_first: bool
    dtype: str
    lengths: relax.Expr | None = None


def _layers(
    network: _Network, data: relax.Expr, first: Sequence[relax.Expr], layers: Sequence[_Weights]
) -> tuple[relax.Expr, ...]:
    """The outputs, and the last states of all layers. Equal layers share a function."""
    emit, dtype = network.emit, dtype_of(data)
    data, *states = (emit.cast(tensor, network.dtype) for tensor in (data, *first))
    last: list[list[relax.Expr]] = [[] for _ in states]
    for number, weights in enumerate(layers):
        own = [_of_layer(emit, state, number, network.directions) for state in states]
        data, *after = _layer(network, data, own, weights)
        for joined, state in zip(last, after, strict=True):
            joined.append(state)
    results = [data, *(parts[0] if len(parts) == 1 else emit(relax.op.concat(parts, 0)) for parts in last)]
    return tuple(emit.cast(tensor, dtype) for tensor in results)


def _of_layer(emit: Emitter, states: relax.Expr, layer: int, directions: int) -> relax.Expr:
    if shape_of(states)[0] == directions:
        return states
    begin, end = layer * directions, (layer + 1) * directions
    return emit(relax.op.strided_slice(states, [0], [begin], [end]))


def _asked(network: _Network, data: relax.Expr, weights: _Weights) -> Recurrence:
    batch, length = _sizes(network, data)
    rows, depth = fixed(shape_of(weights.of_hidden[0]), "a recurrent layer")
    return Recurrence(
        cell=network.cell,
        directions=network.directions,
        units=rows // network.cell.gates,
        projected=depth if weights.projection else None,
        length=length if isinstance(length, int) else None,
        batch=batch if isinstance(batch, int) else None,
        batch_first=network.batch_first,
        has_lengths=network.lengths is not None,
        dtype=network.dtype,
    )


def _sizes(network: _Network, data: relax.Expr) -> tuple[Any, Any]:
    """The batch and the length."""
    one, other, _ = shape_of(data)
    return (one, other) if network.batch_first else (other, one)


def _layer(
    network: _Network, data: relax.Expr, first: list[relax.Expr], weights: _Weights
) -> list[relax.Expr]:
    """One layer's outputs and last states."""
    emit, cell = network.emit, network.cell
    asked = _asked(network, data, weights)
    on_gpu = current_gpu() is not None
    plan = plan_for_gpu(asked) if on_gpu else plan_recurrence(asked, current_machine())
    batch, length = _sizes(network, data)
    kinds = kinds_of(asked, plan, length, batch)
    biases, inner = _biases(network, asked, weights)
    tensors = {
        "inputs": _inputs(network, data, weights, biases),
        "weights": _packed(network, weights.of_hidden, cell.gates, plan.units),
        "inner_bias": inner,
        **dict(zip(STATES, first, strict=False)),
    }
    if network.lengths is not None:
        tensors["lengths"] = network.lengths
    if plan.projected is not None:
        tensors["projection"] = _packed(network, weights.projection, 1, plan.projected)
    operands = [emit(relax.op.reshape(tensors[name], shape)) for name, (shape, _) in kinds.inputs.items()]
    function = write_recurrence(asked, plan)
    if on_gpu:
        function = function.with_attr(
            LANES, max(plan.units.lanes, plan.projected.lanes if plan.projected else 1)
        )
    outputs, *after = emit.call_loops(function, cell.name, operands, kinds.results.values())
    joined = (*shape_of(data)[:2], network.directions * asked.outputs)
    return [emit(relax.op.reshape(outputs, joined)), *after]


def _inputs(network: _Network, data: relax.Expr, weights: _Weights, biases: relax.Expr | None) -> relax.Expr:
    """The products of all inputs, and the biases."""
    emit = network.emit
    of_inputs = emit(relax.op.permute_dims(_joined(network, weights.of_inputs)))
    products = emit(relax.op.matmul(data, of_inputs))
    if biases is None:
        return products
    return emit(relax.op.add(products, emit(relax.op.reshape(biases, (shape_of(products)[-1],)))))


def _biases(
    network: _Network, asked: Recurrence, weights: _Weights
) -> tuple[relax.Expr | None, relax.Expr | None]:
    """The biases ``[directions, gates, units]``, and those that a cell adds on its own."""
    emit, cell, count = network.emit, network.cell, network.directions
    if not weights.input_bias:
        return None, emit.full((count, asked.units), 0.0, network.dtype)
    of_inputs, of_hidden = (
        emit(relax.op.reshape(_joined(network, tensors), (count, cell.gates, asked.units)))
        for tensors in (weights.input_bias, weights.hidden_bias)
    )
    if cell.inner is None:
        return emit(relax.op.add(of_inputs, of_hidden)), None
    inner = emit(relax.op.strided_slice(of_hidden, [1], [cell.inner], [cell.inner + 1]))
    early = relax.const(np.arange(cell.gates)[:, None] != cell.inner, network.dtype)
    return emit(relax.op.add(of_inputs, emit(relax.op.multiply(of_hidden, early)))), inner


def _joined(network: _Network, tensors: list[relax.Expr]) -> relax.Expr:
    """The directions' tensors, one after another."""
    emit = network.emit
    same = [emit.cast(tensor, network.dtype) for tensor in tensors]
    return same[0] if len(same) == 1 else emit(relax.op.concat(same, 0))


def _packed(network: _Network, matrices: list[relax.Expr], gates: int, tiling: Tiling) -> relax.Expr:
    """Matrices ``[gates * units, depth]`` as ``[matrices, tiles, depth, gates, units of a tile]``."""
    emit, count = network.emit, len(matrices)
    (depth,) = fixed(shape_of(matrices[0])[1:], "a recurrent layer")
    stacked = emit(relax.op.reshape(_joined(network, matrices), (count, gates, tiling.size, depth)))
    if tiling.units != tuple(range(tiling.size)):
        stacked = emit(relax.op.take(stacked, relax.const(np.array(tiling.units)), 2))
    parts = relax.op.reshape(stacked, (count, gates, tiling.count, tiling.width, depth))
    return emit(relax.op.permute_dims(emit(parts), (0, 2, 4, 1, 3)))


def _by_layer(
    tensors: Sequence[relax.Expr], layers: int, directions: int, has_biases: bool
) -> list[_Weights]:
    """Torch's flat list of parameters: layers of directions of tensors."""
    size = len(tensors) // (layers * directions)
    biases = 2 if has_biases else 0

    def of(layer: int) -> _Weights:
        start = layer * directions * size
        own = [tensors[start + index * size : start + (index + 1) * size] for index in range(directions)]
        columns = [list(column) for column in zip(*own, strict=True)]
        return _Weights(
            of_inputs=columns[0],
            of_hidden=columns[1],
            input_bias=columns[2] if has_biases else [],
            hidden_bias=columns[3] if has_biases else [],
            projection=columns[2 + biases] if size > 2 + biases else [],
        )

    return list(map(of, range(layers)))


def _rule(cell: Cell) -> Any:
    """The rule of a cell's operator, which takes one state, or a list of those of the cell."""

    def translate(
        emit: Emitter,
        data: relax.Expr,
        first: relax.Expr | Sequence[relax.Expr],
        weights: Sequence[relax.Expr],
        has_biases: bool,
        num_layers: int,
        _dropout: float,
        _train: bool,
        bidirectional: bool,
        batch_first: bool,
        lengths: relax.Expr | None = None,
    ) -> tuple[relax.Expr, ...]:
        directions = 1 + bidirectional
        network = _Network(emit, cell, directions, batch_first, wide(dtype_of(data)), lengths)
        states = [first] if isinstance(first, relax.Expr) else first
        return _layers(network, data, states, _by_layer(weights, num_layers, directions, has_biases))

    return translate


CELLS = (LSTM, GRU, RNN_TANH, RNN_RELU)
RULES: Rules = rules_of(
    {
        **{f"aten.{cell.name}.input": _rule(cell) for cell in CELLS},
        **{f"bessemer.packed_{cell.name}.default": _rule(cell) for cell in CELLS},
    }
)
