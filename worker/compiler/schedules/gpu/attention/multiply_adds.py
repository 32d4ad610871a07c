"""Attention, ``softmax(f(QK))V``, by multiply-adds of float32: no score ever leaves the multiprocessor::

    for block = (batch and head, tile of 16 * r queries), thread (x, y) of 16 by 16:
        queries[tile, depth] → shared memory; highest[r] = -inf; total[r] = 0; result[r, features] = 0
        for tile of 16 * c keys that the queries see:
            keys[tile, depth], values[tile, width] → shared memory; barrier
            for four steps of the depth:                                       # registers, unrolled
                scores[r, c] += queries[16 y.., steps] * keys[x + 16 c, steps]
            scores = f(scores); top = highest; highest = max(highest, scores)  # shuffles among 16 threads
            powers = exp(scores - highest) → shared memory
            total = total * exp(top - highest) + sum of powers;  result *= exp(top - highest)
            barrier
            for four keys:
                result[r, features] += powers[r, keys] * values[keys, features]
            barrier
        output = result / total

A thread holds ``r`` queries by ``c`` keys, then the same queries by a sixteenth of the features, all in
registers. A warp reads two rows of queries, which is a broadcast, and sixteen rows of keys; rows of shared
memory have four elements more than the depth, so that vectors of neighboring rows meet different banks. ``r``
is 4, or less where the grid would leave multiprocessors idle. Sums are float32, whatever the operands are.

Edges: queries past the last repeat the last one and store nothing; scores of keys past the last are minus
infinity; depths and widths are padded with zeros.

Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3; Dao et al.,
"FlashAttention", 2022; Dao, "FlashAttention-2", 2023, section 3.1: queries in the outer loop, one division at
the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tvm import tirx
from tvm.sym import Analyzer

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Axis, Places
from worker.compiler.schedules.families.attention.blocks import AttentionBlocks
from worker.compiler.schedules.gpu.chips import KIB, Gpu
from worker.compiler.schedules.gpu.threads import (
    Lane,
    Memory,
    Tile,
    Vector,
    barrier,
    bits_of,
    divisors,
    extent_of,
    kernel,
    places_of,
    ramp,
    shared_tile,
    shuffled,
    when,
    whole,
)

_SIDE = 16
"""Threads in each dimension of a block."""
_MOST_QUERIES, _MOST_KEYS = 4, 4
"""The queries and the keys of a thread."""
_STEPS = 4
"""Elements of the depth, or keys, that a thread reads from shared memory as one vector."""
_STATIC_BYTES = 48 * KIB
_FLOAT = "float32"


def write_by_multiply_adds(
    function: tirx.PrimFunc, blocks: AttentionBlocks, gpu: Gpu
) -> tirx.PrimFunc | None:
    """Write the kernel; None if no tile fits."""
    plan = _plan(blocks, gpu)
    return None if plan is None else nest.with_loops(function, _Writer(blocks, plan).loops())


@dataclass(frozen=True)
class AttentionTiles:
    """The tiles of a block.

    Attributes:
        rows: the queries of a thread.
        columns: the keys of a thread.
        depth: the head's size, padded.
        lanes: adjacent features of a thread.
        chunks: such vectors of features of a thread.
    """

    rows: int
    columns: int
    depth: int
    lanes: int
    chunks: int

    @property
    def queries(self) -> int:
        """The queries of a block."""
        return self.rows * _SIDE

    @property
    def keys(self) -> int:
        """The keys of a tile."""
        return self.columns * _SIDE

    @property
    def width(self) -> int:
        """The features of the result, padded."""
        return self.lanes * self.chunks * _SIDE

    @property
    def bytes(self) -> int:
        """Shared memory."""
        shapes = (
            (self.queries, self.depth),
            (self.keys, self.depth),
            (self.keys, self.width),
            (self.queries, self.keys),
        )
        return sum(rows * (columns + _STEPS) * 4 for rows, columns in shapes)


def _plan(blocks: AttentionBlocks, gpu: Gpu) -> AttentionTiles | None:
    shape = blocks.shape
    lanes = next(each for each in divisors(_STEPS) if each == 1 or each * _SIDE <= shape.width)
    chunks = -(-shape.width // (lanes * _SIDE))
    depth = -(-shape.depth // _STEPS) * _STEPS
    columns = min(_MOST_KEYS, -(-shape.keys // _SIDE))
    fitting = [
        tiles
        for rows in divisors(_MOST_QUERIES)
        for tiles in (AttentionTiles(rows, columns, depth, lanes, chunks),)
        if tiles.bytes <= gpu.shared_bytes and rows * lanes * chunks <= 64
    ]
    full = [
        tiles
        for tiles in fitting
        if shape.batches * -(-shape.queries // tiles.queries) >= gpu.multiprocessors
    ]
    return next(iter(full[:1] or fitting[-1:]), None)


@dataclass
class _Writer:
    """Writes the kernel."""

    blocks: AttentionBlocks
    plan: AttentionTiles
    memory: Memory = field(default_factory=lambda: Memory(Analyzer()))

    def __post_init__(self) -> None:
        plan = self.plan
        scope = "shared" if plan.bytes <= _STATIC_BYTES else "shared.dyn"

        def tile(rows: int, columns: int, name: str) -> Tile:
            return shared_tile(rows, columns, _STEPS, _FLOAT, name, scope)

        self.queries = tile(plan.queries, plan.depth, "queries")
        self.keys = tile(plan.keys, plan.depth, "keys")
        self.values = tile(plan.keys, plan.width, "values")
        self.powers = tile(plan.queries, plan.keys, "powers")
        self.scores = nest.registers((plan.rows, plan.columns), _FLOAT, "scores")
        self.highest = nest.registers((plan.rows,), _FLOAT, "highest")
        self.total = nest.registers((plan.rows,), _FLOAT, "total")
        self.result = nest.registers((plan.rows, plan.lanes * plan.chunks), _FLOAT, "result")

    def loops(self) -> tirx.Stmt:
        """The kernel."""
        blocks, plan = self.blocks, self.plan
        groups = -(-blocks.row.extent // plan.queries)
        sizes = {
            "blockIdx.x": groups,
            "blockIdx.y": extent_of(blocks.axes),
            "threadIdx.y": _SIDE,
            "threadIdx.x": _SIDE,
        }
        shared = [tile.buffer for tile in (self.queries, self.keys, self.values, self.powers)]
        return self.memory.declared(kernel(sizes, self.memory.analyzer, self._of_thread, shared))

    def _of_thread(self, group: Any, batch: Any, y: Any, x: Any) -> tirx.Stmt:
        plan, blocks = self.plan, self.blocks
        places = places_of(batch, blocks.axes, self.memory.analyzer)
        first, thread = group * plan.queries, y * _SIDE + x
        registers = (self.highest, self.total, self.result)

        def query(row: Any, column: int, lanes: int) -> Vector:
            at = tirx.Min(first + row, whole(blocks.row.extent - 1))
            return self._operand(
                blocks.query_number, {**places, blocks.row.var: at}, blocks.step, column, lanes
            )

        def tile(number: Any) -> tirx.Stmt:
            return self._tile(places, first, number * plan.keys, (y, x, thread))

        return nest.sequence(
            *map(nest.declare, registers),
            *(nest.store(self.highest, _float(-inf), whole(row)) for row in range(plan.rows)),
            *(nest.store(self.total, _float(0), whole(row)) for row in range(plan.rows)),
            *(
                nest.store(self.result, _float(0), whole(row), whole(column))
                for row in range(plan.rows)
                for column in range(plan.lanes * plan.chunks)
            ),
            self._copied(
                self.queries, (plan.queries, plan.depth, blocks.step), blocks.query_number, query, thread
            ),
            nest.serial(self._tiles(first), tile, nest.INDEX),
            *(
                self._finish(places, first + y * plan.rows + row, row, chunk, x)
                for row in range(plan.rows)
                for chunk in range(plan.chunks)
            ),
        )

    def _tiles(self, first: Any) -> Any:
        """The tiles of keys that the last query of a block sees."""
        blocks, plan = self.blocks, self.plan
        tiles = -(-blocks.key.extent // plan.keys)
        if blocks.causal is None or tiles == 1:
            return tiles
        end = first + (plan.queries + blocks.causal)
        return tirx.Max(tirx.Min((end + (plan.keys - 1)) // plan.keys, whole(tiles)), whole(0))

    def _operand(self, number: Any, places: Places, axis: Axis, column: Any, lanes: int) -> Vector:
        lane = Lane((axis,), column, self.memory.analyzer, places)
        read = self.memory.vector(number, lane, lanes)
        return Vector(read.loads, tuple(value.astype(_FLOAT) for value in read.values))

    def _copied(
        self, tile: Tile, shape: tuple[int, int, Axis], number: Any, read: Callable[..., Vector], thread: Any
    ) -> tirx.Stmt:
        """Copy a tile to shared memory, neighboring threads along its rows; the rest of a row is zero."""
        rows, columns, axis = shape
        widest = 16 * 8 // max(bits_of(load.source) for load in nest.loads_of(number))
        lanes = next(each for each in divisors(widest) if axis.extent % each == 0 and columns % each == 0)
        in_row = columns // lanes
        items, threads = rows * in_row, _SIDE * _SIDE

        def copy(step: int) -> tirx.Stmt:
            item = thread + step * threads
            row, column = item // in_row, item % in_row * lanes
            vector = read(row, column, lanes)
            stores = [tile.store(value, row, column + lane) for lane, value in enumerate(vector.values)]
            statement = nest.sequence(*vector.loads, *stores)
            if columns != axis.extent:
                zeros = [tile.store(_float(0), row, column + lane) for lane in range(lanes)]
                statement = nest.either(column < axis.extent, statement, nest.sequence(*zeros))
            return when(item < items if (step + 1) * threads > items else None, statement)

        return nest.sequence(*(copy(step) for step in range(-(-items // threads))))

    def _tile(self, places: Places, first: Any, start: Any, at: tuple[Any, Any, Any]) -> tirx.Stmt:
        blocks, plan = self.blocks, self.plan
        y, x, thread = at

        def key_at(row: Any) -> Any:
            if blocks.key.extent % plan.keys == 0:
                return start + row
            return tirx.Min(start + row, whole(blocks.key.extent - 1))

        def key(row: Any, column: Any, lanes: int) -> Vector:
            here = {**places, blocks.key.var: key_at(row)}
            return self._operand(blocks.key_number, here, blocks.step, column, lanes)

        def value(row: Any, column: Any, lanes: int) -> Vector:
            here = {**places, blocks.key.var: key_at(row)}
            return self._operand(blocks.value_number, here, blocks.feature, column, lanes)

        return nest.sequence(
            self._copied(self.keys, (plan.keys, plan.depth, blocks.step), blocks.key_number, key, thread),
            self._copied(
                self.values, (plan.keys, plan.width, blocks.feature), blocks.value_number, value, thread
            ),
            barrier(),
            self._scores(y, x),
            *(self._row(places, first, start, row, y, x, key_at) for row in range(plan.rows)),
            barrier(),
            self._results(y, x),
            barrier(),
        )

    def _scores(self, y: Any, x: Any) -> tirx.Stmt:
        """The products of queries and keys, four steps of the depth at a time."""
        plan = self.plan
        places = [(row, column) for row in range(plan.rows) for column in range(plan.columns)]

        def steps(number: Any) -> tirx.Stmt:
            first = number * _STEPS
            queries = [self._near(self.queries, y * plan.rows + row, first) for row in range(plan.rows)]
            statements = [one for vector in queries for one in vector[0]]
            for column in range(plan.columns):
                loads, key = self._near(self.keys, x + column * _SIDE, first)
                statements += loads
                statements += [
                    self._added(self.scores, (row, column), queries[row][1][step] * key[step])
                    for step in map(whole, range(_STEPS))
                    for row in range(plan.rows)
                ]
            return nest.sequence(*statements)

        return nest.sequence(
            nest.declare(self.scores),
            *(nest.store(self.scores, _float(0), whole(row), whole(column)) for row, column in places),
            nest.serial(plan.depth // _STEPS, steps, nest.INDEX),
        )

    def _near(self, tile: Tile, row: Any, first: Any, lanes: int = _STEPS) -> tuple[list[tirx.Stmt], Any]:
        """A vector of a row of shared memory, in registers."""
        register = nest.registers((lanes,), _FLOAT, "near")
        load = nest.store(register, tile.load(row, first, lanes), ramp(whole(0), lanes))
        return [nest.declare(register), load], register

    def _added(self, sums: Any, at: tuple[int, int], product: Any) -> tirx.Stmt:
        place = tuple(map(whole, at))
        return nest.store(sums, sums[place] + product, *place)

    def _row(
        self, places: Places, first: Any, start: Any, row: int, y: Any, x: Any, key_at: Callable[[Any], Any]
    ) -> tirx.Stmt:
        """The softmax of a thread's part of one query's scores."""
        blocks, plan = self.blocks, self.plan
        own = y * plan.rows + row
        query = tirx.Min(first + own, whole(blocks.row.extent - 1))
        at = whole(row)
        top, number, scale = (nest.registers((1,), _FLOAT, name) for name in ("top", "number", "scale"))
        zero = whole(0)

        def weight(column: int) -> Any:
            key = x + column * _SIDE
            score = self.scores[at, whole(column)].astype(blocks.scores.dtype)
            value = blocks.weight(score, places, query, key_at(key)).astype(_FLOAT)
            if blocks.key.extent % plan.keys:
                value = tirx.Select(start + key < blocks.key.extent, value, _float(-inf))
            return self.memory.flattened(value, 0)

        def each(statement: Callable[[int], tirx.Stmt]) -> list[tirx.Stmt]:
            return [statement(column) for column in range(plan.columns)]

        def joined(combine: Any) -> list[tirx.Stmt]:
            return [
                nest.store(number, combine(number[zero], shuffled(number[zero], distance)), zero)
                for distance in (8, 4, 2, 1)
            ]

        shift = tirx.Select(self.highest[at] == _float(-inf), _float(0), self.highest[at])

        def power(column: int) -> tirx.Stmt:
            place = (at, whole(column))
            value = tirx.exp(self.scores[place] - top[zero])
            return nest.sequence(
                nest.store(self.scores, value, *place),
                nest.store(number, number[zero] + self.scores[place], zero),
                self.powers.store(self.scores[place], own, x + column * _SIDE),
            )

        def highest(column: int) -> tirx.Stmt:
            value = tirx.Max(number[zero], self.scores[at, whole(column)])
            return nest.store(number, value, zero)

        rescaled = [
            nest.store(self.result, self.result[at, whole(column)] * scale[zero], at, whole(column))
            for column in range(plan.lanes * plan.chunks)
        ]
        return nest.sequence(
            *map(nest.declare, (top, number, scale)),
            *each(lambda column: nest.store(self.scores, weight(column), at, whole(column))),
            nest.store(number, self.highest[at], zero),
            *each(highest),
            *joined(tirx.Max),
            nest.store(scale, self.highest[at], zero),
            nest.store(self.highest, number[zero], at),
            nest.store(top, shift, zero),
            nest.store(scale, tirx.exp(scale[zero] - top[zero]), zero),
            nest.store(number, _float(0), zero),
            *each(power),
            *joined(tirx.Add),
            nest.store(self.total, self.total[at] * scale[zero] + number[zero], at),
            *rescaled,
        )

    def _results(self, y: Any, x: Any) -> tirx.Stmt:
        """The products of powers and values, four keys at a time."""
        plan = self.plan

        def steps(number: Any) -> tirx.Stmt:
            first = number * _STEPS
            powers = [self._near(self.powers, y * plan.rows + row, first) for row in range(plan.rows)]
            statements = [one for vector in powers for one in vector[0]]
            for step in range(_STEPS):
                for chunk in range(plan.chunks):
                    column = (x + chunk * _SIDE) * plan.lanes
                    loads, values = self._near(self.values, first + step, column, plan.lanes)
                    statements += loads
                    statements += [
                        self._added(
                            self.result,
                            (row, chunk * plan.lanes + lane),
                            powers[row][1][whole(step)] * values[whole(lane)],
                        )
                        for row in range(plan.rows)
                        for lane in range(plan.lanes)
                    ]
            return nest.sequence(*statements)

        return nest.serial(plan.keys // _STEPS, steps, nest.INDEX)

    def _finish(self, places: Places, query: Any, row: int, chunk: int, x: Any) -> tirx.Stmt:
        blocks, plan, at = self.blocks, self.plan, whole(row)
        final = blocks.output
        first = (x + chunk * _SIDE) * plan.lanes
        lanes = next(each for each in divisors(plan.lanes) if blocks.feature.extent % each == 0)

        def share(lane: int) -> Any:
            value = self.result[at, whole(chunk * plan.lanes + lane)] / self.total[at]
            if blocks.safe:
                value = tirx.Select(self.total[at] == _float(0), _float(0), value)
            return value.astype(blocks.dtype)

        def stored(part: int) -> tirx.Stmt:
            here = {**places, blocks.row.var: query}
            lane = Lane((blocks.feature,), first + part, self.memory.analyzer, here)
            values = tuple(share(part + number) for number in range(lanes))
            statement = self.memory.stored(final.buffer, final.indices, Vector((), values), lane)
            inside = first + part < blocks.feature.extent if plan.width != blocks.feature.extent else None
            return when(inside, statement)

        everything = nest.sequence(*(stored(part) for part in range(0, plan.lanes, lanes)))
        outside = blocks.row.extent % plan.queries
        return when(query < blocks.row.extent if outside else None, everything)


def _float(value: float) -> tirx.FloatImm:
    return tirx.FloatImm(_FLOAT, value)
