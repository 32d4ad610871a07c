"""Keep images in blocks of channels between convolutions.

    y = nn.conv2d(x, W)                 lv = call_tir(to_blocks, (x,))
    z = nn.relu(y)               →      lv1 = call_tir(conv2d, (lv, packed W))
    r = nn.softmax(z, axis=1)           lv2 = nn.relu(lv1)
                                        lv3 = call_tir(from_blocks, (lv2,))
                                        r = nn.softmax(lv3, axis=1)

A plain image is ``[N, C, *sizes]`` with one to three sizes. In blocks it is ``[N, C / lanes, rows, columns,
lanes]``: one vector holds ``lanes`` channels of one pixel, ``columns`` is the last size, and ``rows`` is the
product of the others. Lanes past the last channel hold no meaning; the weights that meet them are zero.

A convolution starts a region of blocks. ``RULES`` names the operators that stay in it: convolutions, pools,
means over pixels, elementwise operators, joins, slices and shuffles of channels, reshapes of the sizes. The
pass converts only at the region's borders, once per tensor. A plain image with fewer than two blocks of
channels enters its first convolution as it is. Constant weights are packed by this pass, others by a kernel.

The layout is ``NCHW[x]c`` of Liu et al., "Optimizing CNN Model Inference on CPUs" (USENIX ATC 2019).
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from worker.compiler.layout.blocked.blocked_graph import Blocked, BlockedGraph, Postponed
from worker.compiler.layout.blocked.convolution_rule import convolve
from worker.compiler.layout.blocked.operator_rules import (
    ELEMENTWISE,
    average,
    cast,
    cut,
    divide,
    join,
    map_elements,
    multiply_flat,
    permute,
    pool,
    pool_adaptively,
    reshape,
    split,
)
from worker.compiler.layout.choices import AS_EXPECTED, LayoutChoices
from worker.compiler.layout.views import cut_of
from worker.compiler.schedules.processors import Machine


def block_convolutions(
    machine: Machine, winograd_error: float = 0.0, choices: LayoutChoices = AS_EXPECTED
) -> tvm.transform.Pass:
    """A pass that computes convolutions and the operators after them in blocks as wide as the vectors.

    Args:
        machine: the processor.
        winograd_error: the error that Winograd's algorithm may have, relative to a convolution's largest
            output; 0 if all convolutions are to be computed directly.
        choices: what a search wants.
    """

    @tvm.transform.module_pass(opt_level=0, name="BlockConvolutions")
    def block(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        blocker = BlockedGraph(module, choices.machine(machine), _apply_rule, winograd_error, choices)
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                blocker.builder_.update_func(variable, blocker.visit_expr(function))
        return relax.transform.DeadCodeElimination(["main"])(blocker.builder_.get())

    return block


def _apply_rule(value: relax.Expr, graph: BlockedGraph) -> Blocked | Postponed | relax.Expr | None:
    part = cut_of(value, graph.bound)
    if part is not None:
        return cut(value, part, graph)
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    rule = RULES.get(value.op.name)
    return None if rule is None else rule(value, graph)


Rule = Callable[[relax.Call, BlockedGraph], Blocked | Postponed | relax.Expr | None]
"""Computes a call in blocks, postpones it, computes a plain result, or returns None to leave it alone."""

_DIMENSIONS = (1, 2, 3)

RULES: dict[str, Rule] = {
    **{f"relax.nn.conv{dimensions}d": convolve for dimensions in _DIMENSIONS},
    **{f"relax.nn.conv{dimensions}d_transpose": convolve for dimensions in _DIMENSIONS},
    **{f"relax.nn.max_pool{dimensions}d": pool for dimensions in _DIMENSIONS},
    **{f"relax.nn.avg_pool{dimensions}d": pool for dimensions in _DIMENSIONS},
    **{f"relax.nn.adaptive_avg_pool{dimensions}d": pool_adaptively for dimensions in _DIMENSIONS},
    "relax.mean": average,
    "relax.concat": join,
    "relax.matmul": multiply_flat,
    "relax.astype": cast,
    "relax.divide": divide,
    "relax.split": split,
    "relax.permute_dims": permute,
    "relax.reshape": reshape,
    "relax.expand_dims": reshape,
    "relax.squeeze": reshape,
    **{f"relax.{name}": map_elements for name in ELEMENTWISE},
}
"""Rules by the operator's name."""
