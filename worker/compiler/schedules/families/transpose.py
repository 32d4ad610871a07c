"""Transpositions, with the elementwise work on the transposed elements.

Claims a function of one elementwise block that reads a buffer contiguously along one of the output's outer
axes, ``along``, and writes along the last axis, ``across``. Other reads are free::

    for parallel task in (other axes, pair of tiles along ``along``):
        for pair of tiles along ``across``:
            for each of the 2 x 2 tiles:                                  # unrolled
                load ``lanes`` vectors along ``along``
                transpose them in registers: log2(lanes) rounds of shuffles of two vectors
                for each vector: output[across] = f(vector)

Registers hold a tile of ``lanes`` vectors. Two tiles side by side cover a cache line on either side, so no
line is fetched or written twice, even where a power of two as the stride maps all lines to one set.

Edges: the last tile of an axis moves back over its neighbor. The lanes are halved until both axes hold a
tile.

Source: unpack ever larger units, then exchange 128-bit halves: Intel, "64 and IA-32 Architectures
Optimization Reference Manual", 8 x 8 matrix transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, prod
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import (
    Axis,
    Block,
    has_branch,
    read_blocks,
    split_place,
    step_along,
    uses,
)
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import WORK_PER_THREAD, Machine, threads_pay

_GROUP_BITS = 128
"""The instructions that interleave two vectors work within groups of this width."""
_MAX_LANES = 16
_MIN_LANES = 4
NOT_IN_VECTORS = frozenset({"bool", "bfloat16"})
"""TVM 0.27 stores bfloat16 as integers, except in variables that hold vectors."""


@dataclass(frozen=True)
class Step:
    """A shuffle of two vectors, by number: the lanes of both for each of the two results."""

    first: int
    second: int
    low: tuple[int, ...]
    high: tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """Steps that transpose a square of vectors; ``order`` names the vector that then holds each column."""

    steps: tuple[Step, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class Transposition:
    """A block that reads some buffers along ``along`` and writes along ``across``."""

    block: Block
    along: Axis
    across: Axis
    loads: tuple[Any, ...]


@cache
def transposing_network(lanes: int, bits: int) -> Network:
    """The shuffles that transpose ``lanes`` vectors of as many elements of ``bits`` bits.

    Args:
        lanes: a power of two.
        bits: the width of an element.
    """
    square = [[(row, column) for column in range(lanes)] for row in range(lanes)]
    steps: list[Step] = []
    unit = 1
    while unit < lanes:
        low, high = _interleaving(lanes, unit, max(2 * unit, _GROUP_BITS // bits))
        for first in (number for number in range(lanes) if not number & unit):
            both = square[first] + square[first + unit]
            square[first], square[first + unit] = [both[lane] for lane in low], [both[lane] for lane in high]
            steps.append(Step(first, first + unit, low, high))
        unit *= 2
    columns = [vector[0][1] for vector in square]
    return Network(tuple(steps), tuple(columns.index(column) for column in range(lanes)))


def transposed(rows: Sequence[Any], dtype: str) -> tuple[list[tirx.Stmt], list[Any]]:
    """Statements that transpose a square in registers, and the variables that hold its columns after them.

    Args:
        rows: vectors of as many elements; their number is a power of two.
        dtype: the elements' type.
    """
    statements: list[tirx.Stmt] = []

    def bound(value: Any) -> Any:
        variable = tirx.Var("v", f"{dtype}x{len(rows)}")
        statements.append(tirx.Bind(variable, value))
        return variable

    def picked(vectors: list[Any], lanes: tuple[int, ...]) -> Any:
        return bound(tirx.Shuffle(vectors, [tirx.IntImm("int32", lane) for lane in lanes]))

    network = transposing_network(len(rows), nest.bits_of(dtype))
    vectors = list(map(bound, rows))
    for step in network.steps:
        both = [vectors[step.first], vectors[step.second]]
        vectors[step.first], vectors[step.second] = picked(both, step.low), picked(both, step.high)
    return statements, [vectors[number] for number in network.order]


def write_transpose(schedule: s_tir.Schedule, machine: Machine, _choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the loops of a function; None if it is not a transposition."""
    found = find_transposition(schedule)
    if found is None:
        return None
    lanes = _lanes(found, machine)
    if lanes < _MIN_LANES:
        return None
    return nest.with_loops(schedule.mod["main"], _Writer(found, lanes, machine).tasks())


def find_transposition(schedule: s_tir.Schedule) -> Transposition | None:
    """The function's block with the axes to exchange; None for other functions."""
    blocks = read_blocks(schedule)
    if len(blocks) != 1 or not _is_plain(blocks[0]):
        return None
    block = blocks[0]
    across = block.axes[-1]
    loads = tuple(
        load
        for load in nest.loads_of(block.body.body.value)
        if uses_shape(load) and step_along(load, across) not in (0, 1)
    )
    along = _along(block, loads) if loads else None
    return None if along is None or along is across else Transposition(block, along, across, loads)


def uses_shape(load: Any) -> bool:
    """Whether a read has indices; reads of scalars have none."""
    return len(load.indices) > 0


def _interleaving(lanes: int, unit: int, group: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The lanes that interleave the units of two vectors: of the lower and the upper half of each group."""

    def half(offset: int) -> tuple[int, ...]:
        return tuple(
            start + offset + place + element + source * lanes
            for start in range(0, lanes, group)
            for place in range(0, group // 2, unit)
            for source in range(2)
            for element in range(unit)
        )

    group = min(group, lanes)
    return half(0), half(group // 2)


def _is_plain(block: Block) -> bool:
    body = block.body.body
    return (
        isinstance(body, tirx.BufferStore)
        and not block.reduced
        and len(block.axes) > 1
        and not has_branch(block.body)
        and len(body.indices) == len(block.axes)
        and all(
            axis.var.same_as(index) or axis.extent == 1
            for axis, index in zip(block.axes, body.indices, strict=True)
        )
    )


def _along(block: Block, loads: tuple[Any, ...]) -> Axis | None:
    """The axis along which all these reads are contiguous and move only their last index."""
    return next(
        (
            axis
            for axis in block.axes
            if axis.extent > 1
            and all(
                step_along(load, axis) == 1
                and not any(uses(index, axis) for index in load.indices[:-1])
                and step_along(load, block.axes[-1]) is not None
                for load in loads
            )
        ),
        None,
    )


def _lanes(found: Transposition, machine: Machine) -> int:
    """The lanes of the widest transposed elements, a power of two up to the extents of both axes."""
    dtypes = {str(load.source.dtype) for load in found.loads}
    if not dtypes.isdisjoint(NOT_IN_VECTORS):
        return 0
    bits = max(nest.bits_of(dtype) for dtype in dtypes)
    lanes = min(machine.lanes(bits), _MAX_LANES)
    while lanes > min(found.along.extent, found.across.extent):
        lanes //= 2
    return lanes


@dataclass(frozen=True)
class _Writer:
    found: Transposition
    lanes: int
    machine: Machine

    def tasks(self) -> tirx.Stmt:
        """All loops."""
        found, lanes = self.found, self.lanes
        others = tuple(axis for axis in found.block.axes if axis not in (found.along, found.across))
        rows, columns = (ceil(axis.extent / lanes) for axis in (found.along, found.across))
        row_pairs, column_pairs = ceil(rows / 2), ceil(columns / 2)

        def task(number: Any) -> tirx.Stmt:
            places = split_place(number // row_pairs, others)

            def pair(column: Any) -> tirx.Stmt:
                return nest.sequence(
                    *(
                        self._tile(places, number % row_pairs * 2 + down, column * 2 + right)
                        for right in range(min(2, columns))
                        for down in range(min(2, rows))
                    )
                )

            return nest.serial(column_pairs, pair, self._index)

        is_parallel = threads_pay(self.machine.threads, found.block.work, WORK_PER_THREAD)
        count = prod(axis.extent for axis in others) * row_pairs
        return nest.tasks(count, task, self._index, parallel=is_parallel)

    @property
    def _index(self) -> str:
        return nest.dtype_of(self.found.across.var)

    def _number(self, value: int) -> Any:
        return tirx.IntImm(self._index, value)

    def _start(self, tile: Any, axis: Axis) -> Any:
        return tirx.Min(tile * self.lanes, self._number(axis.extent - self.lanes))

    def _tile(self, places: dict[Any, Any], row: Any, column: Any) -> tirx.Stmt:
        """Load, transpose and store a tile."""
        found, lanes = self.found, self.lanes
        ones = {axis.var: self._number(0) for axis in found.block.axes if axis.extent == 1}
        start = {
            **ones,
            **places,
            found.along.var: self._start(row, found.along),
            found.across.var: self._start(column, found.across),
        }
        tiles = [nest.registers((lanes, lanes), str(load.source.dtype), "tile") for load in found.loads]
        statements = [nest.declare(tile) for tile in tiles]
        for load, tile in zip(found.loads, tiles, strict=True):
            statements += self._transposed(load, tile, start)
        for place in range(lanes):
            statements.append(self._stored(tiles, start, place))
        return nest.sequence(*statements)

    def _transposed(self, load: Any, tile: Any, start: dict[Any, Any]) -> list[tirx.Stmt]:
        """Fill a tile with the elements of a read; its rows are along the output's last axis."""
        across, line = self.found.across.var, tirx.Ramp(self._number(0), self._number(1), self.lanes)

        def vector(number: int) -> Any:
            place = {**start, across: start[across] + number}
            *outer, last = (nest.substitute(index, place) for index in load.indices)
            return load.source[(*outer, tirx.Ramp(last, self._number(1), self.lanes))]

        statements, columns = transposed(list(map(vector, range(self.lanes))), str(load.source.dtype))
        stores = [nest.store(tile, column, self._number(place), line) for place, column in enumerate(columns)]
        return [*statements, *stores]

    def _stored(self, tiles: list[Any], start: dict[Any, Any], place: int) -> tirx.Stmt:
        """Compute and store one vector of the output from a row of the tiles."""
        found = self.found
        along = start[found.along.var] + place

        def element(lane: Any) -> tirx.Stmt:
            places = {**start, found.along.var: along, found.across.var: start[found.across.var] + lane}
            value = found.block.body.body.value
            for load, tile in zip(found.loads, tiles, strict=True):
                value = _replaced(value, load, tile[self._number(place), lane])
            indices = (nest.substitute(index, places) for index in found.block.body.body.indices)
            return nest.store(found.block.body.writes[0].source, nest.substitute(value, places), *indices)

        return nest.vectorized(self.lanes, element, self._index)


def _replaced(value: Any, load: Any, number: Any) -> Any:
    """An expression with one read replaced."""

    def replaced(read: Any) -> Any:
        return number if tvm_ffi.structural_equal(read, load) else read

    return tvm_ffi.structural_map(value, (TensorLoad, replaced))
