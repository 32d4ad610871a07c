"""``torch.cond``, ``while_loop``, ``scan`` and ``map``.

cond(c, f, g, x)                     if c: f(x) else: g(x)
while_loop(test, step, x)            loop(x) = if test(x): loop(step(x)) else: x
scan(step, x, ys), map(step, ys)     the steps, written out one after the other
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import relax

from worker.compiler.translation.emitter import Emitter, shape_of
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.rule import Rules, rules_of

if TYPE_CHECKING:
    from torch.fx import GraphModule

MOST_STEPS = 256
"""Each step is compiled."""

Tensors = Sequence[relax.Expr]


def _cond(
    emit: Emitter, condition: relax.Expr | bool, then: GraphModule, otherwise: GraphModule, operands: Tensors
) -> list[relax.Expr]:
    if isinstance(condition, bool):
        return list(emit.inlined(then if condition else otherwise, list(operands)))
    if not isinstance(condition, relax.Expr):
        raise UntranslatableError("it depends on a size: pass the condition as a tensor")
    return emit.branch(condition, then, otherwise, list(operands))


def _while_loop(
    emit: Emitter, test: GraphModule, step: GraphModule, carried: Tensors, extra: Tensors = ()
) -> list[relax.Expr]:
    if not all(isinstance(value, relax.Expr) for value in carried):
        raise UntranslatableError("it carries a number: make it a tensor")
    return emit.loop(test, step, list(carried), list(extra))


def _scan(
    emit: Emitter, step: GraphModule, initial: Tensors, rows: Tensors, extra: Tensors = ()
) -> list[relax.Expr]:
    carried, written = list(initial), []
    for row in _rows(emit, rows):
        results = emit.inlined(step, [*carried, *row, *extra])
        carried = list(results[: len(carried)])
        written.append(results[len(carried) :])
    return [*carried, *_stacked(emit, written)]


def _map(emit: Emitter, step: GraphModule, rows: Tensors, extra: Tensors = ()) -> list[relax.Expr]:
    return _stacked(emit, [emit.inlined(step, [*row, *extra]) for row in _rows(emit, rows)])


def _rows(emit: Emitter, tensors: Tensors) -> list[list[relax.Expr]]:
    """For each step, the row of each tensor."""
    count = shape_of(tensors[0])[0]
    if not isinstance(count, int):
        raise UntranslatableError("its number of steps is dynamic")
    if count > MOST_STEPS:
        raise UntranslatableError(f"it has {count} steps; at most {MOST_STEPS} are written out")
    return [
        [
            emit(relax.op.squeeze(emit(relax.op.strided_slice(tensor, [0], [at], [at + 1])), [0]))
            for tensor in tensors
        ]
        for at in range(count)
    ]


def _stacked(emit: Emitter, rows: Sequence[Sequence[relax.Expr]]) -> list[relax.Expr]:
    return [emit(relax.op.stack(list(column), axis=0)) for column in zip(*rows, strict=True)]


RULES: Rules = rules_of({"cond": _cond, "while_loop": _while_loop, "scan": _scan, "map_impl": _map})
