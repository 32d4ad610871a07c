"""Copies between tensors of which one holds the others, parts that each lie contiguously.

Loop order: the parts, and for each its dimensions, the last as one run that LLVM copies in vectors; the
first one that is not 1 in parallel where the work is worth it. Most of these functions are never called:
``worker.compiler.layout.shared_memory`` lets the tensors share their memory instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import CUT, JOIN, SHARES
from worker.compiler.schedules.nest import INDEX, signature
from worker.compiler.schedules.processors import MIN_PARALLEL_WORK

Shape = tuple[int, ...]


def write_join(shapes: Sequence[Shape], axis: int, dtype: str, threads: int) -> tirx.PrimFunc:
    """A scheduled function from tensors to the one that they are joined to along an axis."""
    joined = (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])
    inputs = {f"part{number}": (shape, dtype) for number, shape in enumerate(shapes)}
    function = signature(inputs, {"whole": (joined, dtype)})
    *parts, whole = function.params
    copies, first = [], 0
    for part, shape in zip(parts, shapes, strict=True):
        copies.append(_copy(shape, threads, _copier(part, 0, whole, first, axis)))
        first += shape[axis]
    return nest.with_loops(function.with_attr(SHARES, JOIN), nest.sequence(*copies))


def write_cut(shape: Shape, part: Shape, axis: int, first: int, dtype: str, threads: int) -> tirx.PrimFunc:
    """A scheduled function from a tensor to the part of it that begins at ``first`` of an axis."""
    function = signature({"whole": (shape, dtype)}, {"part": (part, dtype)})
    whole, result = function.params
    copy = _copy(part, threads, _copier(whole, first, result, 0, axis))
    return nest.with_loops(function.with_attr(SHARES, CUT), copy)


def _copier(
    source: Any, source_first: int, target: Any, target_first: int, axis: int
) -> Callable[[Sequence[Any]], tirx.Stmt]:
    def element(place: Sequence[Any]) -> tirx.Stmt:
        value = source[tuple(_moved(place, axis, source_first))]
        return nest.store(target, value, *_moved(place, axis, target_first))

    return element


def _moved(place: Sequence[Any], axis: int, by: int) -> list[Any]:
    return [index + by if dimension == axis else index for dimension, index in enumerate(place)]


def _copy(shape: Shape, threads: int, element: Callable[[Sequence[Any]], tirx.Stmt]) -> tirx.Stmt:
    """Loops over all places of a part."""
    outer = next((dimension for dimension, size in enumerate(shape[:-1]) if size > 1), None)
    pays = threads > 1 and prod(shape) >= MIN_PARALLEL_WORK

    def loops(place: tuple[Any, ...]) -> tirx.Stmt:
        dimension = len(place)
        if dimension == len(shape):
            return element(place)
        loop = nest.parallel if pays and dimension == outer else nest.serial
        return loop(shape[dimension], lambda index: loops((*place, index)), INDEX)

    return loops(())
