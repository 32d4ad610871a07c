"""Bind loads that an expression repeats to variables, so that a producer is inlined once for each element::

y[i] = x[i] * sigmoid(x[i])     becomes     y[i] = let t = x[i] in t * sigmoid(t)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad
from tvm.sym import Analyzer

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import is_branch
from worker.compiler.schedules.conditions import guards, is_in_bounds

Expression = Any


def name_repeated_loads(value: Expression, buffer: Any, analyzer: Analyzer) -> Expression:
    """The expression with repeated loads bound to variables, each at the outermost point that always loads.

    Each branch of a choice binds its own loads.

    Args:
        value: the value that a block stores.
        buffer: the buffer whose loads to bind.
        analyzer: knows the ranges of the block's variables.
    """
    for load in _certain_loads(value, buffer, analyzer):
        if sum(_are_same(load, other) for other in nest.loads_of(value)) > 1:
            variable = tirx.Var("t", nest.dtype_of(load))
            value = tirx.Let(variable, load, _replaced(value, load, variable))

    def within(branch: Expression) -> Expression:
        return name_repeated_loads(branch, buffer, analyzer)

    def call(call: Call, mutator: Any) -> Expression:
        if not is_branch(call):
            return mutator.default_mutate(call)
        condition, then, otherwise = call.args
        return tirx.if_then_else(mutator.mutate(condition), within(then), within(otherwise))

    def select(select: tirx.Select, mutator: Any) -> Expression:
        if not _is_guarding(select, analyzer):
            return mutator.default_mutate(select)
        condition = mutator.mutate(select.condition)
        return tirx.Select(condition, within(select.true_value), within(select.false_value))

    return tvm_ffi.structural_mutate(value, ((Call, call), (tirx.Select, select)))


def count_elements_read(value: Expression, buffer: Any) -> int:
    """The number of loads of a buffer in an expression."""
    return sum(load.source.same_as(buffer) for load in nest.loads_of(value))


def count_nodes(value: Expression) -> int:
    """The number of nodes of an expression."""
    count = 0

    def visit(_node: Any) -> None:
        nonlocal count
        count += 1

    tvm_ffi.structural_walk(value, (Expr, visit))
    return count


def _certain_loads(value: Expression, buffer: Any, analyzer: Analyzer) -> Iterator[TensorLoad]:
    """The distinct loads that an expression makes whichever branches are taken."""
    found: list[TensorLoad] = []

    def decide(condition: Expression) -> tvm_ffi.WalkResult:
        found.extend(_certain_loads(condition, buffer, analyzer))
        return tvm_ffi.WalkResult.SKIP

    def call(call: Call) -> tvm_ffi.WalkResult | None:
        return decide(call.args[0]) if is_branch(call) else None

    def select(select: tirx.Select) -> tvm_ffi.WalkResult | None:
        return decide(select.condition) if _is_guarding(select, analyzer) else None

    def load(load: TensorLoad) -> None:
        if load.source.same_as(buffer) and not any(_are_same(load, other) for other in found):
            found.append(load)

    tvm_ffi.structural_walk(value, [(Call, call), (tirx.Select, select), (TensorLoad, load)], order="pre")
    return iter(found)


def _is_guarding(select: tirx.Select, analyzer: Analyzer) -> bool:
    return guards(select, lambda load: is_in_bounds(load, analyzer))


def _are_same(one: TensorLoad, other: TensorLoad) -> bool:
    return one.source.same_as(other.source) and tvm_ffi.structural_equal(one.indices, other.indices)


def _replaced(value: Expression, load: TensorLoad, variable: tirx.Var) -> Expression:
    return tvm_ffi.structural_map(
        value, (TensorLoad, lambda other: variable if _are_same(load, other) else other)
    )
