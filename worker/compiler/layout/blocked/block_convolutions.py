"""Blocked layouts through the convolutional part of a graph.

A convolution's result stays in blocks of channels, ``[N, C / lanes, rows, columns, lanes]``, as long as
what reads it can work on blocks: convolutions, pools, elementwise operators, joins of channels, reshapes of
its dimensions. Conversions stand at the borders only; a plain image of few channels enters its first
convolution without one. Constant weights are packed here, others when the model runs.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from worker.compiler.layout.blocked.blocked_graph import Blocked, BlockedGraph
from worker.compiler.layout.blocked.convolution_rule import convolve
from worker.compiler.layout.blocked.operator_rules import (
    ELEMENTWISE,
    average,
    cast,
    cut,
    divide,
    join,
    map_elements,
    pool,
    pool_adaptively,
    reshape,
)
from worker.compiler.layout.views import cut_of
from worker.compiler.schedules.machine import machine_of


@tvm.transform.module_pass(opt_level=0, name="BlockConvolutions")
def block_convolutions(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Compute convolutions, and what follows them, in blocks as wide as the current target's vectors."""
    blocker = BlockedGraph(module, machine_of(tvm.target.Target.current()), _apply_rule)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            blocker.builder_.update_func(variable, blocker.visit_expr(function))
    return blocker.builder_.get()


def _apply_rule(value: relax.Expr, graph: BlockedGraph) -> Blocked | None:
    part = cut_of(value, graph.bound)
    if part is not None:
        return cut(value, part, graph)
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    rule = RULES.get(value.op.name)
    return None if rule is None else rule(value, graph)


Rule = Callable[[relax.Call, BlockedGraph], Blocked | None]
"""Computes a call in blocks, or returns None to leave it alone."""

_DIMENSIONS = (1, 2, 3)

RULES: dict[str, Rule] = {
    **{f"relax.nn.conv{dimensions}d": convolve for dimensions in _DIMENSIONS},
    **{f"relax.nn.conv{dimensions}d_transpose": convolve for dimensions in _DIMENSIONS},
    **{f"relax.nn.max_pool{dimensions}d": pool for dimensions in _DIMENSIONS},
    **{f"relax.nn.avg_pool{dimensions}d": pool for dimensions in _DIMENSIONS},
    **{f"relax.nn.adaptive_avg_pool{dimensions}d": pool_adaptively for dimensions in _DIMENSIONS},
    "relax.mean": average,
    "relax.concat": join,
    "relax.astype": cast,
    "relax.divide": divide,
    "relax.reshape": reshape,
    "relax.expand_dims": reshape,
    "relax.squeeze": reshape,
    **{f"relax.{name}": map_elements for name in ELEMENTWISE},
}
"""By the operator's name."""
