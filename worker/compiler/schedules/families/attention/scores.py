"""The first half of attention: the scores of a window of keys, their maxima, powers and sums.

Two variants fill the same buffers. With the queries in the lanes, a tile has keys in its rows. With very few
queries, one query at a time has the head's size in the lanes for the scores, and the keys for the powers::

    for tile of keys in window:
        sums[keys, lanes] = 0
        for vector of the head's size: for key: sums[key, lanes] += query[lanes] * key[key, lanes]
        powers[keys] = f(sum over lanes); highest = max(highest, powers)
    for vector of keys: powers[lanes] = exp(powers[lanes] - highest); total[lanes] += powers[lanes]

The last vector of keys is filled up with minus infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.families.attention.loops import AttentionLoops, QueryGroup, TaskBuffers, Window

Expression = Any


@dataclass(frozen=True)
class Scores(AttentionLoops):
    """Writes the loops from queries and keys to powers."""

    def of_window(self, group: QueryGroup, window: Window, buffers: TaskBuffers) -> tirx.Stmt:
        """Fill ``buffers.powers`` and update the maxima, the sums and the scale."""
        tile = self.plan.tile
        top = nest.workspace((tile.queries,), self.blocks.dtype, "top")

        def keep(*at: Any) -> tirx.Stmt:
            return nest.store(top, buffers.highest[group.number, self.place(*at)], self.place(*at))

        return nest.sequence(
            nest.declare(top),
            self.each_query(keep),
            self._tiles(group, window, buffers),
            self._rescaled(group, top, buffers),
            (self._powers if tile.lanes > 1 else self._powers_of_one)(group, window, buffers),
        )

    def _tiles(self, group: QueryGroup, window: Window, buffers: TaskBuffers) -> tirx.Stmt:
        """The scores and their maxima, tile by tile of keys; the last tile may overlap its neighbor."""
        keys = self.plan.tile.keys
        write = self._tile if self.plan.tile.lanes > 1 else self._tile_of_one

        def tile(number: Any) -> tirx.Stmt:
            return write(group, window.start, tirx.Min(number * keys, window.size - keys), keys, buffers)

        return self.times((window.seen + (keys - 1)) // keys, tile)

    def _tile(self, group: QueryGroup, start: Any, first: Any, keys: int, buffers: TaskBuffers) -> tirx.Stmt:
        tile, dtype = self.plan.tile, self.blocks.dtype
        sums = nest.registers((keys, tile.vectors, tile.lanes), dtype, "sums")
        top = nest.registers((tile.vectors, tile.lanes), dtype, "top")

        def each(statement: Callable[..., tirx.Stmt]) -> tirx.Stmt:
            return nest.unrolled(
                keys, lambda key: self.each_query(lambda v, lane: statement(key, v, lane)), self.index
            )

        def step(place: Any) -> tirx.Stmt:
            def add(key: Any, v: Any, lane: Any) -> tirx.Stmt:
                query = buffers.queries[group.number, place, self.place(v, lane)]
                number = self.blocks.of_key(group.batch, start + first + key, place)
                return nest.store(sums, sums[key, v, lane] + query * number, key, v, lane)

            return each(add)

        def keep(key: Any, v: Any, lane: Any) -> tirx.Stmt:
            at = self.place(v, lane)
            weight = self.blocks.weight(sums[key, v, lane], group.batch, group.row + at, start + first + key)
            stored = nest.store(buffers.powers, weight, first + key, at)
            highest = tirx.Max(top[v, lane], buffers.powers[first + key, at])
            return nest.sequence(stored, nest.store(top, highest, v, lane))

        def join(v: Any, lane: Any) -> tirx.Stmt:
            at = group.number, self.place(v, lane)
            return nest.store(buffers.highest, tirx.Max(buffers.highest[at], top[v, lane]), *at)

        return nest.sequence(
            nest.declare(sums),
            nest.declare(top),
            each(lambda *at: nest.store(sums, self.float(0), *at)),
            nest.serial(self.shape.depth, step, self.index),
            self.each_query(lambda *at: nest.store(top, self.float(-inf), *at)),
            each(keep),
            self.each_query(join),
        )

    def _tile_of_one(
        self, group: QueryGroup, start: Any, first: Any, keys: int, buffers: TaskBuffers
    ) -> tirx.Stmt:
        """The scores of one query: products along the head's size, added up over the lanes at the end."""
        whole, rest = divmod(self.shape.depth, self.lanes)
        sums = nest.registers((keys, self.lanes), self.blocks.dtype, "sums")

        def each(statement: nest.Body) -> tirx.Stmt:
            return nest.unrolled(keys, statement, self.index)

        def term(key: Any, step: Any) -> Expression:
            number = self.blocks.of_key(group.batch, start + first + key, step)
            return buffers.queries[group.number, step, 0] * number

        def add(key: Any, step: Any, lane: Any) -> tirx.Stmt:
            return nest.store(sums, sums[key, lane] + term(key, step), key, lane)

        def vectors(number: Any) -> tirx.Stmt:
            steps = number * self.lanes
            return each(lambda key: self.vector(self.lanes, lambda lane: add(key, steps + lane, lane)))

        def single(number: Any) -> tirx.Stmt:
            return each(lambda key: add(key, number + whole * self.lanes, self.number(0)))

        def clear(key: Any) -> tirx.Stmt:
            return self.vector(self.lanes, lambda lane: nest.store(sums, self.float(0), key, lane))

        joined, joins = self._joined(sums, keys)
        return nest.sequence(
            nest.declare(sums),
            each(clear),
            *([nest.serial(whole, vectors, self.index)] if whole else []),
            *([nest.serial(rest, single, self.index)] if rest else []),
            *joins,
            each(lambda key: self._kept(joined[key, 0], group, start, first + key, buffers)),
        )

    def _joined(self, sums: Any, keys: int) -> tuple[Any, list[tirx.Stmt]]:
        """The sum over the lanes: add the halves of a vector until one lane is left."""
        joins: list[tirx.Stmt] = []
        while int(sums.shape[1]) > 1:
            width, wide = int(sums.shape[1]) // 2, sums
            sums = nest.registers((keys, width), self.blocks.dtype, "half")
            joins += [nest.declare(sums), self._halved(wide, sums, keys, width)]
        return sums, joins

    def _halved(self, wide: Any, sums: Any, keys: int, width: int) -> tirx.Stmt:
        def half(key: Any) -> tirx.Stmt:
            return self.vector(
                width,
                lambda lane: nest.store(sums, wide[key, lane] + wide[key, lane + width], key, lane),
            )

        return nest.unrolled(keys, half, self.index)

    def _kept(
        self, score: Expression, group: QueryGroup, start: Any, key: Any, buffers: TaskBuffers
    ) -> tirx.Stmt:
        place = self.number(0)
        weight = self.blocks.weight(score, group.batch, group.row, start + key)
        highest = tirx.Max(buffers.highest[group.number, place], buffers.powers[key, place])
        return nest.sequence(
            nest.store(buffers.powers, weight, key, place),
            nest.store(buffers.highest, highest, group.number, place),
        )

    def _rescaled(self, group: QueryGroup, top: Any, buffers: TaskBuffers) -> tirx.Stmt:
        """Compute the scale of earlier windows' results, and apply it to their sums."""

        def scaled(*at: Any) -> tirx.Stmt:
            lane = self.place(*at)
            scale = tirx.exp(top[lane] - self._shift(buffers.highest[group.number, lane]))
            total = buffers.total[group.number, lane] * buffers.scale[lane]
            return nest.sequence(
                nest.store(buffers.scale, scale, lane), nest.store(buffers.total, total, group.number, lane)
            )

        nothing = self.each_query(lambda *at: nest.store(buffers.scale, self.float(0), self.place(*at)))
        return nothing if self.is_whole else self.each_query(scaled)

    def _shift(self, highest: Expression) -> Expression:
        """The maximum to subtract from scores; zero for a query that has seen no key yet."""
        return tirx.Select(highest == self.float(-inf), self.float(0), highest)

    def _powers(self, group: QueryGroup, window: Window, buffers: TaskBuffers) -> tirx.Stmt:
        tile = self.plan.tile
        sums = nest.registers((tile.vectors, tile.lanes), self.blocks.dtype, "total")

        def of_key(key: Any) -> tirx.Stmt:
            def power(v: Any, lane: Any) -> tirx.Stmt:
                at = self.place(v, lane)
                shift = self._shift(buffers.highest[group.number, at])
                value = tirx.exp(buffers.powers[key, at] - shift)
                return nest.store(buffers.powers, value, key, at)

            def add(v: Any, lane: Any) -> tirx.Stmt:
                return nest.store(sums, sums[v, lane] + buffers.powers[key, self.place(v, lane)], v, lane)

            return nest.sequence(self.each_query(power), self.each_query(add))

        def join(v: Any, lane: Any) -> tirx.Stmt:
            at = self.place(v, lane)
            total = buffers.total[group.number, at] + sums[v, lane]
            return nest.store(buffers.total, total, group.number, at)

        return nest.sequence(
            nest.declare(sums),
            self.each_query(lambda *at: nest.store(sums, self.float(0), *at)),
            self.times(window.seen, of_key),
            self.each_query(join),
        )

    def _powers_of_one(self, group: QueryGroup, window: Window, buffers: TaskBuffers) -> tirx.Stmt:
        """The powers of one query's scores, with the keys in the lanes; the last vector is filled up."""
        zero = self.number(0)
        sums = nest.registers((1, self.lanes), self.blocks.dtype, "total")

        def fill(lane: Any) -> tirx.Stmt:
            return nest.store(buffers.powers, self.float(-inf), window.seen + lane, zero)

        def power(key: Any) -> tirx.Stmt:
            shift = self._shift(buffers.highest[group.number, zero])
            return nest.store(buffers.powers, tirx.exp(buffers.powers[key, zero] - shift), key, zero)

        def add(key: Any, lane: Any) -> tirx.Stmt:
            return nest.store(sums, sums[zero, lane] + buffers.powers[key, zero], zero, lane)

        def vector(number: Any) -> tirx.Stmt:
            first = number * self.lanes
            return nest.sequence(
                self.vector(self.lanes, lambda lane: power(first + lane)),
                self.vector(self.lanes, lambda lane: add(first + lane, lane)),
            )

        joined, joins = self._joined(sums, 1)
        total = buffers.total[group.number, zero] + joined[0, 0]
        return nest.sequence(
            nest.declare(sums),
            self.vector(self.lanes, lambda lane: nest.store(sums, self.float(0), zero, lane)),
            self.vector(self.lanes, fill),
            self.times((window.seen + (self.lanes - 1)) // self.lanes, vector),
            *joins,
            nest.store(buffers.total, total, group.number, zero),
        )
