"""Products of float32 by Intel's tile registers, which multiply bfloat16 (AMX).

A float32 has 24 bits of mantissa, and a bfloat16 has 8 of them: each number is the exact sum of three, high,
middle and low. Of the nine products of two such sums, the six largest are as exact as float32, since the
other three are below 2**-22 of the result, where float32 rounds every sum to 2**-24. Six products of tiles
are faster than one of float32 vectors by 16 / 6 in theory, and by about 2 as measured here::

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

Edges: the last rows move back over their neighbors, as do the last panel's columns. The high part of an
infinite number is infinite and the others are not numbers: so is the sum then, and it is computed again.
Subnormal numbers count as zeros. If the process may not use tile registers, the loops of ``loops`` run.

Source: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype for
Higher-Precision Computations", 2019, for the split; Intel 64 and IA-32 Architectures Optimization Reference
Manual, chapter 20, for two by two tiles of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest, tiles
from worker.compiler.schedules.families.matmul.loops import Element, Origin, Writer
from worker.compiler.schedules.families.matmul.plan import MatmulShape, matmul_plans, plan_cycles
from worker.compiler.schedules.families.matmul.product import Product
from worker.compiler.schedules.processors import CYCLES_PER_THREAD, Machine, threads_pay

SIDE = 2 * tiles.ROWS
"""Rows and columns of four tiles of sums; packed weights have panels of as many columns."""

_PARTS = 3
_TERMS = ((1, 1), (0, 1), (0, 2), (0, 0), (1, 0), (2, 0))
"""The parts that are multiplied, high, middle or low, of the left and the right factor: in an order in which
most of them share a part with the one before."""

_PRODUCT_CYCLES = 21
"""Cycles of a product of two tiles where L2 holds both factors: 1.3 times those of the instruction."""
_LEFT_CYCLES = 0.6
"""Cycles to split one number of the left factor."""
_RIGHT_CYCLES = 0.5
"""Cycles to split one number of the right factor."""
_STORE_CYCLES = 1
"""Cycles to store one sum and apply the epilogue to it."""
_GAIN = 0.9
"""Tiles must take at most this share of the cycles of vectors."""
_LEFT_SHARE = 0.5
"""The part of L2 that a chunk's rows may fill."""
_MOST_PLANS = 6
_MOST_CHUNK = 16
_INFINITE = 0x7F800000
_HIGH = 0xFFFF0000


@dataclass(frozen=True)
class TilePlan:
    """How a product is computed by tile registers.

    Attributes:
        chunk_tiles: the most pairs of row tiles of a task.
        groups: the groups into which tasks divide the panels.
        part_steps: the steps of 32 of a part of the depth.
        parallel: whether to use several threads.
    """

    chunk_tiles: int
    groups: int
    part_steps: int
    parallel: bool


@lru_cache(maxsize=1024)
def faster_by_tiles(shape: MatmulShape, machine: Machine) -> bool:
    """Whether tile registers are expected to compute a product of float32 faster than vectors."""
    if not machine.has_tiles or shape.bits != 32 or shape.unit is not None:
        return False
    if shape.rows < SIDE or shape.columns < SIDE or shape.depth % tiles.STEPS:
        return False
    by_vectors = plan_cycles(matmul_plans(shape, machine)[0], shape, machine)
    return tile_cycles(tile_plans(shape, machine)[0], shape, machine) < _GAIN * by_vectors


def uses_tiles(product: Product, machine: Machine) -> bool:
    """Whether tile registers compute a product: one of float32 by packed weights, of constant sizes."""
    dtypes = {nest.dtype_of(product.left), nest.dtype_of(product.right), product.dtype}
    return (
        not product.is_dynamic
        and not product.batch
        and product.packed == SIDE
        and dtypes == {"float32"}
        and faster_by_tiles(product.shape, machine)
    )


@lru_cache(maxsize=1024)
def tile_plans(shape: MatmulShape, machine: Machine) -> tuple[TilePlan, ...]:
    """The plans worth measuring, best first."""
    costs = {plan: tile_cycles(plan, shape, machine) for plan in _candidates(shape, machine)}
    return tuple(sorted(costs, key=lambda plan: costs[plan])[:_MOST_PLANS])


def _candidates(shape: MatmulShape, machine: Machine) -> Iterator[TilePlan]:
    rows, panels = ceil(shape.rows / SIDE), ceil(shape.columns / SIDE)
    steps = shape.depth // tiles.STEPS
    work = len(_TERMS) * _PRODUCT_CYCLES * 4 * rows * panels * steps
    parallel = threads_pay(machine.threads, work, CYCLES_PER_THREAD)
    threads = machine.threads if parallel else 1
    most = _LEFT_SHARE * machine.l2_bytes / (2 * _PARTS * SIDE * tiles.STEPS)
    for chunk in range(1, min(rows, _MOST_CHUNK) + 1):
        part = max(1, min(steps, int(most / chunk)))
        part = ceil(steps / ceil(steps / part))
        for groups in dict.fromkeys((1, min(threads, panels), min(2 * threads, panels))):
            yield TilePlan(chunk, groups, part, parallel)


def tile_cycles(plan: TilePlan, shape: MatmulShape, machine: Machine) -> float:
    """Cycles of the thread with the most work."""
    rows, panels = ceil(shape.rows / SIDE), ceil(shape.columns / SIDE)
    chunks = ceil(rows / plan.chunk_tiles)
    own_rows, own_panels = SIDE * rows / chunks, ceil(panels / plan.groups)
    parts = ceil(shape.depth / (tiles.STEPS * plan.part_steps))
    sums = own_rows * SIDE * own_panels
    task = (
        own_rows * shape.depth * _LEFT_CYCLES
        + own_panels * SIDE * shape.depth * _RIGHT_CYCLES
        + sums * shape.depth * len(_TERMS) * _PRODUCT_CYCLES / (tiles.ROWS**2 * tiles.STEPS)
        + sums * parts * _STORE_CYCLES
    )
    return task * ceil(chunks * plan.groups / (machine.threads if plan.parallel else 1))


@dataclass(frozen=True)
class TileWriter(Writer):
    """Writes the loops of one product; ``plan`` is that of the loops without tiles.

    Attributes:
        own: how tiles compute the product.
    """

    own: TilePlan

    def tasks(self) -> tirx.Stmt:
        """All loops."""
        return nest.importing(tiles.CODE, nest.either(tiles.requested(), self._tile_tasks(), super().tasks()))

    @property
    def _pairs(self) -> int:
        """Pairs of row tiles."""
        return ceil(self.product.row_count / SIDE)

    @property
    def _panels(self) -> int:
        return ceil(self.product.column.extent / SIDE)

    @property
    def _steps(self) -> int:
        return int(self.product.depth.extent) // tiles.STEPS

    @property
    def _parts(self) -> int:
        return ceil(self._steps / self.own.part_steps)

    def _tile_tasks(self) -> tirx.Stmt:
        chunks, groups = ceil(self._pairs / self.own.chunk_tiles), self.own.groups

        def task(index: Any) -> tirx.Stmt:
            return self._task_of(index // groups, index % groups)

        loop = nest.parallel if self.own.parallel else nest.serial
        return loop(chunks * groups, task, self._index)

    def _task_of(self, chunk: Any, group: Any) -> tirx.Stmt:
        own, parts, columns = self.own, self._parts, SIDE // tiles.ROWS
        first_pair, pairs = nest.share(chunk, self._pairs, own.chunk_tiles)
        first_panel, panels = nest.share(group, self._panels, ceil(self._panels / own.groups))
        left_shape = (_PARTS, 2 * own.chunk_tiles, own.part_steps, tiles.ROWS, tiles.STEPS)
        left = nest.workspace(left_shape, "uint16", "left_tiles")
        right = nest.workspace(
            (_PARTS, own.part_steps, columns, tiles.ROWS, tiles.ROWS), "uint32", "right_tiles"
        )
        kept = (ceil(self._panels / own.groups), own.chunk_tiles) if parts > 1 else (1, 1)
        sums = nest.workspace((*kept, SIDE, SIDE), "float32", "sums")

        def part(start: Any, steps: int, *, is_first: bool, is_last: bool) -> tirx.Stmt:
            def of_pair(pair: Any) -> tirx.Stmt:
                return self._split_left(left, pair, self._row_of(first_pair + pair), start, steps)

            def of_panel(index: Any) -> tirx.Stmt:
                panel = first_panel + index

                def of_sums(pair: Any) -> tirx.Stmt:
                    place = (index, pair) if parts > 1 else (0, 0)
                    origin = self._origin(self._row_of(first_pair + pair), panel)
                    added = self._add(sums, place, (left, right), pair, steps, clears=is_first)
                    after = self._finish(sums, place, origin) if is_last else []
                    return nest.sequence(added, *after)

                return nest.sequence(
                    self._split_right(right, panel, start, steps), nest.serial(pairs, of_sums, self._index)
                )

            return nest.sequence(
                nest.serial(pairs, of_pair, self._index), nest.serial(panels, of_panel, self._index)
            )

        each, last = own.part_steps, self._steps - (parts - 1) * own.part_steps
        zero = tirx.IntImm(self._index, 0)
        inner = [part(zero, each, is_first=True, is_last=False)] if parts > 1 else []
        if parts > 2:
            inner.append(
                nest.serial(
                    parts - 2,
                    lambda index: part((index + 1) * each, each, is_first=False, is_last=False),
                    self._index,
                )
            )
        start = tirx.IntImm(self._index, (parts - 1) * each)
        return nest.sequence(
            *map(nest.declare, (left, right, sums)),
            tiles.begin(),
            *inner,
            part(start, last, is_first=parts == 1, is_last=True),
            tiles.end(),
        )

    @property
    def _first(self) -> Any:
        return tirx.IntImm(self._index, 0)

    def _row_of(self, pair: Any) -> Any:
        return self._clamped(pair, SIDE, self.product.row_count)

    def _origin(self, row: Any, panel: Any) -> Origin:
        column = self._clamped(panel, SIDE, self.product.column.size)
        return Origin(row, column, panel, {}, None, 0, 0)

    def _split_left(self, left: Any, pair: Any, row: Any, start: Any, steps: int) -> tirx.Stmt:
        """Split rows of the left factor, from the step ``start`` of 32 on."""
        value = self._left(self._origin(row, self._first))
        rest = nest.registers((tiles.STEPS,), "float32", "rest")

        def of_step(r: Any, step: Any) -> tirx.Stmt:
            place = (pair * 2 + r // tiles.ROWS, step, r % tiles.ROWS)

            def each(statement: Callable[[Any], tirx.Stmt]) -> tirx.Stmt:
                return nest.vectorized(tiles.STEPS, statement, self._index)

            def keep(part: int) -> tirx.Stmt:
                return each(
                    lambda lane: nest.store(left, _high(rest[lane]).astype("uint16"), part, *place, lane)
                )

            loaded = each(lambda lane: nest.store(rest, value((start + step) * tiles.STEPS + lane, r), lane))
            less = each(lambda lane: nest.store(rest, _lower(rest[lane]), lane))
            return nest.sequence(nest.declare(rest), loaded, keep(0), less, keep(1), less, keep(2))

        def of_row(r: Any) -> tirx.Stmt:
            return nest.serial(steps, lambda step: of_step(r, step), self._index)

        return nest.serial(SIDE, of_row, self._index)

    def _split_right(self, right: Any, panel: Any, start: Any, steps: int) -> tirx.Stmt:
        """Split a panel of the right factor, from the step ``start`` of 32 on."""
        value = self._right(self._origin(self._first, panel))
        columns = SIDE // tiles.ROWS
        rest = nest.registers((columns, 2, tiles.ROWS), "float32", "rest")

        def of_line(step: Any, line: Any) -> tirx.Stmt:
            depth = (start + step) * tiles.STEPS + line * 2

            def each(statement: Element) -> tirx.Stmt:
                def vector(number: Any) -> tirx.Stmt:
                    v, odd = number // 2, number % 2
                    return nest.vectorized(tiles.ROWS, lambda lane: statement(v, odd, lane), self._index)

                return nest.unrolled(columns * 2, vector, self._index)

            def keep(part: int) -> tirx.Stmt:
                def vector(v: Any) -> tirx.Stmt:
                    return nest.vectorized(
                        tiles.ROWS,
                        lambda lane: nest.store(
                            right,
                            _high(rest[v, 0, lane]) | _masked(rest[v, 1, lane]),
                            part,
                            step,
                            v,
                            line,
                            lane,
                        ),
                        self._index,
                    )

                return nest.unrolled(columns, vector, self._index)

            loaded = each(lambda v, odd, lane: nest.store(rest, value(depth + odd, v, lane), v, odd, lane))
            less = each(lambda v, odd, lane: nest.store(rest, _lower(rest[v, odd, lane]), v, odd, lane))
            return nest.sequence(nest.declare(rest), loaded, keep(0), less, keep(1), less, keep(2))

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
        stride = 4 * SIDE
        corners = [(i, j) for i in range(2) for j in range(2)]
        lefts, rights = (4, 5), (6, 7)

        def corner(i: int, j: int) -> tuple[Any, ...]:
            return (
                *place,
                tirx.IntImm(self._index, i * tiles.ROWS),
                tirx.IntImm(self._index, j * tiles.ROWS),
            )

        begin = [
            tiles.clear(2 * i + j)
            if clears
            else tiles.load(2 * i + j, sums, *corner(i, j), stride_bytes=stride)
            for i, j in corners
        ]
        keep = [tiles.keep(2 * i + j, sums, *corner(i, j), stride_bytes=stride) for i, j in corners]

        def of_step(step: Any) -> tirx.Stmt:
            statements: list[tirx.Stmt] = []
            held: tuple[int | None, int | None] = (None, None)
            for term in _TERMS:
                of_left, of_right = term
                if of_left != held[0]:
                    statements += [
                        tiles.load(lefts[i], left, of_left, pair * 2 + i, step, 0, 0) for i in range(2)
                    ]
                if of_right != held[1]:
                    statements += [tiles.load(rights[j], right, of_right, step, j, 0, 0) for j in range(2)]
                statements += [tiles.multiply_add(2 * i + j, lefts[i], rights[j]) for i, j in corners]
                held = term
            return nest.sequence(*statements)

        return nest.sequence(*begin, nest.serial(steps, of_step, self._index), *keep)

    def _finish(self, sums: Any, place: tuple[Any, Any], origin: Origin) -> list[tirx.Stmt]:
        """Compute sums that are not finite again, and apply the epilogue."""
        worst = nest.registers((tiles.ROWS,), "uint32", "worst")
        zero = tirx.const(0, "uint32")

        def lanes(statement: Callable[[Any], tirx.Stmt]) -> tirx.Stmt:
            return nest.vectorized(tiles.ROWS, statement, self._index)

        def widest(number: Any) -> tirx.Stmt:
            r, v = number // 2, number % 2

            def value(lane: Any) -> Any:
                found = _bits(sums[(*place, r, v * tiles.ROWS + lane)]) & tirx.const(0x7FFFFFFF, "uint32")
                return tirx.max(worst[lane], found)

            return lanes(lambda lane: nest.store(worst, value(lane), lane))

        most: Any = worst[0]
        for lane in range(1, tiles.ROWS):
            most = tirx.max(most, worst[lane])
        element = self._element(lambda r, v, lane: sums[(*place, r, v * tiles.ROWS + lane)], origin)

        def result(number: Any) -> tirx.Stmt:
            return lanes(lambda lane: element(number // 2, number % 2, lane))

        return [
            nest.declare(worst),
            lanes(lambda lane: nest.store(worst, zero, lane)),
            nest.serial(2 * SIDE, widest, self._index),
            tirx.IfThenElse(
                most >= tirx.const(_INFINITE, "uint32"), self._exactly(sums, place, origin), None
            ),
            nest.serial(2 * SIDE, result, self._index),
        ]

    def _exactly(self, sums: Any, place: tuple[Any, Any], origin: Origin) -> tirx.Stmt:
        """The sums in float32."""
        left, right = self._left(origin), self._right(origin)

        def of_row(r: Any) -> tirx.Stmt:
            def columns(statement: Callable[[Any], tirx.Stmt]) -> tirx.Stmt:
                def vector(v: Any) -> tirx.Stmt:
                    return nest.vectorized(
                        tiles.ROWS, lambda lane: statement(v * tiles.ROWS + lane), self._index
                    )

                return nest.unrolled(2, vector, self._index)

            def add(step: Any) -> tirx.Stmt:
                def value(column: Any) -> Any:
                    factor = right(step, column // tiles.ROWS, column % tiles.ROWS)
                    return sums[(*place, r, column)] + left(step, r) * factor

                return columns(lambda column: nest.store(sums, value(column), *place, r, column))

            clear = columns(lambda column: nest.store(sums, self._zero, *place, r, column))
            return nest.sequence(clear, nest.serial(self.product.depth.extent, add, self._index))

        return nest.serial(SIDE, of_row, self._index)


def _bits(value: Any) -> Any:
    return tirx.reinterpret("uint32", value)


def _masked(value: Any) -> Any:
    """The bits of a number's high part, in place."""
    return _bits(value) & tirx.const(_HIGH, "uint32")


def _high(value: Any) -> Any:
    """The bits of a number's high part, as a bfloat16 in the lower half of a word."""
    return _bits(value) >> tirx.const(16, "uint32")


def _lower(value: Any) -> Any:
    """A number without its high part."""
    return value - tirx.reinterpret("float32", _masked(value))
