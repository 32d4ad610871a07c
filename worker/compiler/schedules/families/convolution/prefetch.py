"""Prefetches of a convolution's next weights, while a thread computes with the current ones.

A thread reads the weights of some output blocks, or a part of them, for each tile of the image, then the next
ones. The first tile would wait for memory, so each tile prefetches its share of the next weights, at every
tap of the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.processors import CACHE_LINE, LARGE_WEIGHTS, Machine

_MOST_USES = 100
"""Weights that are multiplied more often arrive in a small part of the time of their multiply-adds."""


@dataclass(frozen=True)
class NextWeights:
    """Where the next weights are, and which share of them a tile prefetches.

    Attributes:
        weights: the buffer, whose last two axes are the lanes of inputs and of outputs.
        places: the variables of loops, and their values where the next weights are read.
        visit: the number of the tile among those that read the same weights.
        visits: how many tiles read them.
    """

    weights: Any
    places: Mapping[Any, Any]
    visit: Any
    visits: int


def prefetches_weights(weight_bytes: int, uses: int, machine: Machine) -> bool:
    """Whether tiles prefetch the next weights, as they do if these come from memory and are used little.

    Args:
        weight_bytes: all weights.
        uses: how often a task multiplies a weight.
        machine: the processor.
    """
    return weight_bytes > LARGE_WEIGHTS * machine.l2_bytes and uses <= _MOST_USES


def with_prefetches(function: tirx.PrimFunc, loop: Any, following: NextWeights) -> tirx.PrimFunc:
    """The function with prefetches at the start of each iteration of the loop with the variable ``loop``."""

    def of_loop(found: tirx.For) -> tirx.For:
        if not found.loop_var.same_as(loop):
            return found
        body = nest.sequence(*_prefetches(found.body, following), found.body)
        return tirx.For(
            found.loop_var, found.min, found.extent, found.kind, body, annotations=dict(found.annotations)
        )

    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.For, of_loop)))


def _prefetches(body: tirx.Stmt, following: NextWeights) -> list[tirx.Stmt]:
    """Prefetch a tile's share of the next weights of a tap: the same number of lines for each block."""
    loops, (block, *outer, lane, _) = _read(body, following.weights)
    weights, dtype = following.weights, nest.dtype_of(lane)
    lanes, columns = (int(size) for size in weights.shape[-2:])
    rows_of_line = max(1, CACHE_LINE * 8 // (nest.bits_of(weights.dtype) * columns))
    share = ceil(lanes / (rows_of_line * following.visits))
    zero = nest.constant(0, dtype)
    first = {loop.loop_var: zero for loop in loops}
    (of_blocks,) = (loop for loop in loops if _reads(block, loop.loop_var))

    def lines(number: int) -> list[tirx.Stmt]:
        places = {**first, of_blocks.loop_var: nest.constant(number, dtype)}
        place = [
            nest.substitute(nest.substitute(index, places), following.places) for index in (block, *outer)
        ]
        rows = [(following.visit * share + line) * rows_of_line for line in range(share)]
        return [nest.prefetch(weights, *place, row, zero, into=nest.FAR) for row in rows]

    return [line for number in range(int(of_blocks.extent)) for line in lines(number)]


def _read(body: tirx.Stmt, weights: Any) -> tuple[list[tirx.For], tuple[Any, ...]]:
    """The loops inside a statement, and the indices of its load of the weights, by loops' variables."""
    loops: list[tirx.For] = []
    blocks: list[s_tir.SBlockRealize] = []
    tvm_ffi.structural_walk(body, [(tirx.For, loops.append), (s_tir.SBlockRealize, blocks.append)])
    (realized,) = blocks
    (load,) = (load for load in nest.loads_of(realized.block.body) if load.source.same_as(weights))
    axes = zip(realized.block.iter_vars, realized.iter_values, strict=True)
    values = {axis.var: value for axis, value in axes}
    return loops, tuple(nest.substitute(index, values) for index in load.indices)


def _reads(expression: Any, variable: Any) -> bool:
    found: list[bool] = []
    tvm_ffi.structural_walk(expression, (tirx.Var, lambda each: found.append(each.same_as(variable))))
    return any(found)
