"""Decide which tensors lie inside one another: parts of a join, slices of a larger tensor.

A region is memory that several tensors share; each begins at an offset. The parts of a join follow one
another. A joined tensor may be a part of a larger one, or its beginning, to which more is appended, as in a
dense block. A tensor has one place only: a second join that needs it elsewhere is refused and copies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

ALIGNMENT_BYTES = 64
"""The alignment that kernels assume of a tensor's first byte: TVM aligns every allocation so."""


class Part(NamedTuple):
    """A tensor and its place inside another."""

    tensor: Hashable
    offset_bytes: int
    size_bytes: int


def in_a_row(sized: Iterable[tuple[Hashable, int]]) -> list[Part]:
    """Lay tensors, given with their sizes in bytes, one after another."""
    parts, offset = [], 0
    for tensor, size_bytes in sized:
        parts.append(Part(tensor, offset, size_bytes))
        offset += size_bytes
    return parts


@dataclass
class Region:
    """Memory that tensors share, and the offset of each."""

    start_bytes: int
    end_bytes: int
    offsets: dict[Hashable, int] = field(default_factory=dict)


class Placement:
    """The places of tensors after the joins and slices accepted so far."""

    def __init__(self) -> None:
        self._region_of: dict[Hashable, Region] = {}

    def region(self, tensor: Hashable) -> Region | None:
        """The region that a tensor lies in; None if it has its own memory."""
        return self._region_of.get(tensor)

    def join(self, joined: Hashable, parts: Sequence[Part]) -> bool:
        """Place parts in the joined tensor, one after another; return False, changing nothing, if impossible.

        Parts without a region are appended after those that have one.
        """
        if any(part.offset_bytes % ALIGNMENT_BYTES or not part.size_bytes for part in parts):
            return False
        if joined in self._region_of or len({part.tensor for part in parts}) != len(parts):
            return False
        regions = [self._region_of.get(part.tensor) for part in parts]
        held = [(part, region) for part, region in zip(parts, regions, strict=True) if region is not None]
        if not held:
            return self._place(joined, parts, Region(0, 0), 0)
        region = held[0][1]
        start = region.offsets[held[0][0].tensor] - held[0][0].offset_bytes
        if any(
            other is not region or region.offsets[part.tensor] != start + part.offset_bytes
            for part, other in held
        ):
            return False
        new = [part for part in parts if part.tensor not in self._region_of]
        if start < region.start_bytes or any(start + part.offset_bytes < region.end_bytes for part in new):
            return False
        return self._place(joined, parts, region, start)

    def cut(self, whole: Hashable, whole_bytes: int, part: Part) -> bool:
        """Place a slice in its tensor; return False if it cannot be."""
        if part.offset_bytes % ALIGNMENT_BYTES or not part.size_bytes or part.tensor in self._region_of:
            return False
        region = self._region_of.get(whole)
        if region is None:
            region = Region(0, whole_bytes, {whole: 0})
            self._region_of[whole] = region
        region.offsets[part.tensor] = region.offsets[whole] + part.offset_bytes
        self._region_of[part.tensor] = region
        return True

    def _place(self, joined: Hashable, parts: Sequence[Part], region: Region, start: int) -> bool:
        for part in parts:
            region.offsets[part.tensor] = start + part.offset_bytes
            region.end_bytes = max(region.end_bytes, start + part.offset_bytes + part.size_bytes)
            self._region_of[part.tensor] = region
        region.offsets[joined] = start
        self._region_of[joined] = region
        return True
