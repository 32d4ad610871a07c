"""Reason about conditions and branches: which conditions are constant, and what a branch guards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad
from tvm.s_tir.analysis import get_sblock_access_region
from tvm.sym import Analyzer
from tvm_ffi import structural_equal

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import is_branch

Expression = Any


def analyzer_of(statement: Any) -> Analyzer:
    """An analyzer that knows the range of every loop and block variable."""
    analyzer = Analyzer()

    def loop(loop: tirx.For) -> None:
        analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))

    def block(block: s_tir.SBlock) -> None:
        for variable in block.iter_vars:
            analyzer.bind(variable.var, variable.dom)

    tvm_ffi.structural_walk(statement, [(tirx.For, loop), (s_tir.SBlock, block)])
    return analyzer


def is_in_bounds(load: TensorLoad, analyzer: Analyzer) -> bool:
    """Whether every index of a load is within its buffer's shape."""
    return all(
        analyzer.can_prove(tirx.all(index >= 0, index < size))
        for index, size in zip(load.indices, load.source.shape, strict=True)
    )


def fold_conditions(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace every ``if_then_else`` whose condition is the same in all iterations by its branch.

    An inlined slice of a join tests for every element which part it comes from, though all come from one.
    Each such test would double the work of TVM's passes and generate a branch that is never taken.
    """
    analyzer = analyzer_of(function.body)

    def always(condition: Expression) -> bool:
        return not nest.loads_of(condition) and analyzer.can_prove(condition)

    def call(call: Call, mutator: Any) -> Expression:
        """Follow the chain of choices of a join in a loop; recursion would overflow the stack."""
        if not is_branch(call):
            return mutator.default_mutate(call)
        left_open: list[tuple[Expression, Expression]] = []
        rest: Expression = call
        while isinstance(rest, Call) and is_branch(rest):
            condition, then, otherwise = rest.args
            if always(condition):
                rest = then
                continue
            if not always(tirx.Not(condition)):
                left_open.append((mutator.mutate(condition), mutator.mutate(then)))
            rest = otherwise
        folded = mutator.mutate(rest)
        for condition, then in reversed(left_open):
            folded = tirx.if_then_else(condition, then, folded)
        return folded

    def in_block(block: s_tir.SBlock, mutator: Any) -> s_tir.SBlock:
        folded = mutator.default_mutate(block)
        is_kept = not block.reads or structural_equal(folded.body, block.body)
        return folded if is_kept else _with_regions_read(folded)

    body = tvm_ffi.structural_mutate(function.body, ((s_tir.SBlock, in_block), (Call, call)))
    return function if structural_equal(body, function.body) else function.with_body(body)


def _with_regions_read(block: s_tir.SBlock) -> s_tir.SBlock:
    """The block with the regions that it reads recomputed from its loads."""
    buffers = {load.source for load in nest.loads_of(block.body)} | {region.source for region in block.writes}
    reads, _, _ = get_sblock_access_region(block, {buffer: buffer for buffer in buffers})
    return s_tir.SBlock(
        block.iter_vars,
        reads,
        block.writes,
        block.name_hint,
        block.body,
        block.init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )


_QUOTIENTS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)


def guards(select: tirx.Select, known: Callable[[TensorLoad], bool]) -> bool:
    """Whether a branch of a choice must not be computed when it is not taken.

    That is so if it reads elements that the condition does not read, or divides integers, which ends the
    process for a zero. Branches nested in it guard their own computations.

    Args:
        select: a choice between two values.
        known: whether a load is valid everywhere.
    """
    read = tuple(_loads(_certain(select.condition)))
    inside = (*_certain(select.true_value), *_certain(select.false_value))
    if any(_may_trap(part) for part in inside):
        return True
    return not all(known(load) or _is_fixed(load) or _is_among(load, read) for load in _loads(inside))


def _certain(expression: Expression) -> Iterator[Any]:
    """The loads and quotients that an expression computes whichever of its branches are taken."""
    found: list[Any] = []

    def note(part: Any) -> None:
        found.append(part)

    def decide(condition: Expression) -> tvm_ffi.WalkResult:
        found.extend(_certain(condition))
        return tvm_ffi.WalkResult.SKIP

    def call(call: Call) -> tvm_ffi.WalkResult | None:
        return decide(call.args[0]) if is_branch(call) else None

    def select(select: tirx.Select) -> tvm_ffi.WalkResult:
        return decide(select.condition)

    callbacks = [(Call, call), (tirx.Select, select), ((TensorLoad, *_QUOTIENTS), note)]
    tvm_ffi.structural_walk(expression, callbacks, order="pre")
    return iter(found)


def _loads(parts: Iterable[Any]) -> Iterator[TensorLoad]:
    return (part for part in parts if isinstance(part, TensorLoad))


def _may_trap(part: Any) -> bool:
    if not isinstance(part, _QUOTIENTS) or "int" not in nest.dtype_of(part):
        return False
    return not (isinstance(part.b, tirx.IntImm) and int(part.b) > 0)


def _is_fixed(load: TensorLoad) -> bool:
    """Whether a load has constant indices within bounds, as of a scalar parameter."""
    return all(
        isinstance(index, tirx.IntImm) and isinstance(size, tirx.IntImm) and 0 <= int(index) < int(size)
        for index, size in zip(load.indices, load.source.shape, strict=True)
    )


def _is_among(load: TensorLoad, loads: tuple[TensorLoad, ...]) -> bool:
    return any(tvm_ffi.structural_equal(load, other) for other in loads)
