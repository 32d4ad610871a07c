"""Recognize reductions of earlier dimensions: the kept and the reduced axes of each block."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import (
    Axis,
    Block,
    has_branch,
    long_axes,
    read_blocks,
    step_along,
)


@dataclass(frozen=True)
class Part:
    """A block with its kept axes and, unless it computes one element per kept index, its reduced axes."""

    block: Block
    kept: tuple[Axis, ...]
    reduced: tuple[Axis, ...]

    @property
    def output(self) -> Any:
        """The buffer that the block writes."""
        return self.block.body.writes[0].source

    @property
    def store(self) -> tirx.BufferStore:
        """The block's statement."""
        return self.block.body.body

    @property
    def keeps_strip(self) -> bool:
        """Whether the block's result has the reduced axes too."""
        return bool(self.reduced) and not self.block.reduced

    def role(self, index: Any) -> tuple[bool, int] | None:
        """The axis that an index is: whether it is kept, and its position. None for other indices."""
        for is_kept, axes in ((True, self.kept), (False, self.reduced)):
            for number, axis in enumerate(axes):
                if axis.var.same_as(index):
                    return is_kept, number
        return None


def find_parts(schedule: s_tir.Schedule) -> tuple[Part, ...] | None:
    """The blocks with their kept and reduced axes; None if they do not fit together."""
    blocks = read_blocks(schedule)
    first = next((block for block in blocks if block.reduced), None)
    if first is None or not all(map(_is_plain, blocks)):
        return None
    kept, reduced = sizes_of(long_axes(first.spatial)), sizes_of(long_axes(first.reduced))
    parts: list[Part] = []
    for block in blocks:
        part = _as_part(block, parts, kept, reduced)
        if part is None or not _reads_own_places(part, parts):
            return None
        parts.append(part)
    return tuple(parts) if kept else None


def _is_plain(block: Block) -> bool:
    body = block.body.body
    initial = block.body.init is None or isinstance(block.body.init, tirx.BufferStore)
    return (
        isinstance(body, tirx.BufferStore)
        and initial
        and (block.body.init is not None) == bool(block.reduced)
        and not has_branch(block.body)
    )


def sizes_of(axes: tuple[Axis, ...]) -> tuple[int, ...]:
    """The extents of axes."""
    return tuple(axis.extent for axis in axes)


def _as_part(
    block: Block, before: list[Part], kept: tuple[int, ...], reduced: tuple[int, ...]
) -> Part | None:
    own = long_axes(block.spatial)
    if block.reduced:
        part = Part(block, own, long_axes(block.reduced))
        return part if (sizes_of(part.kept), sizes_of(part.reduced)) == (kept, reduced) else None
    if sizes_of(own) == kept:
        return Part(block, own, ())
    named = _kept_axes(block, before)
    rest = tuple(axis for axis in own if axis not in named)
    return Part(block, named, rest) if (sizes_of(named), sizes_of(rest)) == (kept, reduced) else None


def _kept_axes(block: Block, before: list[Part]) -> tuple[Axis, ...]:
    """The axes with which a block indexes an earlier result without reduced axes."""
    results = {part.output: part for part in before if not part.keeps_strip}
    for load in nest.loads_of(block.body.body.value):
        if load.source in results:
            own = long_axes(block.axes)
            return tuple(axis for index in load.indices for axis in own if axis.var.same_as(index))
    return ()


def _reads_own_places(part: Part, before: list[Part]) -> bool:
    """Whether a block reads earlier results, and writes its own, at its own indices only."""
    written = {earlier.output: earlier for earlier in before}
    wanted = (*part.kept, *(part.reduced if part.keeps_strip else ()))
    places = [index for index in part.store.indices if not isinstance(index, tirx.IntImm)]
    roles = [part.role(index) for index in places if not _is_unit(index, part)]
    if None in roles or len(roles) != len(wanted) or part.output in written:
        return False
    return all(
        _same_place(load, part, written.get(load.source, part))
        for load in nest.loads_of(part.store.value)
        if load.source in written or load.source.same_as(part.output)
    )


def _same_place(load: Any, reader: Part, writer: Part) -> bool:
    return all(
        int(size) == 1 or (reader.role(here) is not None and reader.role(here) == writer.role(there))
        for here, there, size in zip(load.indices, writer.store.indices, writer.output.shape, strict=True)
    )


def _is_unit(index: Any, part: Part) -> bool:
    return any(axis.extent == 1 and axis.var.same_as(index) for axis in part.block.axes)


def count_inner(parts: tuple[Part, ...]) -> int:
    """The number of last kept axes that are contiguous in every read and write."""
    count = len(parts[0].kept)
    return next((inner for inner in range(count, 0, -1) if all(_is_inner(part, inner) for part in parts)), 0)


def _is_inner(part: Part, inner: int) -> bool:
    return all(_flows(load, part.kept[-inner:]) for load in nest.loads_of(part.store.value)) and _flows(
        tirx.BufferLoad(part.output, part.store.indices), part.kept[-inner:]
    )


def _flows(load: Any, axes: tuple[Axis, ...]) -> bool:
    """Whether an access moves by one element along the fused axes, or does not move."""
    steps = [step_along(load, axis) for axis in axes]
    contiguous = [prod(sizes_of(axes[number + 1 :])) for number in range(len(axes))]
    return steps == contiguous or not any(step != 0 for step in steps)
