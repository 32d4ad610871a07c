"""The formulas of recurrent cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.nest import Expression

Formula = Callable[[list[Expression], list[Expression], Expression], Expression]
"""From a unit's sums by gate, its inputs by gate, and a state to its new hidden state. The state is the new
one of ``Cell.keep``, or the old hidden one in a cell that keeps none."""


@dataclass(frozen=True)
class Cell:
    """The formulas of a cell.

    Attributes:
        name: torch's name.
        gates: the number of its sums.
        show: the new hidden state.
        keep: the new state that the cell keeps beside the hidden one, from its sums and the old one.
        inner: the gate that adds its inputs later; its sum begins with a bias of its own.
    """

    name: str
    gates: int
    show: Formula
    keep: Callable[[list[Expression], Expression], Expression] | None = None
    inner: int | None = None


def _show_lstm(sums: list[Expression], _inputs: list[Expression], kept: Expression) -> Expression:
    return tirx.sigmoid(sums[3]) * tirx.tanh(kept)


def _keep_lstm(sums: list[Expression], kept: Expression) -> Expression:
    return tirx.sigmoid(sums[1]) * kept + tirx.sigmoid(sums[0]) * tirx.tanh(sums[2])


def _show_gru(sums: list[Expression], inputs: list[Expression], hidden: Expression) -> Expression:
    def joined(candidate: Expression) -> Expression:
        return candidate + tirx.sigmoid(sums[1]) * (hidden - candidate)

    candidate = tirx.Var("candidate", nest.dtype_of(hidden))
    value = tirx.tanh(inputs[2] + tirx.sigmoid(sums[0]) * sums[2])
    return tirx.Let(candidate, value, joined(candidate))


def _show_relu(sums: list[Expression], _inputs: list[Expression], _hidden: Expression) -> Expression:
    zero = nest.constant(0, nest.dtype_of(sums[0]))
    return tirx.Select(sums[0] < zero, zero, sums[0])


LSTM = Cell("lstm", 4, _show_lstm, keep=_keep_lstm)
GRU = Cell("gru", 3, _show_gru, inner=2)
RNN_TANH = Cell("rnn_tanh", 1, lambda sums, _inputs, _hidden: tirx.tanh(sums[0]))
RNN_RELU = Cell("rnn_relu", 1, _show_relu)
