"""The loops of a matrix product, from its plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Places, split_place
from worker.compiler.schedules.families.matmul.panel import copy_panel
from worker.compiler.schedules.families.matmul.plan import FEW_ROWS, MatmulPlan, panels
from worker.compiler.schedules.families.matmul.product import Product
from worker.compiler.schedules.processors import CACHE_LINE

TileAt = Callable[["Origin"], tirx.Stmt]
"""The statement for a tile's origin."""
OfRows = Callable[[TileAt], tirx.Stmt]
"""The loop over the tiles of rows that use a panel, or all panels, with the body for a tile's origin."""
Element = Callable[[Any, Any, Any], Any]
"""An expression or a statement for the tile's element at ``(row, vector, lane)``."""


@dataclass(frozen=True)
class Origin:
    """The origin of a tile: first row and column, panel, the batch's variables, the panel's copy if any.

    ``visit`` counts the tiles of rows that use the panel, ``tile`` those of the chunk.
    """

    row: Any
    column: Any
    panel: Any
    batch: Places
    copy: Any
    visit: Any
    tile: Any


@dataclass(frozen=True)
class Writer:
    """Writes the loops of one product.

    Attributes:
        product: the product.
        plan: how it is computed.
        ahead: how far packed weights that are read once are prefetched, in bytes.
        visits: how many tiles of rows use a panel of packed weights while the next one is prefetched; 0
            prefetches none.
    """

    product: Product
    plan: MatmulPlan
    ahead: int
    visits: int

    def tasks(self) -> tirx.Stmt:
        """All loops."""
        if self.plan.parts_outside:
            return self._parts_outside()
        chunks, side_by_side = self._chunks, nest.ceil_div(self.product.column.size, self.plan.tile.columns)
        tasks = self.product.batch_count * side_by_side * chunks

        def task(index: Any) -> tirx.Stmt:
            inner = side_by_side if self.plan.chunks_outside else chunks
            place = index % (chunks * side_by_side)
            chunk, panel = place % inner, place // inner
            if self.plan.chunks_outside:
                chunk, panel = panel, chunk
            batch = index // (chunks * side_by_side)
            return self._named((chunk, "chunk"), (panel, "panel"), (batch, "batch"), body=self._task)

        return nest.tasks(tasks, task, self._index, parallel=self.plan.parallel)

    def _named(self, *values: tuple[Any, str], body: Callable[..., tirx.Stmt]) -> tirx.Stmt:
        """A statement that reads values from registers if dynamic sizes make their expressions long."""
        return (
            nest.all_named(values, body) if self.product.is_dynamic else body(*(value for value, _ in values))
        )

    @property
    def _index(self) -> str:
        return self.product.index_dtype

    @property
    def _row_tiles(self) -> nest.Size:
        return nest.ceil_div(self.product.row_count, self.plan.tile.rows)

    @property
    def _chunks(self) -> nest.Size:
        return nest.ceil_div(self._row_tiles, self.plan.chunk_tiles)

    @property
    def _narrow(self) -> bool:
        """Whether the product has fewer columns than a tile; dynamic columns are compared at run time."""
        return not self.product.column.is_dynamic and self.product.column.extent < self.plan.tile.columns

    def _task(self, chunk: Any, panel: Any, batch: Any) -> tirx.Stmt:
        places = split_place(batch, self.product.batch)
        prologue, copy = [], None
        if self.plan.copies:
            column = self._clamped(panel, self.plan.tile.columns, self.product.column.size)
            copy, statement = self._copy_panel(column, places)
            prologue = [nest.declare(copy), statement]

        def of_rows(tile_at: TileAt) -> tirx.Stmt:
            return self._tiles_of(chunk, panel, places, copy, tile_at)

        return nest.sequence(*prologue, self._all_depth(of_rows, self.plan.chunk_tiles))

    def _tiles_of(self, chunk: Any, panel: Any, places: Places, copy: Any, tile_at: TileAt) -> tirx.Stmt:
        """The loop over the tiles of a chunk that use a panel."""
        product, tile = self.product, self.plan.tile
        column = self._clamped(panel, tile.columns, product.column.size)
        first, tiles = nest.share(chunk, self._row_tiles, self.plan.chunk_tiles)

        def of_row(index: Any) -> tirx.Stmt:
            row = self._clamped(first + index, tile.rows, product.row_count)
            visit = index if self.plan.chunks_outside else first + index
            return self._named(
                (row, "row"),
                body=lambda row: tile_at(Origin(row, column, panel, places, copy, visit, index)),
            )

        return nest.serial(tiles, of_row, self._index)

    def _all_depth(self, of_rows: OfRows, most_tiles: int) -> tirx.Stmt:
        """The tiles of a panel, with the whole depth at once or with a part of it for all of them at a time.

        LLVM unrolls a loop over the parts of one tile and runs out of registers, so memory keeps the sums.

        Args:
            of_rows: the loop over the tiles.
            most_tiles: the number of tiles, or more.
        """
        depth, steps, tile = self.product.depth.size, self.plan.steps, self.plan.tile
        is_short = tile.rows <= FEW_ROWS and self.plan.chunk_tiles == 1
        if is_short or not isinstance(depth, int) or steps >= depth:
            return of_rows(self._tile)
        return self._in_parts(of_rows, (1, most_tiles))

    def _parts_outside(self) -> tirx.Stmt:
        """All tiles of all panels with a part of the depth at a time."""
        side_by_side = panels(self.product.column.extent, self.plan.tile)

        def of_rows(tile_at: TileAt) -> tirx.Stmt:
            return nest.tasks(
                side_by_side,
                lambda panel: self._tiles_of(0, panel, {}, None, tile_at),
                self._index,
                parallel=self.plan.parallel,
            )

        return self._in_parts(of_rows, (side_by_side, self.plan.chunk_tiles))

    def _in_parts(self, of_rows: OfRows, counts: tuple[int, int]) -> tirx.Stmt:
        """Add a part of the depth at a time to the sums of all tiles, which memory keeps.

        Args:
            of_rows: the loop over the tiles.
            counts: their panels and the tiles of each, or more.
        """
        tile, depth, steps = self.plan.tile, self.product.depth.extent, self.plan.steps
        kept_shape = (*counts, tile.rows, tile.vectors, tile.lanes)
        kept = nest.workspace(kept_shape, self.product.dtype, "kept")
        parts = ceil(depth / steps)

        def clear(origin: Origin) -> tirx.Stmt:
            return self._each(lambda *at: nest.store(kept, self._zero, *_place(kept, origin), *at))

        def part(index: Any) -> tirx.Stmt:
            return of_rows(lambda origin: self._part(index * steps, steps, origin, kept, is_last=False))

        def last(origin: Origin) -> tirx.Stmt:
            start = (parts - 1) * steps
            return self._part(start, depth - start, origin, kept, is_last=True)

        return nest.sequence(
            nest.declare(kept), of_rows(clear), nest.serial(parts - 1, part, self._index), of_rows(last)
        )

    def _part(self, start: Any, steps: int, origin: Origin, kept: Any, *, is_last: bool) -> tirx.Stmt:
        tile = self.plan.tile
        sums = nest.registers((tile.chains, tile.rows, tile.vectors, tile.lanes), self.product.dtype, "sums")
        joined, place = self._joined(sums), _place(kept, origin)

        def total(*at: Any) -> Any:
            return kept[(*place, *at)] + joined(*at)

        add = self._each(lambda *at: nest.store(kept, total(*at), *place, *at))
        after = self._stores(total, origin) if is_last else [add]
        return nest.sequence(nest.declare(sums), self._sum(sums, start, steps, origin), *after)

    def _copy_panel(self, column: Any, places: Places) -> tuple[Any, tirx.Stmt]:
        """A copy of the right operand's columns from ``column`` on, and the statement that fills it."""
        return copy_panel(self.product, self.plan.tile.columns, column, places)

    def _clamped(self, number: Any, side: int, size: nest.Size) -> Any:
        """The start of a tile, moved back so that the tile ends within the output."""
        last = nest.larger(0, size - side)
        return tirx.Min(number * side, tirx.IntImm(self._index, last) if isinstance(last, int) else last)

    def _tile(self, origin: Origin) -> tirx.Stmt:
        tile, depth, steps = self.plan.tile, self.product.depth.size, self.plan.steps
        sums = nest.registers((tile.chains, tile.rows, tile.vectors, tile.lanes), self.product.dtype, "sums")
        joined = self._joined(sums)
        if isinstance(depth, int) and steps == depth:
            return nest.sequence(
                nest.declare(sums), self._sum(sums, 0, depth, origin), *self._stores(joined, origin)
            )
        total = nest.registers((tile.rows, tile.vectors, tile.lanes), self.product.dtype, "total")
        add = self._each(lambda *at: nest.store(total, total[at] + joined(*at), *at))
        whole, rest = depth // steps, depth % steps
        has_rest = not isinstance(rest, int) or rest > 0

        def part(index: Any) -> tirx.Stmt:
            return nest.sequence(self._sum(sums, index * steps, steps, origin), add)

        return nest.sequence(
            nest.declare(sums),
            nest.declare(total),
            self._each(lambda *at: nest.store(total, self._zero, *at)),
            nest.serial(whole, part, self._index),
            *([self._sum(sums, whole * steps, rest, origin), add] if has_rest else []),
            *self._stores(lambda *at: total[at], origin),
        )

    @property
    def _zero(self) -> Any:
        return nest.constant(0, self.product.dtype)

    def _joined(self, sums: Any) -> Element:
        """The sum over the chains, added up pairwise."""

        def value(*at: Any) -> Any:
            terms = [sums[(chain, *at)] for chain in range(self.plan.tile.chains)]
            while len(terms) > 1:
                terms = [one + other for one, other in zip(terms[::2], terms[1::2], strict=True)]
            return terms[0]

        return value

    def _each(self, statement: Element) -> tirx.Stmt:
        """An unrolled statement for every element of the tile."""
        tile, index = self.plan.tile, self._index

        def row(r: Any) -> tirx.Stmt:
            return nest.unrolled(tile.vectors, lambda v: self._vector(r, v, statement), index)

        return nest.unrolled(tile.rows, row, index)

    def _in_one_loop(self, statement: Element) -> tirx.Stmt:
        """The same statement in one loop over rows and vectors.

        With nested loops, LLVM takes the inner one for hotter than the depth's loop and gives the registers
        of the sums to the epilogue's constants.
        """
        tile = self.plan.tile

        def vector(number: Any) -> tirx.Stmt:
            return self._vector(number // tile.vectors, number % tile.vectors, statement)

        return nest.serial(tile.rows * tile.vectors, vector, self._index)

    def _vector(self, r: Any, v: Any, statement: Element) -> tirx.Stmt:
        return nest.vectorized(self.plan.tile.lanes, lambda lane: statement(r, v, lane), self._index)

    def _sum(self, sums: Any, start: Any, steps: nest.Size, origin: Origin) -> tirx.Stmt:
        """Clear the sums, then accumulate ``steps`` of the depth; the chains take turns."""
        chains = self.plan.tile.chains
        left, right = self._left(origin), self._right(origin)

        def clear(chain: int) -> tirx.Stmt:
            return self._each(lambda *at: nest.store(sums, self._zero, chain, *at))

        def step(place: Any, chain: int) -> tirx.Stmt:
            def add(r: Any, v: Any, lane: Any) -> tirx.Stmt:
                product = left(place, r) * right(place, v, lane)
                return nest.store(sums, sums[chain, r, v, lane] + product, chain, r, v, lane)

            return self._each(add)

        def turn(index: Any) -> tirx.Stmt:
            first = start + index * chains
            steps = (step(first + chain, chain) for chain in range(chains))
            return nest.sequence(*self._prefetches(first, origin), *steps)

        whole, rest = steps // chains, steps % chains
        cleared = [clear(chain) for chain in range(chains)]
        if not isinstance(steps, int):
            one_by_one = nest.serial(rest, lambda place: step(start + whole * chains + place, 0), self._index)
            return nest.sequence(*cleared, nest.serial(whole, turn, self._index), one_by_one)
        last = tirx.IntImm(self._index, whole * chains) + start
        return nest.sequence(
            *cleared,
            *self._turns(whole, turn, start, origin),
            *(step(last + chain, chain) for chain in range(rest)),
        )

    def _turns(
        self, count: int, turn: Callable[[Any], tirx.Stmt], start: Any, origin: Origin
    ) -> list[tirx.Stmt]:
        """The turns from the step ``start`` on.

        Before each ``visits`` turns comes the share of the next panel that they prefetch: as many rows as a
        turn has steps.
        """
        between, chains = self.visits, self.plan.tile.chains
        if not between or count < between:
            return [nest.serial(count, turn, self._index)] if count else []
        blocks, rest = divmod(count, between)
        depth = self.product.depth.size
        done = origin.visit * (depth // between) + start // between
        if self.plan.parts_outside:
            done = start + origin.visit * (self.plan.steps // between)

        def block(index: Any) -> tirx.Stmt:
            turns = nest.serial(between, lambda number: turn(index * between + number), self._index)
            return nest.sequence(*self._next_panel(done + index * chains, origin), turns)

        after = nest.serial(rest, lambda number: turn(number + blocks * between), self._index)
        return [nest.serial(blocks, block, self._index), *([after] if rest else [])]

    def _next_panel(self, row: Any, origin: Origin) -> list[tirx.Stmt]:
        """Prefetch the lines of the next panel's rows from ``row`` on, as many as there are chains."""
        tile = self.plan.tile
        (packed,) = nest.loads_of(self.product.right)
        lanes = max(1, CACHE_LINE * 8 // nest.bits_of(packed.source.dtype))
        first = row + self.product.depth.size
        return [
            nest.prefetch(packed.source, origin.panel, first + chain, column, into=nest.FAR)
            for chain in range(tile.chains)
            for column in range(0, tile.columns, lanes)
        ]

    def _prefetches(self, first: Any, origin: Origin) -> list[tirx.Stmt]:
        """Prefetch the lines of weights that come ``ahead`` bytes after those of a turn.

        At the end of a panel, these are the next panel's.
        """
        if not self.ahead:
            return []
        tile = self.plan.tile
        (packed,) = nest.loads_of(self.product.right)
        size = nest.bits_of(packed.source.dtype) // 8
        distance = nest.ceil_div(self.ahead, tile.columns * size)
        return [
            nest.prefetch(packed.source, origin.panel, first + distance + chain, column)
            for chain in range(tile.chains)
            for column in range(0, tile.columns, max(1, CACHE_LINE // size))
        ]

    def _rows(self, row: Any) -> Places:
        """The values of the rows' variables."""
        return split_place(row, self.product.rows)

    def _left(self, origin: Origin) -> Callable[[Any, Any], Any]:
        """The left operand's element at a step of the depth and a row of the tile."""
        product = self.product

        def value(step: Any, r: Any) -> Any:
            rows = self._rows(origin.row + r)
            return nest.substitute(product.left, {**origin.batch, **rows, product.depth.var: step})

        return value

    def _right(self, origin: Origin) -> Element:
        """The right operand's element at a step of the depth and ``(vector, lane)``."""
        product, lanes = self.product, self.plan.tile.lanes

        def of_panel(packed: Any, step: Any, v: Any, lane: Any) -> Any:
            return packed.source[origin.panel, step, v * lanes + lane]

        if origin.copy is not None:
            return lambda step, v, lane: origin.copy[step, v * lanes + lane]
        if product.packed is not None:
            (packed,) = nest.loads_of(product.right)
            return lambda *at: nest.replace_loads(
                product.right, packed.source, lambda _: of_panel(packed, *at)
            )

        def value(step: Any, v: Any, lane: Any) -> Any:
            column = origin.column + v * lanes + lane
            places = {**origin.batch, product.depth.var: step, product.column.var: column}
            return nest.substitute(product.right, places)

        return value

    def _stores(self, value: Element, origin: Origin) -> list[tirx.Stmt]:
        """Apply the epilogue to the tile and store it; in a loop if the columns are dynamic."""
        if not self.product.column.is_dynamic:
            return [self._results(value, origin)]
        tile = self.plan.tile
        kept = nest.workspace((tile.rows, tile.vectors, tile.lanes), self.product.dtype, "kept")
        keep = self._each(lambda *at: nest.store(kept, value(*at), *at))
        return [nest.declare(kept), keep, self._looped(kept, origin)]

    def _looped(self, kept: Any, origin: Origin) -> tirx.Stmt:
        """Store the results in loops, from sums in memory."""
        results = self._in_one_loop(self._element(lambda *at: kept[at], origin))
        enough = self.product.column.size >= self.plan.tile.columns
        return nest.either(enough, results, self._first_columns(lambda *at: kept[at], origin))

    def _results(self, value: Element, origin: Origin) -> tirx.Stmt:
        element, lanes = self._element(value, origin), self.plan.tile.lanes
        if not self._narrow:
            return self._each(element)
        places = [divmod(column, lanes) for column in range(self.product.column.size)]
        numbers = [tuple(tirx.IntImm(self._index, number) for number in place) for place in places]

        def row(r: Any) -> tirx.Stmt:
            return nest.sequence(*(element(r, v, lane) for v, lane in numbers))

        return nest.unrolled(self.plan.tile.rows, row, self._index)

    def _first_columns(self, value: Element, origin: Origin) -> tirx.Stmt:
        """Store only the columns that exist, one by one."""
        element, lanes = self._element(value, origin), self.plan.tile.lanes

        def row(r: Any) -> tirx.Stmt:
            return nest.serial(
                self.product.column.size,
                lambda column: element(r, column // lanes, column % lanes),
                self._index,
            )

        return nest.serial(self.plan.tile.rows, row, self._index)

    def _element(self, value: Element, origin: Origin) -> Element:
        """Returns the statement that stores one element of the tile."""
        product, lanes = self.product, self.plan.tile.lanes

        def element(r: Any, v: Any, lane: Any) -> tirx.Stmt:
            rows = self._rows(origin.row + r)
            column = origin.column + v * lanes + lane
            return product.result(value(r, v, lane), {**origin.batch, **rows, product.column.var: column})

        return element


def _place(kept: Any, origin: Origin) -> tuple[Any, Any]:
    """Where memory keeps the sums of a tile."""
    return (origin.panel if int(kept.shape[0]) > 1 else 0, origin.tile)
