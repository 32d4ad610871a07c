"""A factor's tile in shared memory, and the copies that fill it.

A tile has rows of 16-byte chunks. If neighbors in memory are neighbors along the depth, a row holds the
tile's depth at one row (or column) of the product; otherwise it holds the tile's rows (or columns) at one
step of the depth. Threads that read neighboring rows at once would meet in the same banks, so a row's
chunks are permuted::

    chunk c of row r lies at c ^ ((r >> shift & mask) << up)

Each thread copies every ``threads``-th piece of a tile. A piece is as wide as neighbors in memory are
aligned, 16 bytes at best. Pieces outside the factor are zeros and are never read. A piece that needs no
computation goes straight to shared memory (``cp.async``), the others through registers: they are read
before the products of the current tile and written after them.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from math import ceil
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.gpu.products import threads as gpu_threads
from worker.compiler.schedules.gpu.products.contraction import Factor
from worker.compiler.schedules.gpu.products.threads import INT, number

CHUNK_BYTES = 16
_PANEL = 8
_LINE = 128
"""Bytes of all banks of shared memory."""


@dataclass(frozen=True)
class Swizzle:
    """How the chunks of a row are permuted."""

    shift: int
    mask: int
    up: int

    def place(self, row: Any, chunk: Any) -> Any:
        """Where a chunk of a row lies."""
        if self.mask == 0:
            return chunk
        bits = tirx.bitwise_and(tirx.shift_right(row, number(self.shift)), number(self.mask))
        moved = tirx.shift_left(bits, number(self.up)) if self.up else bits
        return tirx.bitwise_xor(chunk, moved)


@dataclass(frozen=True)
class Tile:
    """A factor's tile of ``outer`` rows (or columns) and ``depth`` steps.

    Attributes:
        stages: how many such tiles shared memory holds.
        threads: the number of threads that copy.
        start: the byte of shared memory where the first one begins.
        is_async: whether pieces go straight to shared memory.
        along_depth: whether a row holds the depth.
        width: the elements of a piece.
        loads_singles: whether threads read single elements of four rows at once.
        has_panels: whether rows of more than 8 chunks are cut, and all rows' first 8 chunks come first.
        is_rounded: whether each thread rounds what it has copied to tf32: tensor cores would truncate it, and
            sums would shrink from layer to layer of a network.
    """

    factor: Factor
    outer: int
    depth: int
    stages: int
    threads: int
    is_async: bool
    along_depth: bool
    width: int
    loads_singles: bool = False
    has_panels: bool = False
    is_rounded: bool = False
    name: str = "tile"
    start: int = 0

    @property
    def lanes(self) -> int:
        """The elements of a chunk."""
        return CHUNK_BYTES * 8 // self.bits

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return nest.bits_of(self.factor.dtype)

    @property
    def rows(self) -> int:
        """The rows in shared memory."""
        return self.outer if self.along_depth else self.depth

    @property
    def chunks(self) -> int:
        """The chunks of a row."""
        return (self.depth if self.along_depth else self.outer) // self.lanes

    @property
    def elements(self) -> int:
        """The elements of a tile."""
        return self.outer * self.depth

    @property
    def pieces(self) -> int:
        """The pieces that threads copy."""
        return self.elements // self.width

    @property
    def pieces_per_thread(self) -> int:
        """The pieces that one thread copies, at most."""
        return ceil(self.pieces / self.threads)

    @property
    def swizzle(self) -> Swizzle:
        """The permutation that keeps eight rows that are read at once in different banks."""
        chunks = self.chunks
        if self.loads_singles:
            return Swizzle(0, 3, 1) if chunks >= 8 else Swizzle(0, 0, 0)
        in_line = min(chunks & -chunks, _LINE // CHUNK_BYTES)
        shift = {8: 0, 4: 1, 2: 2}.get(in_line, 0)
        return Swizzle(shift, in_line - 1, 0)

    @property
    def size(self) -> int:
        """The bytes of all its tiles."""
        return self.stages * self.elements * self.bits // 8

    def panel_place(self, slot: Any, panel: Any, row: Any) -> Any:
        """Where a row of a panel begins in the buffer, in elements."""
        first = self.start // CHUNK_BYTES
        return (slot * (self.rows * self.chunks) + (panel * self.rows + row) * _PANEL + first) * self.lanes

    def place(self, slot: Any, row: Any, chunk: Any) -> Any:
        """Where a chunk begins in the buffer, in elements."""
        if self.has_panels:
            inside = tirx.floormod(chunk, _PANEL)
            panel = self.panel_place(slot, tirx.floordiv(chunk, _PANEL), row)
            return panel + self.swizzle.place(row, inside) * self.lanes
        first = self.start // CHUNK_BYTES
        return (
            slot * (self.rows * self.chunks) + row * self.chunks + self.swizzle.place(row, chunk) + first
        ) * self.lanes


class Copies:
    """The copies of one thread into the tiles of a factor."""

    def __init__(self, tile: Tile, buffer: Any, thread: Any, batch: Any, outer_start: Any) -> None:
        self.tile, self.buffer, self._thread = tile, buffer, thread
        self._batch, self._outer_start = batch, outer_start
        self._held = nest.registers(
            (tile.pieces_per_thread * tile.width,), tile.factor.dtype, f"{tile.name}_held"
        )

    def at(self, outer_start: Any) -> Copies:
        """The copies of tiles that begin at another row (or column), through the same registers."""
        moved = copy(self)
        moved._outer_start = outer_start
        return moved

    def allocations(self) -> tuple[tirx.Stmt, ...]:
        """The registers that pieces pass through, if any."""
        return () if self.tile.is_async else (nest.declare(self._held),)

    def start(self, depth_start: Any, slot: Any) -> tirx.Stmt:
        """Copy a tile without registers."""
        return self._each(lambda at: self._copy(at, depth_start, slot))

    def read(self, depth_start: Any) -> tirx.Stmt:
        """Read a tile into registers."""
        return self._each(lambda at: self._read(at, depth_start))

    def write(self, slot: Any) -> tirx.Stmt:
        """Write a tile from registers."""
        return self._each(lambda at: self._write(at, slot))

    def round(self, slot: Any) -> tirx.Stmt:
        """Round this thread's part of a tile that has arrived."""
        return self._each(
            lambda at: gpu_threads.round_in_place(self.buffer[self._target(at, slot)], self.tile.width)
        )

    def _each(self, body: Any) -> tirx.Stmt:
        tile = self.tile
        unroll = gpu_threads.unrolled if tile.is_async else gpu_threads.unrolled_by_compiler

        def one(position: Any) -> tirx.Stmt:
            statement: tirx.Stmt = body(position)
            if tile.pieces % tile.threads == 0:
                return statement
            return gpu_threads.when(self._piece(position) < tile.pieces, statement)

        return unroll(tile.pieces_per_thread, one)

    def _piece(self, position: Any) -> Any:
        return position * self.tile.threads + self._thread

    def _coordinates(self, position: Any) -> tuple[Any, Any, Any]:
        """A piece's row, its chunk, and its first element in the chunk."""
        tile = self.tile
        parts = tile.lanes // tile.width
        per_row = tile.chunks * parts
        piece = self._piece(position)
        row, rest = tirx.floordiv(piece, per_row), tirx.floormod(piece, per_row)
        return row, tirx.floordiv(rest, parts), tirx.floormod(rest, parts) * tile.width

    def _source(self, position: Any, depth_start: Any) -> tuple[Any, Any]:
        """The first indices of a piece: of the rows or columns, and of the depth."""
        tile = self.tile
        row, chunk, first = self._coordinates(position)
        along = chunk * tile.lanes + first
        outer, depth = (row, along) if tile.along_depth else (along, row)
        return wide(self._outer_start + outer), wide(depth_start + depth)

    def _is_inside(self, outer: Any, depth: Any) -> Any:
        factor, tile = self.tile.factor, self.tile
        conditions = []
        if factor.outer.size % tile.outer:
            conditions.append(outer < factor.outer.size)
        conditions.append(depth < factor.depth.size)
        return conditions

    def _places(self, outer: Any, depth: Any, lane: Any = None) -> Any:
        factor = self.tile.factor
        places = dict(self._batch)
        if lane is None:
            return places | factor.outer.places(outer) | factor.depth.places(depth)
        if self.tile.along_depth:
            return places | factor.outer.places(outer) | factor.depth.places_along(depth, lane)
        return places | factor.outer.places_along(outer, lane) | factor.depth.places(depth)

    def _target(self, position: Any, slot: Any) -> Any:
        row, chunk, first = self._coordinates(position)
        return self.tile.place(slot, row, chunk) + first

    def _copy(self, position: Any, depth_start: Any, slot: Any) -> tirx.Stmt:
        source = self.tile.factor.source
        assert source is not None
        load, condition = source
        outer, depth = self._source(position, depth_start)
        places = self._places(outer, depth)
        inside = self._is_inside(outer, depth)
        if condition is not None:
            inside.append(nest.substitute(condition, places))
        size = self.tile.width * self.tile.bits // 8
        return gpu_threads.copy_async(
            self.buffer[self._target(position, slot)],
            nest.substitute(load, places),
            size,
            gpu_threads.all_of(inside),
        )

    def _read(self, position: Any, depth_start: Any) -> tirx.Stmt:
        width, held = self.tile.width, self._held
        outer, depth = self._source(position, depth_start)

        def value(lane: Any) -> tirx.Stmt:
            places = self._places(outer, depth, wide(lane))
            computed = nest.substitute(self.tile.factor.value, places)
            return nest.store(held, computed, position * width + lane)

        def zero(lane: Any) -> tirx.Stmt:
            return nest.store(held, tirx.const(0, self.tile.factor.dtype), position * width + lane)

        return nest.either(
            gpu_threads.all_of(self._is_inside(outer, depth)),
            nest.vectorized(width, value, INT),
            nest.vectorized(width, zero, INT),
        )

    def _write(self, position: Any, slot: Any) -> tirx.Stmt:
        width, target = self.tile.width, self._target(position, slot)
        return nest.sequence(
            *(_rounded(self._held, position * width, width) if self.tile.is_rounded else ()),
            nest.vectorized(
                width,
                lambda lane: nest.store(self.buffer, self._held[position * width + lane], target + lane),
                INT,
            ),
        )


def _rounded(registers: Any, first: Any, count: int) -> list[tirx.Stmt]:
    return [
        nest.store(registers, gpu_threads.round_to_tf32(registers[first + lane]), first + lane)
        for lane in range(count)
    ]


def make_tile(
    factor: Factor,
    outer: int,
    *,
    depth: int,
    stages: int,
    threads: int,
    name: str,
    start: int,
    can_copy_async: bool,
    loads_singles: bool = False,
    has_panels: bool = False,
    is_rounded: bool = False,
) -> Tile:
    """The tile of a factor that is copied by the widest pieces.

    Args:
        factor: the factor.
        outer: its rows or columns in a tile.
        depth: its steps in a tile.
        stages: how many tiles shared memory holds.
        threads: the number of threads that copy.
        name: the buffer's name.
        start: the byte of shared memory where the first tile begins.
        can_copy_async: whether the GPU copies without registers.
        loads_singles: whether threads load single elements where rows do not hold the depth.
        has_panels: as in ``Tile``.
        is_rounded: as in ``Tile``.
    """
    along_depth = factor.is_along_depth
    group = factor.depth if along_depth else factor.outer
    is_async = can_copy_async and factor.can_copy_async
    width = factor.width_along(group, in_inner=not is_async)
    lanes = CHUNK_BYTES * 8 // nest.bits_of(factor.dtype)
    return Tile(
        factor=factor,
        outer=outer,
        depth=depth,
        stages=stages,
        threads=threads,
        is_async=is_async,
        along_depth=along_depth,
        width=min(width, lanes),
        loads_singles=loads_singles and not along_depth,
        has_panels=has_panels,
        is_rounded=is_rounded,
        name=name,
        start=start,
    )


def wide(index: Any) -> Any:
    """A thread's index as the functions' own 64-bit indices; TVM narrows both again."""
    return tirx.Cast("int64", index)
