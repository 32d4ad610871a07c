"""The first half of attention: scores of a window of keys, their maxima, powers of e, and the sums of those.

Two ways of the same interface: queries in the lanes, keys in the rows of a tile; or, where there are very
few queries, one query at a time with the head's size, and then the keys, in the lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.families.attention.loops import Frame, Memory, Spot, Window

Expression = Any


@dataclass(frozen=True)
class Scores(Frame):
    """Writes what turns queries and keys into powers."""

    def of_window(self, spot: Spot, window: Window, memory: Memory) -> tirx.Stmt:
        """Fill ``memory.powers``, and bring the maxima, the sums and the scale up to date."""
        tile = self.plan.tile
        top = nest.workspace((tile.queries,), self.blocks.dtype, "top")

        def keep(*at: Any) -> tirx.Stmt:
            return nest.store(top, memory.highest[spot.number, self.place(*at)], self.place(*at))

        return nest.sequence(
            nest.declare(top),
            self.each_query(keep),
            self._tiles(spot, window, memory),
            self._rescaled(spot, top, memory),
            (self._powers if tile.lanes > 1 else self._powers_of_one)(spot, window, memory),
        )

    def _tiles(self, spot: Spot, window: Window, memory: Memory) -> tirx.Stmt:
        """Scores and their maxima, tile by tile of keys; the last tile overlaps its neighbor."""
        keys = self.plan.tile.keys
        write = self._tile if self.plan.tile.lanes > 1 else self._tile_of_one

        def tile(number: Any) -> tirx.Stmt:
            return write(spot, window.start, tirx.Min(number * keys, window.size - keys), keys, memory)

        return self.times((window.seen + (keys - 1)) // keys, tile)

    def _tile(self, spot: Spot, start: Any, first: Any, keys: int, memory: Memory) -> tirx.Stmt:
        tile, dtype = self.plan.tile, self.blocks.dtype
        sums = nest.registers((keys, tile.vectors, tile.lanes), dtype, "sums")
        top = nest.registers((tile.vectors, tile.lanes), dtype, "top")

        def each(statement: Callable[..., tirx.Stmt]) -> tirx.Stmt:
            return nest.unrolled(
                keys, lambda key: self.each_query(lambda v, lane: statement(key, v, lane)), self.index
            )

        def step(place: Any) -> tirx.Stmt:
            def add(key: Any, v: Any, lane: Any) -> tirx.Stmt:
                query = memory.queries[spot.number, place, self.place(v, lane)]
                number = self.blocks.of_key(spot.batch, start + first + key, place)
                return nest.store(sums, sums[key, v, lane] + query * number, key, v, lane)

            return each(add)

        def keep(key: Any, v: Any, lane: Any) -> tirx.Stmt:
            at = self.place(v, lane)
            weight = self.blocks.weight(sums[key, v, lane], spot.batch, spot.row + at, start + first + key)
            stored = nest.store(memory.powers, weight, first + key, at)
            highest = tirx.Max(top[v, lane], memory.powers[first + key, at])
            return nest.sequence(stored, nest.store(top, highest, v, lane))

        def join(v: Any, lane: Any) -> tirx.Stmt:
            at = spot.number, self.place(v, lane)
            return nest.store(memory.highest, tirx.Max(memory.highest[at], top[v, lane]), *at)

        return nest.sequence(
            nest.declare(sums),
            nest.declare(top),
            each(lambda *at: nest.store(sums, self.float(0), *at)),
            nest.serial(self.shape.depth, step, self.index),
            self.each_query(lambda *at: nest.store(top, self.float(-inf), *at)),
            each(keep),
            self.each_query(join),
        )

    def _tile_of_one(self, spot: Spot, start: Any, first: Any, keys: int, memory: Memory) -> tirx.Stmt:
        """Scores of one query: products along the head's size, whose lanes are added up at the end."""
        whole, rest = divmod(self.shape.depth, self.lanes)
        sums = nest.registers((keys, self.lanes), self.blocks.dtype, "sums")

        def each(statement: nest.Body) -> tirx.Stmt:
            return nest.unrolled(keys, statement, self.index)

        def term(key: Any, step: Any) -> Expression:
            number = self.blocks.of_key(spot.batch, start + first + key, step)
            return memory.queries[spot.number, step, 0] * number

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
            each(lambda key: self._kept(joined[key, 0], spot, start, first + key, memory)),
        )

    def _joined(self, sums: Any, keys: int) -> tuple[Any, list[tirx.Stmt]]:
        """The sums of the lanes, halved until one is left."""
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

    def _kept(self, score: Expression, spot: Spot, start: Any, key: Any, memory: Memory) -> tirx.Stmt:
        place = self.number(0)
        weight = self.blocks.weight(score, spot.batch, spot.row, start + key)
        highest = tirx.Max(memory.highest[spot.number, place], memory.powers[key, place])
        return nest.sequence(
            nest.store(memory.powers, weight, key, place),
            nest.store(memory.highest, highest, spot.number, place),
        )

    def _rescaled(self, spot: Spot, top: Any, memory: Memory) -> tirx.Stmt:
        """What the results of earlier windows are multiplied with; their sums are at once."""

        def scaled(*at: Any) -> tirx.Stmt:
            lane = self.place(*at)
            scale = tirx.exp(top[lane] - self._shift(memory.highest[spot.number, lane]))
            total = memory.total[spot.number, lane] * memory.scale[lane]
            return nest.sequence(
                nest.store(memory.scale, scale, lane), nest.store(memory.total, total, spot.number, lane)
            )

        nothing = self.each_query(lambda *at: nest.store(memory.scale, self.float(0), self.place(*at)))
        return nothing if self.is_whole else self.each_query(scaled)

    def _shift(self, highest: Expression) -> Expression:
        """What is subtracted from scores; of a query that has seen no key yet, nothing."""
        return tirx.Select(highest == self.float(-inf), self.float(0), highest)

    def _powers(self, spot: Spot, window: Window, memory: Memory) -> tirx.Stmt:
        tile = self.plan.tile
        sums = nest.registers((tile.vectors, tile.lanes), self.blocks.dtype, "total")

        def of_key(key: Any) -> tirx.Stmt:
            def power(v: Any, lane: Any) -> tirx.Stmt:
                at = self.place(v, lane)
                shift = self._shift(memory.highest[spot.number, at])
                value = tirx.exp(memory.powers[key, at] - shift)
                return nest.store(memory.powers, value, key, at)

            def add(v: Any, lane: Any) -> tirx.Stmt:
                return nest.store(sums, sums[v, lane] + memory.powers[key, self.place(v, lane)], v, lane)

            return nest.sequence(self.each_query(power), self.each_query(add))

        def join(v: Any, lane: Any) -> tirx.Stmt:
            at = self.place(v, lane)
            total = memory.total[spot.number, at] + sums[v, lane]
            return nest.store(memory.total, total, spot.number, at)

        return nest.sequence(
            nest.declare(sums),
            self.each_query(lambda *at: nest.store(sums, self.float(0), *at)),
            self.times(window.seen, of_key),
            self.each_query(join),
        )

    def _powers_of_one(self, spot: Spot, window: Window, memory: Memory) -> tirx.Stmt:
        """Powers of one query's scores, the keys in the lanes; the last vector is filled up."""
        zero = self.number(0)
        sums = nest.registers((1, self.lanes), self.blocks.dtype, "total")

        def fill(lane: Any) -> tirx.Stmt:
            return nest.store(memory.powers, self.float(-inf), window.seen + lane, zero)

        def power(key: Any) -> tirx.Stmt:
            shift = self._shift(memory.highest[spot.number, zero])
            return nest.store(memory.powers, tirx.exp(memory.powers[key, zero] - shift), key, zero)

        def add(key: Any, lane: Any) -> tirx.Stmt:
            return nest.store(sums, sums[zero, lane] + memory.powers[key, zero], zero, lane)

        def vector(number: Any) -> tirx.Stmt:
            first = number * self.lanes
            return nest.sequence(
                self.vector(self.lanes, lambda lane: power(first + lane)),
                self.vector(self.lanes, lambda lane: add(first + lane, lane)),
            )

        joined, joins = self._joined(sums, 1)
        total = memory.total[spot.number, zero] + joined[0, 0]
        return nest.sequence(
            nest.declare(sums),
            self.vector(self.lanes, lambda lane: nest.store(sums, self.float(0), zero, lane)),
            self.vector(self.lanes, fill),
            self.times((window.seen + (self.lanes - 1)) // self.lanes, vector),
            *joins,
            nest.store(memory.total, total, spot.number, zero),
        )
