"""Recognize functions that work row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import (
    Axis,
    Block,
    guess,
    has_branch,
    long_axes,
    read_blocks,
    same_sizes,
    step_along,
)

_JOINS = (tirx.Add, tirx.Max, tirx.Min, tirx.Mul)


@dataclass(frozen=True)
class Part:
    """A block of the function, with the axes of its rows and of its columns."""

    block: Block
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]

    @property
    def output(self) -> Any:
        """The buffer that the block writes."""
        return self.block.body.writes[0].source

    @property
    def reduces(self) -> bool:
        """Whether the block reduces a row to one number."""
        return bool(self.block.reduced)


def find_parts(schedule: s_tir.Schedule) -> tuple[Part, ...] | None:
    """The blocks of a function that works row by row; None for other functions."""
    blocks = read_blocks(schedule, may_be_dynamic=True)
    reductions = [block for block in blocks if block.reduced]
    if not reductions or not all(map(_is_plain, blocks)):
        return None
    rows, columns = long_axes(reductions[0].spatial), long_axes(reductions[0].reduced)
    parts = [_as_part(block, rows, columns) for block in blocks]
    found = tuple(part for part in parts if part is not None)
    if len(found) != len(blocks) or not columns or not _reads_suit(found):
        return None
    return found


def _is_plain(block: Block) -> bool:
    body = block.body.body
    return isinstance(body, tirx.BufferStore) and not has_branch(block.body) and _is_known_reduction(block)


def _is_known_reduction(block: Block) -> bool:
    if not block.reduced:
        return True
    body = block.body.body
    previous = body.value.a if isinstance(body.value, _JOINS) else None
    spatial_last = [axis.reduces for axis in block.axes] == sorted(axis.reduces for axis in block.axes)
    return (
        spatial_last
        and isinstance(previous, TensorLoad)
        and previous.source.same_as(body.buffer)
        and block.body.init is not None
    )


def _as_part(block: Block, rows: tuple[Axis, ...], columns: tuple[Axis, ...]) -> Part | None:
    """The block with its rows and columns; None if it runs over other axes."""
    own = long_axes(block.axes)
    if block.reduced:
        same = same_sizes(long_axes(block.spatial), rows) and same_sizes(long_axes(block.reduced), columns)
    else:
        same = same_sizes(own, rows) or same_sizes(own, (*rows, *columns))
    return Part(block, own[: len(rows)], own[len(rows) :]) if same else None


def _reads_suit(parts: tuple[Part, ...]) -> bool:
    """Whether reads are contiguous or constant along columns, and results are read in their own row."""
    written = {part.output: part for part in parts}
    return all(
        _read_suits(load, part, written.get(load.source))
        for part in parts
        for load in nest.loads_of(part.block.body.body.value)
    ) and all(_writes_own_place(part) for part in parts)


def _read_suits(load: Any, part: Part, writer: Part | None) -> bool:
    if writer is not None and not _is_own_place(load.indices, part, writer):
        return False
    return not part.columns or step_along(load, part.columns[-1]) in (0, 1)


def _is_own_place(indices: Any, part: Part, writer: Part) -> bool:
    """Whether a block reads a result at its own row and column."""
    own = [axis.var for axis in (*part.rows, *part.columns)]
    places = [index for index, size in zip(indices, writer.output.shape, strict=True) if guess(size) > 1]
    return len(places) <= len(own) and all(
        place.same_as(var) for place, var in zip(places, own[: len(places)], strict=True)
    )


def _writes_own_place(part: Part) -> bool:
    indices = part.block.body.body.indices
    own = (*part.rows, *(() if part.reduces else part.columns))
    long = [index for index, size in zip(indices, part.output.shape, strict=True) if guess(size) > 1]
    return len(long) == len(own) and all(
        index.same_as(axis.var) for index, axis in zip(long, own, strict=True)
    )
