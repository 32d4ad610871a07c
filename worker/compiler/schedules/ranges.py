"""What the ranges of a function's variables prove: that a condition is constant, that a load is in bounds."""

from __future__ import annotations

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
    """An analyzer that knows the range of every loop and of every block's variables."""
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
    """Replace every ``if_then_else`` whose condition is the same in all iterations by the branch it takes.

    A slice of a join, inlined, asks in every element which part it comes from, though all come from one. Left
    in place, each such question doubles what TVM's passes do, and its branch not taken is generated.
    """
    analyzer = analyzer_of(function.body)

    def always(condition: Expression) -> bool:
        return not nest.loads_of(condition) and analyzer.can_prove(condition)

    def call(call: Call, mutator: Any) -> Expression:
        """Follow the chain of choices that a join is; recursion would outgrow the stack on long ones."""
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
    """The block, its list of regions that it reads made anew from its loads."""
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
