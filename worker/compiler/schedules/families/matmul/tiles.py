"""Products of float32, float16 and bfloat16 by Intel's tile registers, which multiply bfloat16 (AMX).

A float32 has 24 bits of mantissa, and a bfloat16 has 8 of them: each number is the exact sum of three, the
nearest bfloat16, that of the rest, and the rest of that: high, middle and low. Of the nine products of two
such sums, six are as exact as float32: the others are together below 2**-23 of the product, and float32
rounds every sum to 2**-24. Six products of tiles are faster than one of vectors by 16 / 6 in theory, and by
1.3 to 1.6 as measured. A float16 is the sum of two bfloat16, and a bfloat16 is its only part: the sums of
their four products, and of one, are exact::

    for parallel task in (chunk of rows, group of panels):
        for part of the depth:
            split the chunk's rows of the left factor into tiles         [parts, row tiles, steps, 16, 32]
            for panel in group:
                split the panel of the right factor into tiles           [parts, steps, column tiles, 16, 16]
                for two row tiles in chunk:
                    four tiles of sums = the sums so far
                    for step of 32 in the part:
                        add six products to each of the four             # high * high, high * middle, …
                    sums[rows, columns] = the tiles
        and with the last part:
                    if a sum is not finite: compute the sums again in float32
                    for row, vector: output[...] = epilogue(sums)

Tile registers hold four tiles of sums, two of the left factor and two of the right. L2 holds the chunk's
tiles of the left factor, which every panel reads again, and those of one panel. If the depth has one part,
the sums of 32 x 32 stay in L1; otherwise memory keeps those of a task.

Edges: the last rows move back over their neighbors, as do the last panel's columns. Zeros fill the second
half of the last step. The lower parts of an infinite number are NaN, and so is the sum: it is computed again.
Where only one of two overlapping blocks is, either result may remain. In an image of bfloat16 that its
producer did not round, a NaN with almost all bits set may count as zero. Tiles take subnormal numbers for
zeros, so products below 1e-30 lose digits with their parts. If the process may not use tile registers, the
loops of ``loops`` run.

Source: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype for
Higher-Precision Computations", 2019, for the split; Intel 64 and IA-32 Architectures Optimization Reference
Manual, chapter 20, for two by two tiles of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from math import ceil
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest, tiles
from worker.compiler.schedules.blocks import split_place
from worker.compiler.schedules.families.matmul.loops import Element
from worker.compiler.schedules.families.matmul.product import Product
from worker.compiler.schedules.families.matmul.tile_plan import (
    EXACT,
    PANEL,
    PARTS,
    TERMS,
    VECTORS,
    AmxPlan,
    faster_by_tiles,
)
from worker.compiler.schedules.processors import Machine

_EXACT_ROWS = 8
"""Rows whose sums registers hold, where sums are computed again in float32."""
_SUMS_STRIDE = 4 * PANEL
_MAGNITUDE = 0x7FFFFFFF
_INFINITE = 0x7F800000
_HIGH = 0xFFFF0000


def tile_parts(product: Product, machine: Machine) -> int | None:
    """The parts of a product's numbers if tile registers compute it; None if vectors do.

    It must be by packed weights, of constant sizes, and with sums of float32.
    """
    factors = product.left, product.right
    if product.is_dynamic or product.batch or product.packed != PANEL:
        return None
    if {product.dtype, *map(nest.dtype_of, factors)} != {"float32"}:
        return None
    parts = max(map(_parts, factors))
    return parts if faster_by_tiles(product.shape, machine, parts) else None


def _parts(factor: Any) -> int:
    return PARTS.get(nest.dtype_of(factor.value), EXACT) if isinstance(factor, tirx.Cast) else EXACT


@dataclass(frozen=True)
class Operands:
    """What the loops of a product read and write.

    Attributes:
        rows: rows of the product.
        panels: panels of 32 columns.
        steps: steps of 32 of the depth.
        index: the dtype of the loops.
        left: ``(row, step, half, lane)``: the left factor, at a lane of either half of a step.
        right: ``(panel, step, place, vector, lane)``: the right factor, at a place of the step.
        result: ``(sum, row, panel, vector, lane)``: the statement that stores a result.
        rows_inside: whether rows lie closer together in memory than steps.
    """

    rows: int
    panels: int
    steps: int
    index: str
    left: Callable[[Any, Any, Any, Any], Any]
    right: Callable[[Any, Any, Any, Any, Any], Any]
    result: Callable[[Any, Any, Any, Any, Any], tirx.Stmt]
    rows_inside: bool = False


def product_operands(product: Product) -> Operands:
    """The operands of a product by packed weights."""
    (packed,) = nest.loads_of(product.right)
    index, shape = product.index_dtype, product.shape
    halves = shape.depth // tiles.ROWS

    def left(row: Any, step: Any, half: Any, lane: Any) -> Any:
        place = step * tiles.STEPS + half * tiles.ROWS + lane
        value = nest.substitute(product.left, {**split_place(row, product.rows), product.depth.var: place})
        return or_zero(step * 2 + half, halves, value)

    def right(panel: Any, step: Any, place: Any, vector: Any, lane: Any) -> Any:
        indices = panel, step * tiles.STEPS + place, vector * tiles.ROWS + lane
        value = nest.replace_loads(product.right, packed.source, lambda _: packed.source[indices])
        return or_zero(step * 2 + place // tiles.ROWS, halves, value)

    def result(value: Any, row: Any, panel: Any, vector: Any, lane: Any) -> tirx.Stmt:
        last = tirx.IntImm(index, product.column.extent - PANEL)
        column = tirx.Min(panel * PANEL, last) + vector * tiles.ROWS + lane
        return product.result(value, {**split_place(row, product.rows), product.column.var: column})

    return Operands(
        rows=shape.rows,
        panels=ceil(shape.columns / PANEL),
        steps=ceil(halves / 2),
        index=index,
        left=left,
        right=right,
        result=result,
    )


def or_zero(half: Any, halves: int, value: Any) -> Any:
    """A number of a factor, or zero in the second half of the last step if the depth ends before it."""
    return value if halves % 2 == 0 else tirx.if_then_else(half < halves, value, tirx.const(0, "float32"))


def by_tiles(operands: Operands, plan: AmxPlan, otherwise: tirx.Stmt) -> tirx.Stmt:
    """The loops of a product by tile registers, and others for where the process may not use them."""
    loops = _TileLoops(operands, plan).tasks()
    return nest.importing(tiles.CODE, nest.either(tiles.requested(), loops, otherwise))


@dataclass(frozen=True)
class _TileLoops:
    """Writes the loops of one product."""

    operands: Operands
    plan: AmxPlan

    @property
    def _index(self) -> str:
        return self.operands.index

    @property
    def _pairs(self) -> int:
        """Pairs of row tiles."""
        return ceil(self.operands.rows / PANEL)

    @property
    def _turns(self) -> int:
        """Parts of the depth."""
        return ceil(self.operands.steps / self.plan.part_steps)

    @property
    def _most_panels(self) -> int:
        """Panels of a group."""
        return ceil(self.operands.panels / self.plan.groups)

    def tasks(self) -> tirx.Stmt:
        """All loops."""
        chunks, groups = ceil(self._pairs / self.plan.chunk_tiles), self.plan.groups

        def task(index: Any) -> tirx.Stmt:
            return self._task(index // groups, index % groups)

        return nest.tasks(chunks * groups, task, self._index, parallel=self.plan.parallel)

    def _task(self, chunk: Any, group: Any) -> tirx.Stmt:
        plan, turns = self.plan, self._turns
        first_pair, pairs = nest.share(chunk, self._pairs, plan.chunk_tiles)
        first_panel, panels = nest.portion(group, self.operands.panels, plan.groups)
        left = nest.workspace(
            (self.plan.parts, 2 * plan.chunk_tiles, plan.part_steps, tiles.ROWS, tiles.STEPS),
            "uint16",
            "left_tiles",
        )
        right = nest.workspace(
            (self.plan.parts, plan.part_steps, VECTORS, tiles.ROWS, tiles.ROWS), "uint32", "right_tiles"
        )
        kept = (self._most_panels, plan.chunk_tiles) if turns > 1 else (1, 1)
        sums = nest.workspace((*kept, PANEL, PANEL), "float32", "sums")

        def part(start: Any, steps: int, *, is_first: bool, is_last: bool) -> tirx.Stmt:
            def of_pair(pair: Any) -> tirx.Stmt:
                return self._split_left(left, pair, self._row_of(first_pair + pair), start, steps)

            def of_panel(number: Any) -> tirx.Stmt:
                panel = first_panel + number

                def of_sums(pair: Any) -> tirx.Stmt:
                    place = (number, pair) if turns > 1 else (0, 0)
                    added = self._add(sums, place, (left, right), pair, steps, clears=is_first)
                    row = self._row_of(first_pair + pair)
                    after = self._finish(sums, place, row, panel) if is_last else []
                    return nest.sequence(added, *after)

                return nest.sequence(
                    self._split_right(right, panel, start, steps), nest.serial(pairs, of_sums, self._index)
                )

            return nest.sequence(
                nest.serial(pairs, of_pair, self._index), nest.serial(panels, of_panel, self._index)
            )

        def middle(number: Any) -> tirx.Stmt:
            start = (number + 1) * plan.part_steps
            return part(start, plan.part_steps, is_first=False, is_last=False)

        before = (turns - 1) * plan.part_steps
        first = [part(self._number(0), plan.part_steps, is_first=True, is_last=False)] if turns > 1 else []
        between = [nest.serial(turns - 2, middle, self._index)] if turns > 2 else []
        last = part(self._number(before), self.operands.steps - before, is_first=turns == 1, is_last=True)
        declared = map(nest.declare, (left, right, sums))
        return nest.sequence(*declared, tiles.begin(), *first, *between, last, tiles.end())

    def _number(self, value: int) -> Any:
        return tirx.IntImm(self._index, value)

    def _row_of(self, pair: Any) -> Any:
        """The first row of a pair, moved back so that all rows exist."""
        return tirx.Min(pair * PANEL, self._number(self.operands.rows - PANEL))

    def _vector(self, statement: Callable[[Any], tirx.Stmt], lanes: int = tiles.ROWS) -> tirx.Stmt:
        return nest.vectorized(lanes, statement, self._index)

    def _part(self, value: Any, part: int) -> Any:
        """The bits of a number whose upper half is its part. The last of several is exact, also for NaN.

        Images of bfloat16 are float32 that producers may not have rounded.
        """
        return _bits(value) if 0 < part == self.plan.parts - 1 else _rounded(value)

    def _parts_kept(self, keep: Callable[[int], tirx.Stmt], less: tirx.Stmt) -> Iterator[tirx.Stmt]:
        """Keep each part of some numbers, and take it away from them."""
        yield keep(0)
        for part in range(1, self.plan.parts):
            yield less
            yield keep(part)

    def _split_left(self, left: Any, pair: Any, row: Any, start: Any, steps: int) -> tirx.Stmt:
        """Split rows of the left factor, from the step ``start`` on."""
        rest = nest.registers((tiles.STEPS,), "float32", "rest")

        def split(r: Any, step: Any) -> tirx.Stmt:
            place = (pair * 2 + r // tiles.ROWS, step, r % tiles.ROWS)

            def load(half: Any) -> tirx.Stmt:
                def lane(number: Any) -> tirx.Stmt:
                    value = self.operands.left(row + r, start + step, half, number)
                    return nest.store(rest, value, half * tiles.ROWS + number)

                return self._vector(lane)

            def keep(part: int) -> tirx.Stmt:
                def lane(number: Any) -> tirx.Stmt:
                    half = self._part(rest[number], part) >> tirx.const(16, "uint32")
                    return nest.store(left, half.astype("uint16"), part, *place, number)

                return self._vector(lane, tiles.STEPS)

            less = self._vector(lambda lane: nest.store(rest, _lower(rest[lane]), lane), tiles.STEPS)
            loaded = nest.unrolled(2, load, self._index)
            return nest.sequence(nest.declare(rest), loaded, *self._parts_kept(keep, less))

        def over_rows(body: nest.Body) -> tirx.Stmt:
            return nest.serial(PANEL, body, self._index)

        def over_steps(body: nest.Body) -> tirx.Stmt:
            return nest.serial(steps, body, self._index)

        if self.operands.rows_inside:
            return over_steps(lambda step: over_rows(lambda r: split(r, step)))
        return over_rows(lambda r: over_steps(lambda step: split(r, step)))

    def _split_right(self, right: Any, panel: Any, start: Any, steps: int) -> tirx.Stmt:
        """Split a panel of the right factor, from the step ``start`` on: two steps of the depth at a time."""
        rest = nest.registers((VECTORS, 2, tiles.ROWS), "float32", "rest")

        def each(statement: Element) -> tirx.Stmt:
            def vector(number: Any) -> tirx.Stmt:
                return self._vector(lambda lane: statement(number // 2, number % 2, lane))

            return nest.unrolled(2 * VECTORS, vector, self._index)

        def of_line(step: Any, line: Any) -> tirx.Stmt:
            def load(v: Any, odd: Any, lane: Any) -> tirx.Stmt:
                value = self.operands.right(panel, start + step, line * 2 + odd, v, lane)
                return nest.store(rest, value, v, odd, lane)

            def keep(part: int) -> tirx.Stmt:
                def vector(v: Any) -> tirx.Stmt:
                    def word(lane: Any) -> tirx.Stmt:
                        lower = self._part(rest[v, 0, lane], part) >> tirx.const(16, "uint32")
                        upper = self._part(rest[v, 1, lane], part) & tirx.const(_HIGH, "uint32")
                        return nest.store(right, lower | upper, part, step, v, line, lane)

                    return self._vector(word)

                return nest.unrolled(VECTORS, vector, self._index)

            less = each(lambda v, odd, lane: nest.store(rest, _lower(rest[v, odd, lane]), v, odd, lane))
            return nest.sequence(nest.declare(rest), each(load), *self._parts_kept(keep, less))

        def of_step(step: Any) -> tirx.Stmt:
            return nest.serial(tiles.ROWS, lambda line: of_line(step, line), self._index)

        return nest.serial(steps, of_step, self._index)

    def _add(
        self,
        sums: Any,
        place: tuple[Any, Any],
        factors: tuple[Any, Any],
        pair: Any,
        steps: int,
        *,
        clears: bool,
    ) -> tirx.Stmt:
        """Add the products of a part of the depth to four tiles of sums: numbers 0 to 3."""
        left, right = factors
        corners = [(i, j) for i in range(2) for j in range(2)]
        lefts, rights = (4, 5), (6, 7)

        def corner(i: int, j: int) -> tuple[Any, ...]:
            return (*place, self._number(i * tiles.ROWS), self._number(j * tiles.ROWS))

        def begin(i: int, j: int) -> tirx.Stmt:
            if clears:
                return tiles.clear(2 * i + j)
            return tiles.load(2 * i + j, sums, *corner(i, j), stride_bytes=_SUMS_STRIDE)

        def of_step(step: Any) -> tirx.Stmt:
            statements: list[tirx.Stmt] = []
            held: tuple[int | None, int | None] = (None, None)
            for of_left, of_right in TERMS[self.plan.parts]:
                if of_left != held[0]:
                    statements += [
                        tiles.load(lefts[i], left, of_left, pair * 2 + i, step, 0, 0) for i in range(2)
                    ]
                if of_right != held[1]:
                    statements += [tiles.load(rights[j], right, of_right, step, j, 0, 0) for j in range(2)]
                statements += [tiles.multiply_add(2 * i + j, lefts[i], rights[j]) for i, j in corners]
                held = of_left, of_right
            return nest.sequence(*statements)

        return nest.sequence(
            *(begin(i, j) for i, j in corners),
            nest.serial(steps, of_step, self._index),
            *(tiles.keep(2 * i + j, sums, *corner(i, j), stride_bytes=_SUMS_STRIDE) for i, j in corners),
        )

    def _finish(self, sums: Any, place: tuple[Any, Any], row: Any, panel: Any) -> list[tirx.Stmt]:
        """Compute sums that are not finite again, and store the results."""
        worst = nest.registers((tiles.ROWS,), "uint32", "worst")

        def over_sums(statement: Element) -> tirx.Stmt:
            def vector(number: Any) -> tirx.Stmt:
                return self._vector(lambda lane: statement(number // VECTORS, number % VECTORS, lane))

            return nest.serial(VECTORS * PANEL, vector, self._index)

        def total(r: Any, v: Any, lane: Any) -> Any:
            return sums[(*place, r, v * tiles.ROWS + lane)]

        def widen(r: Any, v: Any, lane: Any) -> tirx.Stmt:
            found = _bits(total(r, v, lane)) & tirx.const(_MAGNITUDE, "uint32")
            return nest.store(worst, tirx.max(worst[lane], found), lane)

        most = reduce(tirx.max, (worst[lane] for lane in range(tiles.ROWS)))
        return [
            nest.declare(worst),
            self._vector(lambda lane: nest.store(worst, tirx.const(0, "uint32"), lane)),
            over_sums(widen),
            tirx.IfThenElse(
                most >= tirx.const(_INFINITE, "uint32"), self._exactly(sums, place, row, panel), None
            ),
            over_sums(lambda r, v, lane: self.operands.result(total(r, v, lane), row + r, panel, v, lane)),
        ]

    def _exactly(self, sums: Any, place: tuple[Any, Any], row: Any, panel: Any) -> tirx.Stmt:
        """The sums in float32, a few rows at a time."""
        own = nest.registers((_EXACT_ROWS, VECTORS, tiles.ROWS), "float32", "own")

        def each(statement: Element) -> tirx.Stmt:
            def vector(number: Any) -> tirx.Stmt:
                return self._vector(lambda lane: statement(number // VECTORS, number % VECTORS, lane))

            return nest.unrolled(_EXACT_ROWS * VECTORS, vector, self._index)

        def of_rows(number: Any) -> tirx.Stmt:
            first = number * _EXACT_ROWS

            def add(index: Any) -> tirx.Stmt:
                step, at = index // tiles.STEPS, index % tiles.STEPS

                def one(r: Any, v: Any, lane: Any) -> tirx.Stmt:
                    left = self.operands.left(row + first + r, step, at // tiles.ROWS, at % tiles.ROWS)
                    product = left * self.operands.right(panel, step, at, v, lane)
                    return nest.store(own, own[r, v, lane] + product, r, v, lane)

                return each(one)

            def keep(r: Any, v: Any, lane: Any) -> tirx.Stmt:
                return nest.store(sums, own[r, v, lane], *place, first + r, v * tiles.ROWS + lane)

            return nest.sequence(
                nest.declare(own),
                each(lambda r, v, lane: nest.store(own, tirx.const(0, "float32"), r, v, lane)),
                nest.serial(self.operands.steps * tiles.STEPS, add, self._index),
                each(keep),
            )

        return nest.serial(PANEL // _EXACT_ROWS, of_rows, self._index)


def _bits(value: Any) -> Any:
    return tirx.reinterpret("uint32", value)


def _rounded(value: Any) -> Any:
    """The bits of a number, whose upper half is the nearest bfloat16."""
    return _bits(value) + tirx.const(0x8000, "uint32")


def _lower(value: Any) -> Any:
    """A number without the nearest bfloat16."""
    return value - tirx.reinterpret("float32", _rounded(value) & tirx.const(_HIGH, "uint32"))
