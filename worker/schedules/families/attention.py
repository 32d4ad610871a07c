"""Attention as a whole: ``softmax(f(QK))V``, never with all scores in memory.

Claims the functions that ``worker.layout.attention`` makes.

Loop order: tasks (batch and head, groups of queries; in parallel) → windows of keys → groups of queries →
tiles of keys → the head's size → the tile; then the maxima, the powers of e and their sums over the window;
then tiles of the result → keys of the window → the tile. One window holds all keys where the scores of a
group fit the first cache. With several, the softmax is joined window by window: a result so far is scaled by
``exp(old maximum - new maximum)``, and divided by the sum at the end.

A tile of scores has keys in its rows and queries in its lanes. So keys and values are read in place, number
by number and vector by vector, and only the queries are transposed, once per task; the softmax runs in all
lanes and joins none of them; and the powers lie as the second product reads them. Where there are very few
queries (decoding), each is computed on its own, with the head's size and then the keys in the lanes.

Groups of queries, and vectors of the result, overlap their neighbors where sizes are no multiples of the
tile's. Under a causal mask the keys behind a group's last query are not read at all.

Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
"FlashAttention", 2022; the tiles as in ``worker.schedules.families.matmul``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

from tvm import s_tir, tirx

from worker.schedules import nest
from worker.schedules.attention_plan import AttentionPlan, AttentionShape, plan_attention
from worker.schedules.families.attention_blocks import AttentionBlocks, find_attention
from worker.schedules.families.product import Places, split_place
from worker.schedules.machine import Machine

Expression = Any


def write_attention(schedule: s_tir.Schedule, machine: Machine) -> tirx.PrimFunc | None:
    """The function as loops of this family, or None where it is none of ``worker.layout.attention``."""
    blocks = find_attention(schedule)
    if blocks is None:
        return None
    plan = plan_attention(blocks.shape, machine)
    return nest.with_loops(schedule.mod["main"], _Writer(blocks, plan, machine).tasks())


@dataclass(frozen=True)
class _Memory:
    """The buffers of a task; the first dimension counts groups, unless it says otherwise."""

    queries: Any
    """``[groups, D, queries]``."""
    powers: Any
    """``[window, queries]``: scores, then powers; of one group at a time."""
    highest: Any
    total: Any
    scale: Any
    """``[queries]``: what multiplies the result so far; of one group at a time."""
    result: Any
    """``[groups, panels, queries, columns]``, where there are several windows."""


@dataclass(frozen=True)
class _Spot:
    """A group of queries in a task: its batch, its number in the task, its first query."""

    batch: Places
    number: Any
    row: Any


@dataclass(frozen=True)
class _Window:
    """A window of keys: the first, how many there are at most, how many a group sees."""

    start: Any
    size: int
    seen: Any


@dataclass(frozen=True)
class _Writer:
    """Writes the loops."""

    blocks: AttentionBlocks
    plan: AttentionPlan
    machine: Machine

    def tasks(self) -> tirx.Stmt:
        """All loops."""
        chunks = ceil(self._groups / self.plan.groups)
        tasks = self._shape.batches * chunks
        loop = nest.parallel if self.plan.parallel and tasks > 1 else nest.serial
        return loop(tasks, lambda index: self._task(index // chunks, index % chunks), self._index)

    @property
    def _shape(self) -> AttentionShape:
        return self.blocks.shape

    @property
    def _index(self) -> str:
        return self.blocks.index_dtype

    @property
    def _groups(self) -> int:
        return ceil(self._shape.queries / self.plan.tile.queries)

    @property
    def _panels(self) -> int:
        return ceil(self._shape.width / self.plan.tile.width)

    @property
    def _is_whole(self) -> bool:
        """Whether one window holds all keys."""
        return self.plan.window == self._shape.keys

    def _task(self, batch: Any, chunk: Any) -> tirx.Stmt:
        at = split_place(batch, self.blocks.axes)
        memory = self._memory()

        def spot(number: Any) -> _Spot:
            first = (chunk * self.plan.groups + number) * self.plan.tile.queries
            return _Spot(at, number, tirx.Min(first, self._number(self._shape.queries - self.plan.tile.queries)))

        def of_groups(body: Callable[[_Spot], tirx.Stmt]) -> tirx.Stmt:
            return nest.serial(self.plan.groups, lambda number: body(spot(number)), self._index)

        def window(start: Any, size: int) -> tirx.Stmt:
            return of_groups(lambda spot: self._windowed(spot, start, size, memory))

        return nest.sequence(
            *(nest.declare(buffer) for buffer in vars(memory).values() if buffer is not None),
            of_groups(lambda spot: self._begin(spot, memory)),
            *self._windows(window),
            *([] if self._is_whole else [of_groups(lambda spot: self._finish(spot, memory))]),
        )

    def _memory(self) -> _Memory:
        tile, groups, dtype = self.plan.tile, self.plan.groups, self.blocks.dtype
        states = (groups, tile.queries)
        result = (groups, self._panels, tile.queries, tile.width)
        return _Memory(
            queries=nest.workspace((groups, self._shape.depth, tile.queries), dtype, "queries"),
            powers=nest.workspace((self._padded(self.plan.window), tile.queries), dtype, "powers"),
            highest=nest.workspace(states, dtype, "highest"),
            total=nest.workspace(states, dtype, "total"),
            scale=nest.workspace((tile.queries,), dtype, "scale"),
            result=None if self._is_whole else nest.workspace(result, dtype, "result"),
        )

    def _padded(self, keys: int) -> int:
        """Keys in whole vectors, where they lie in the lanes."""
        lanes = self.machine.lanes(self._shape.bits)
        return keys if self.plan.tile.lanes > 1 else ceil(keys / lanes) * lanes

    def _windows(self, body: Callable[[Any, int], tirx.Stmt]) -> list[tirx.Stmt]:
        size = self.plan.window
        whole, rest = divmod(self._shape.keys, size)
        loops = [nest.serial(whole, lambda number: body(number * size, size), self._index)]
        return loops + ([body(self._number(whole * size), rest)] if rest else [])

    def _begin(self, spot: _Spot, memory: _Memory) -> tirx.Stmt:
        """Transpose the queries of a group, and clear its state."""

        def element(r: Any, step: Any) -> tirx.Stmt:
            number = self.blocks.query(spot.batch, spot.row + r, step)
            return nest.store(memory.queries, number, spot.number, step, r)

        def row(r: Any) -> tirx.Stmt:
            return nest.serial(self._shape.depth, lambda step: element(r, step), self._index)

        def clear(*at: Any) -> tirx.Stmt:
            place = (spot.number, self._lane(*at))
            return nest.sequence(
                nest.store(memory.highest, self._float(-inf), *place),
                nest.store(memory.total, self._float(0), *place),
            )

        return nest.sequence(
            nest.serial(self.plan.tile.queries, row, self._index), self._each_query(clear)
        )

    def _windowed(self, spot: _Spot, start: Any, size: int, memory: _Memory) -> tirx.Stmt:
        """Take a group of queries through a window of keys."""
        window = _Window(start, size, self._seen(spot, start, size))
        if self.plan.tile.lanes > 1:
            scores = self._scores(spot, window, memory)
        else:
            scores = self._scores_of_one(spot, window, memory)
        return nest.sequence(scores, self._results(spot, window, memory))

    def _seen(self, spot: _Spot, start: Any, size: int) -> Any:
        """How many keys of a window the last query of a group sees."""
        if self.blocks.causal is None:
            return self._number(size)
        end = spot.row + self.plan.tile.queries + self.blocks.causal - start
        return tirx.Max(tirx.Min(end, self._number(size)), self._number(0))

    def _scores(self, spot: _Spot, window: _Window, memory: _Memory) -> tirx.Stmt:
        """Scores, their maxima, their powers and the sums, the queries in the lanes."""
        keys = min(self.plan.tile.keys, window.size)
        last = self._number(window.size - keys)

        def tile(number: Any) -> tirx.Stmt:
            return self._score_tile(spot, window.start, tirx.Min(number * keys, last), keys, memory)

        top = nest.workspace((self.plan.tile.queries,), self.blocks.dtype, "top")
        old = self._each_query(lambda *at: nest.store(top, memory.highest[spot.number, self._lane(*at)], self._lane(*at)))
        return nest.sequence(
            nest.declare(top),
            old,
            self._times((window.seen + (keys - 1)) // keys, tile),
            self._rescaled(spot, top, memory),
            self._powers(spot, window, memory),
        )

    def _score_tile(self, spot: _Spot, start: Any, first: Any, keys: int, memory: _Memory) -> tirx.Stmt:
        tile, dtype = self.plan.tile, self.blocks.dtype
        sums = nest.registers((keys, tile.vectors, tile.lanes), dtype, "sums")

        def each(statement: Callable[..., tirx.Stmt]) -> tirx.Stmt:
            return nest.unrolled(
                keys, lambda key: self._each_query(lambda v, lane: statement(key, v, lane)), self._index
            )

        def step(place: Any) -> tirx.Stmt:
            def add(key: Any, v: Any, lane: Any) -> tirx.Stmt:
                query = memory.queries[spot.number, place, self._lane(v, lane)]
                number = self.blocks.of_key(spot.batch, start + first + key, place)
                return nest.store(sums, sums[key, v, lane] + query * number, key, v, lane)

            return each(add)

        def keep(key: Any, v: Any, lane: Any) -> tirx.Stmt:
            at = self._lane(v, lane)
            weight = self.blocks.weight(sums[key, v, lane], spot.batch, spot.row + at, start + first + key)
            stored = nest.store(memory.powers, weight, first + key, at)
            highest = tirx.Max(memory.highest[spot.number, at], memory.powers[first + key, at])
            return nest.sequence(stored, nest.store(memory.highest, highest, spot.number, at))

        return nest.sequence(
            nest.declare(sums),
            each(lambda *at: nest.store(sums, self._float(0), *at)),
            nest.serial(self._shape.depth, step, self._index),
            each(keep),
        )

    def _rescaled(self, spot: _Spot, top: Any, memory: _Memory) -> tirx.Stmt:
        """What the results of earlier windows are multiplied with; their sums are at once."""

        def scaled(*at: Any) -> tirx.Stmt:
            lane = self._lane(*at)
            scale = tirx.exp(top[lane] - self._shift(memory.highest[spot.number, lane]))
            total = memory.total[spot.number, lane] * memory.scale[lane]
            return nest.sequence(
                nest.store(memory.scale, scale, lane), nest.store(memory.total, total, spot.number, lane)
            )

        nothing = self._each_query(lambda *at: nest.store(memory.scale, self._float(0), self._lane(*at)))
        return nothing if self._is_whole else self._each_query(scaled)

    def _shift(self, highest: Expression) -> Expression:
        """What is subtracted from scores; of a query that has seen no key yet, nothing."""
        return tirx.Select(highest == self._float(-inf), self._float(0), highest)

    def _powers(self, spot: _Spot, window: _Window, memory: _Memory) -> tirx.Stmt:
        tile = self.plan.tile
        sums = nest.registers((tile.vectors, tile.lanes), self.blocks.dtype, "total")

        def of_key(key: Any) -> tirx.Stmt:
            def power(v: Any, lane: Any) -> tirx.Stmt:
                at = self._lane(v, lane)
                shift = self._shift(memory.highest[spot.number, at])
                value = tirx.exp(memory.powers[key, at] - shift)
                return nest.store(memory.powers, value, key, at)

            def add(v: Any, lane: Any) -> tirx.Stmt:
                return nest.store(sums, sums[v, lane] + memory.powers[key, self._lane(v, lane)], v, lane)

            return nest.sequence(self._each_query(power), self._each_query(add))

        def join(v: Any, lane: Any) -> tirx.Stmt:
            at = self._lane(v, lane)
            total = memory.total[spot.number, at] + sums[v, lane]
            return nest.store(memory.total, total, spot.number, at)

        return nest.sequence(
            nest.declare(sums),
            self._each_query(lambda *at: nest.store(sums, self._float(0), *at)),
            self._times(window.seen, of_key),
            self._each_query(join),
        )

    def _results(self, spot: _Spot, window: _Window, memory: _Memory) -> tirx.Stmt:
        """The products of a window's powers and values."""
        tile = self.plan.tile

        def of_panel(panel: Any) -> tirx.Stmt:
            def of_rows(number: Any) -> tirx.Stmt:
                return self._result_tile(spot, window, panel, number * tile.rows, memory)

            return nest.serial(tile.queries // tile.rows, of_rows, self._index)

        return nest.serial(self._panels, of_panel, self._index)

    def _column(self, panel: Any, v: Any, lane: Any) -> Any:
        tile = self.plan.tile
        first = tirx.Min(panel * tile.width, self._number(self._shape.width - tile.width))
        return first + v * tile.column_lanes + lane

    def _result_tile(self, spot: _Spot, window: _Window, panel: Any, row: Any, memory: _Memory) -> tirx.Stmt:
        tile = self.plan.tile
        sums = nest.registers((tile.rows, tile.columns, tile.column_lanes), self.blocks.dtype, "sums")

        def step(key: Any) -> tirx.Stmt:
            def add(r: Any, v: Any, lane: Any) -> tirx.Stmt:
                number = self.blocks.value(spot.batch, window.start + key, self._column(panel, v, lane))
                product = memory.powers[key, row + r] * number
                return nest.store(sums, sums[r, v, lane] + product, r, v, lane)

            return self._each_result(add)

        def keep(r: Any, v: Any, lane: Any) -> tirx.Stmt:
            if self._is_whole:
                return self._store(sums[r, v, lane], spot, row + r, (panel, v, lane), memory)
            at = (spot.number, panel, row + r, v * tile.column_lanes + lane)
            before = tirx.Select(
                window.start == self._number(0), self._float(0), memory.result[at] * memory.scale[row + r]
            )
            return nest.store(memory.result, before + sums[r, v, lane], *at)

        return nest.sequence(
            nest.declare(sums),
            self._each_result(lambda *at: nest.store(sums, self._float(0), *at)),
            self._times(window.seen, step),
            self._each_result(keep),
        )

    def _finish(self, spot: _Spot, memory: _Memory) -> tirx.Stmt:
        """Store the result of all windows."""
        tile = self.plan.tile

        def element(row: Any, panel: Any, v: Any, lane: Any) -> tirx.Stmt:
            value = memory.result[spot.number, panel, row, v * tile.column_lanes + lane]
            return self._store(value, spot, row, (panel, v, lane), memory)

        def of_row(row: Any) -> tirx.Stmt:
            def of_panel(panel: Any) -> tirx.Stmt:
                return self._columns(lambda v, lane: element(row, panel, v, lane))

            return nest.serial(self._panels, of_panel, self._index)

        return nest.serial(tile.queries, of_row, self._index)

    def _store(
        self, value: Expression, spot: _Spot, row: Any, column: tuple[Any, Any, Any], memory: _Memory
    ) -> tirx.Stmt:
        total = memory.total[spot.number, row]
        share = value / total
        if self.blocks.safe:
            share = tirx.Select(total == self._float(0), self._float(0), share)
        return self.blocks.store(share, spot.batch, spot.row + row, self._column(*column))

    def _scores_of_one(self, spot: _Spot, window: _Window, memory: _Memory) -> tirx.Stmt:
        raise NotImplementedError

    def _each_query(self, statement: Callable[[Any, Any], tirx.Stmt]) -> tirx.Stmt:
        """A statement for every query of a group, written out."""
        tile, index = self.plan.tile, self._index
        return nest.unrolled(
            tile.vectors, lambda v: nest.vectorized(tile.lanes, lambda lane: statement(v, lane), index), index
        )

    def _each_result(self, statement: Callable[[Any, Any, Any], tirx.Stmt]) -> tirx.Stmt:
        """A statement for every element of a tile of the result, written out."""
        return nest.unrolled(
            self.plan.tile.rows, lambda r: self._columns(lambda v, lane: statement(r, v, lane)), self._index
        )

    def _columns(self, statement: Callable[[Any, Any], tirx.Stmt]) -> tirx.Stmt:
        tile, index = self.plan.tile, self._index

        def vector(v: Any) -> tirx.Stmt:
            return nest.vectorized(tile.column_lanes, lambda lane: statement(v, lane), index)

        return nest.unrolled(tile.columns, vector, index)

    def _lane(self, v: Any, lane: Any) -> Any:
        """A query's number in its group."""
        return v * self.plan.tile.lanes + lane

    def _times(self, count: Any, body: nest.Body) -> tirx.Stmt:
        """A plain loop; under a causal mask the number of its turns is computed."""
        if isinstance(count, tirx.IntImm):
            return nest.serial(int(count), body, self._index)
        variable = tirx.Var("i", self._index)
        zero = self._number(0)
        return tirx.For(variable, zero, count, tirx.ForKind.SERIAL, body(variable))

    def _number(self, value: int) -> Any:
        return tirx.IntImm(self._index, value)

    def _float(self, value: float) -> Any:
        return tirx.FloatImm(self.blocks.dtype, float(value))
