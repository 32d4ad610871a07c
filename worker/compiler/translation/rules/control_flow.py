"""``torch.cond``, ``while_loop``, ``scan`` and ``map``.

cond(c, f, g, x)                     if c: f(x) else: g(x)
while_loop(test, step, x)            loop(x) = if test(x): loop(step(x)) else: x
scan(step, x, ys), map(step, ys)     a few steps: written out one after the other
                                     else: a while_loop that carries the number of the row
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from tvm import relax

from worker.compiler.translation.dtypes import dtype_name
from worker.compiler.translation.emitter import Emitter, fixed, shape_of
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
    count = shape_of(rows[0])[0]
    if not isinstance(count, int) or count > MOST_STEPS:
        return _loop_over_rows(emit, step, initial, rows, extra)
    carried, written = list(initial), []
    for row in _rows(emit, rows, count):
        results = emit.inlined(step, [*carried, *row, *extra])
        carried = list(results[: len(carried)])
        written.append(results[len(carried) :])
    return [*carried, *_stacked(emit, written)]


def _map(emit: Emitter, step: GraphModule, rows: Tensors, extra: Tensors = ()) -> list[relax.Expr]:
    return _scan(emit, step, (), rows, extra)


def _rows(emit: Emitter, tensors: Tensors, count: int) -> list[list[relax.Expr]]:
    """For each step, the row of each tensor."""
    return [
        [
            emit(relax.op.squeeze(emit(relax.op.strided_slice(tensor, [0], [at], [at + 1])), [0]))
            for tensor in tensors
        ]
        for at in range(count)
    ]


def _stacked(emit: Emitter, rows: Sequence[Sequence[relax.Expr]]) -> list[relax.Expr]:
    return [emit(relax.op.stack(list(column), axis=0)) for column in zip(*rows, strict=True)]


def _loop_over_rows(
    emit: Emitter, step: GraphModule, initial: Tensors, rows: Tensors, extra: Tensors
) -> list[relax.Expr]:
    """A loop that carries the number of the row, and writes each step's results to rows of tensors."""
    results = emit.results[len(initial) :]
    count = shape_of(rows[0])[0]
    sizes = [(count, *fixed(tuple(result.shape[1:]), "the result of a step")) for result in results]
    dtypes = [dtype_name(result.dtype) for result in results]
    zeros = [emit(relax.op.zeros(size, dtype)) for size, dtype in zip(sizes, dtypes, strict=True)]
    before_rows = 1 + len(initial) + len(results)

    def test(*values: torch.Tensor) -> torch.Tensor:
        return values[0] < values[before_rows].size(0)

    def next_of(*values: torch.Tensor) -> list[torch.Tensor]:
        place, carried, written = (
            values[0].reshape(1),
            values[1 : 1 + len(initial)],
            values[1 + len(initial) :],
        )
        after_rows = before_rows + len(rows)
        given = [tensor.index_select(0, place).squeeze(0) for tensor in values[before_rows:after_rows]]
        found = step(*carried, *given, *values[after_rows:])
        new = [
            _with_row(tensor, place, result)
            for tensor, result in zip(written, found[len(initial) :], strict=False)
        ]
        return [values[0] + 1, *found[: len(initial)], *new]

    def examples(given: list[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.zeros((), dtype=torch.int64), *given[: len(initial)], *results, *given[len(initial) :]]

    holds, following = emit.traced([test, next_of], examples)
    carried = [relax.const(0, "int64"), *initial, *zeros]
    return emit.loop(holds, following, carried, [*rows, *extra])[1:]


def _with_row(tensor: torch.Tensor, place: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    places = place.reshape(1, *[1] * row.dim()).expand(1, *row.shape)
    return tensor.scatter(0, places, row.unsqueeze(0))


RULES: Rules = rules_of({"cond": _cond, "while_loop": _while_loop, "scan": _scan, "map_impl": _map})
