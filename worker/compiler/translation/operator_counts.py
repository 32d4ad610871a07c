"""Counts the operators of a module in Relax."""

from __future__ import annotations

from collections import Counter

import tvm
from tvm import relax

_RELAX_PREFIX = "relax."


def count_operators(module: tvm.IRModule) -> dict[str, int]:
    """The number of calls of each operator in the module's Relax functions, most frequent first."""
    counts: Counter[str] = Counter()

    def visit(expression: relax.Expr) -> None:
        if isinstance(expression, relax.Call) and isinstance(expression.op, tvm.ir.Op):
            counts[expression.op.name.removeprefix(_RELAX_PREFIX)] += 1

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return dict(counts.most_common())
