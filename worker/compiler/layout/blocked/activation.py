"""Joins that are scaled and activated before they are read, as in each layer of a dense block.

    relu(concat(...) * scale + shift)

A kernel with one reader computes what follows it in its epilogue. A join has none, so its readers do this.
"""

from __future__ import annotations

from typing import NamedTuple

from tvm import relax
from tvm.ir import GenericConst

from worker.compiler.layout.blocked.blocked_graph import BlockedGraph
from worker.compiler.layout.relax_graph import operator_of, static_shape

_BLOCK_DIMENSIONS = 5


class Activation(NamedTuple):
    """A join in blocks, and constants with a number for each channel."""

    join: relax.Expr
    scale: relax.Expr
    shift: relax.Expr


def activation_of(variable: relax.Expr, graph: BlockedGraph) -> Activation | None:
    """What a variable of the new graph activates; None if it is anything else."""
    summed = _operands("nn.relu", variable, graph)
    shifted = _operands("add", summed[0], graph) if summed else ()
    scaled = _operands("multiply", shifted[0], graph) if shifted else ()
    if not scaled or not all(map(_is_per_channel, (scaled[1], shifted[1]))):
        return None
    is_join = operator_of(graph.emitted(scaled[0])) == "concat"
    return Activation(scaled[0], scaled[1], shifted[1]) if is_join else None


def _operands(operator: str, variable: relax.Expr, graph: BlockedGraph) -> tuple[relax.Expr, ...]:
    """The operands of the call that computes a variable of the new graph; none if it is another's."""
    value = graph.emitted(variable)
    return tuple(value.args) if operator_of(value) == operator else ()


def _is_per_channel(operand: relax.Expr) -> bool:
    shape = static_shape(operand) if isinstance(operand, GenericConst) else None
    if shape is None or len(shape) != _BLOCK_DIMENSIONS:
        return False
    batch, _, rows, columns, lanes = shape
    return batch == rows == columns == 1 and lanes > 1
