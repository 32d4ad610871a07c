"""Attention, ``softmax(f(QK))V``, without a matrix of all scores in memory.

Claims the functions that ``layout.attention`` makes::

    for parallel task in (batch and head, chunk of query groups):
        for group in chunk: copy its queries as [depth, queries]; highest = -inf; total = 0
        for window of keys:
            for group in chunk:
                for tile of keys in window:                                 # scores, see ``scores``
                    for d in depth:
                        for key, vector of queries:                         # unrolled
                            sums[key, queries] += query[d, queries] * key[key, d]
                    powers[keys, queries] = f(sums); highest = max(highest, powers)
                scale = exp(old highest - highest); total *= scale          # if there are several windows
                for key in window: powers[key] = exp(powers[key] - highest); total += powers[key]
                for panel of features, tile of rows:                        # a row is a query
                    for key in window:
                        for row, vector of features:                        # unrolled
                            sums[row, features] += powers[key, row] * value[key, features]
                    result = result * scale + sums
        for group in chunk: output = result / total

Registers hold a tile of ``keys`` by vectors of queries, then one of ``rows`` by vectors of features. L1 and
L2 hold the queries and results of a task and the powers of one window and group; the keys and values of a
window fill about an eighth of L2. If one window holds all keys, the tile is divided by the total and stored
directly. Queries are in the lanes, so keys and values are read in place and the softmax joins no lanes.
With fewer than four queries (decoding), each one is a group of its own: scores have the head's size in the
lanes, powers the keys.

Edges: groups of queries, tiles of keys and vectors of features move back over their neighbors. Under a causal
mask, keys after a group's last query are not read. If there are more keys than queries, as in a cache, and a
mask selects scores, each group first finds the first and the last key that the mask shows, and reads only
these and the keys between them: the power of a hidden key is zero. So the time of a decoding step grows with
the filled part of the cache, or with the window that the query sees. Dynamic numbers of queries and keys get
several versions, chosen at run time; the last window takes the rest of the keys.

Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3; Dao et al.,
"FlashAttention", 2022, algorithm 1, for the order of the loops; Dao, "FlashAttention-2", 2023, section 3.1,
for one division at the end. The tiles are those of ``families.matmul``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Places, split_place
from worker.compiler.schedules.families.attention.blocks import AttentionBlocks, find_attention
from worker.compiler.schedules.families.attention.loops import AttentionLoops, QueryGroup, TaskBuffers, Window
from worker.compiler.schedules.families.attention.plan import attention_versions
from worker.compiler.schedules.families.attention.scores import Scores
from worker.compiler.schedules.families.transpose import NOT_IN_VECTORS, transposed
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import Machine

Expression = Any


def write_attention(schedule: s_tir.Schedule, machine: Machine, _choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the loops of a function; None if ``layout.attention`` did not make it."""
    blocks = find_attention(schedule)
    if blocks is None:
        return None
    return nest.with_loops(schedule.mod["main"], _write(blocks, machine))


def _write(blocks: AttentionBlocks, machine: Machine) -> tirx.Stmt:
    """All loops, in one version or in several for dynamic sizes."""
    *others, last = attention_versions(blocks.shape, machine)
    loops = _Writer(blocks, last, machine).tasks()
    for plan in reversed(others):
        queries, keys = plan.needs
        enough = tirx.all(blocks.row.size >= queries, blocks.key.size >= keys)
        loops = nest.either(enough, _Writer(blocks, plan, machine).tasks(), loops)
    return loops


@dataclass(frozen=True)
class _Writer(AttentionLoops):
    """Writes the loops of one version."""

    def tasks(self) -> tirx.Stmt:
        """All loops."""
        chunks = nest.ceil_div(self._groups, self.plan.groups)
        tasks = self.blocks.batch_count * chunks
        is_single = isinstance(tasks, int) and tasks == 1

        def task(index: Any) -> tirx.Stmt:
            return self.named((index // chunks, "batch"), (index % chunks, "chunk"), body=self._task)

        return nest.tasks(tasks, task, self.index, parallel=self.plan.parallel and not is_single)

    @property
    def _groups(self) -> nest.Size:
        return nest.ceil_div(self.blocks.row.size, self.plan.tile.queries)

    @property
    def _panels(self) -> int:
        return ceil(self.shape.width / self.plan.tile.width)

    def _task(self, batch: Any, chunk: Any) -> tirx.Stmt:
        places, buffers = split_place(batch, self.blocks.axes), self._buffers()

        def task(*at: Any) -> tirx.Stmt:
            return self._of_batch(dict(zip(places, at, strict=True)), chunk, buffers)

        return self.named(*((place, "place") for place in places.values()), body=task)

    def _of_batch(self, batch: Places, chunk: Any, buffers: TaskBuffers) -> tirx.Stmt:
        tile = self.plan.tile
        first, count = nest.share(chunk, self._groups, self.plan.groups)
        last = self._number(self.blocks.row.size - tile.queries)

        def of_groups(body: Callable[[QueryGroup], tirx.Stmt]) -> tirx.Stmt:
            def of_group(number: Any) -> tirx.Stmt:
                row = tirx.Min((first + number) * tile.queries, last)
                return self.named((row, "row"), body=lambda row: body(QueryGroup(batch, number, row)))

            return nest.serial(count, of_group, self.index)

        def window(number: Any) -> tirx.Stmt:
            return of_groups(lambda group: self._windowed(group, number, buffers))

        return nest.sequence(
            *(nest.declare(buffer) for buffer in vars(buffers).values() if buffer is not None),
            of_groups(lambda group: self._begin(group, buffers)),
            self.times(self._windows(chunk), window),
            *([] if self.is_whole else [of_groups(lambda group: self._finish(group, buffers))]),
        )

    def _number(self, size: nest.Size) -> Any:
        return self.number(size) if isinstance(size, int) else size

    def _buffers(self) -> TaskBuffers:
        tile, groups, dtype = self.plan.tile, self.plan.groups, self.blocks.dtype
        states = (groups, tile.queries)
        window = self.plan.window * (2 if self.shape.dynamic_keys else 1)
        window += self.lanes if tile.lanes == 1 else 0
        result = (groups, self._panels, tile.queries, tile.width)
        return TaskBuffers(
            queries=nest.workspace((groups, self.shape.depth, tile.queries), dtype, "queries"),
            powers=nest.workspace((window, tile.queries), dtype, "powers"),
            highest=nest.workspace(states, dtype, "highest"),
            total=nest.workspace(states, dtype, "total"),
            scale=nest.workspace((tile.queries,), dtype, "scale"),
            result=None if self.is_whole else nest.workspace(result, dtype, "result"),
            first=nest.workspace((groups,), self.index, "first_seen") if self.counts_keys else None,
            end=nest.workspace((groups,), self.index, "end_seen") if self.counts_keys else None,
        )

    @property
    def _all_windows(self) -> Any:
        """The number of windows."""
        if self.shape.dynamic_keys:
            return tirx.Max(self.blocks.key.size // self.plan.window, self.number(1))
        return self.number(ceil(self.shape.keys / self.plan.window))

    def _windows(self, chunk: Any) -> Any:
        """The number of windows that the queries of a task see."""
        size = self.plan.window
        if self.blocks.causal is None:
            return self._all_windows
        first, count = nest.share(chunk, self._groups, self.plan.groups)
        end = (first + count) * self.plan.tile.queries + self.blocks.causal
        return tirx.Min((end + (size - 1)) // size, self._all_windows)

    def _begin(self, group: QueryGroup, buffers: TaskBuffers) -> tirx.Stmt:
        """Transpose the queries of a group and initialize its state."""

        def clear(*at: Any) -> tirx.Stmt:
            place = (group.number, self.place(*at))
            return nest.sequence(
                nest.store(buffers.highest, self.float(-inf), *place),
                nest.store(buffers.total, self.float(0), *place),
            )

        return nest.sequence(
            self._transposed_queries(group, buffers),
            self.each_query(clear),
            *([self._find_seen(group, buffers)] if self.counts_keys else []),
        )

    def _transposed_queries(self, group: QueryGroup, buffers: TaskBuffers) -> tirx.Stmt:
        """Copy the queries of a group, with the queries in the lanes; squares in registers where possible."""
        lanes, depth = self.plan.tile.lanes, self.shape.depth
        load = self.blocks.query_load
        if load is None or str(load.source.dtype) in NOT_IN_VECTORS or not 1 < lanes <= depth:
            return self._copied_queries(group, buffers)

        def square(v: Any, first: Any) -> tirx.Stmt:
            def row(r: int) -> Any:
                query = self.blocks.query(group.batch, group.row + v * lanes + r, first)
                *outer, last = query.indices
                return query.source[(*outer, tirx.Ramp(last, self.number(1), lanes))]

            statements, columns = transposed(list(map(row, range(lanes))), str(load.source.dtype))
            line = tirx.Ramp(v * lanes, self.number(1), lanes)
            stores = [
                nest.store(buffers.queries, column, group.number, first + step, line)
                for step, column in enumerate(columns)
            ]
            return nest.sequence(*statements, *stores)

        def squares(v: Any) -> tirx.Stmt:
            last = self.number(depth - lanes)
            return nest.serial(
                ceil(depth / lanes), lambda number: square(v, tirx.Min(number * lanes, last)), self.index
            )

        return nest.serial(self.plan.tile.vectors, squares, self.index)

    def _copied_queries(self, group: QueryGroup, buffers: TaskBuffers) -> tirx.Stmt:
        def element(r: Any, step: Any) -> tirx.Stmt:
            number = self.blocks.query(group.batch, group.row + r, step)
            return nest.store(buffers.queries, number, group.number, step, r)

        def row(r: Any) -> tirx.Stmt:
            return nest.serial(self.shape.depth, lambda step: element(r, step), self.index)

        return nest.serial(self.plan.tile.queries, row, self.index)

    def _find_seen(self, group: QueryGroup, buffers: TaskBuffers) -> tirx.Stmt:
        """Store which keys lie between those that the group sees, searching with keys in the lanes."""
        lanes, keys = min(self.lanes, self.shape.keys), self.shape.keys
        none = (self.number(keys), self.number(0))
        first, end = (nest.registers((lanes,), self.index, name) for name in ("first", "end"))

        def look_at(row: Any, key: Any, lane: Any) -> tirx.Stmt:
            sees = self.blocks.sees(group.batch, row, key)
            return nest.sequence(
                nest.store(first, tirx.Min(first[lane], tirx.Select(sees, key, none[0])), lane),
                nest.store(end, tirx.Max(end[lane], tirx.Select(sees, key + 1, none[1])), lane),
            )

        def vectors(row: Any) -> tirx.Stmt:
            def look(number: Any) -> tirx.Stmt:
                start = tirx.Min(number * lanes, self.number(keys - lanes))
                return self.vector(lanes, lambda lane: look_at(row, start + lane, lane))

            return nest.serial(ceil(keys / lanes), look, self.index)

        def join(lane: Any) -> tirx.Stmt:
            number = group.number
            return nest.sequence(
                nest.store(buffers.first, tirx.Min(buffers.first[number], first[lane]), number),
                nest.store(buffers.end, tirx.Max(buffers.end[number], end[lane]), number),
            )

        def clear(lane: Any) -> tirx.Stmt:
            return nest.sequence(nest.store(first, none[0], lane), nest.store(end, none[1], lane))

        rows = self.plan.tile.queries if self.blocks.has_own_masks else 1
        return nest.sequence(
            nest.declare(first),
            nest.declare(end),
            self.vector(lanes, clear),
            nest.serial(rows, lambda row: vectors(group.row + row), self.index),
            nest.store(buffers.first, none[0], group.number),
            nest.store(buffers.end, none[1], group.number),
            nest.serial(lanes, join, self.index),
        )

    def _windowed(self, group: QueryGroup, number: Any, buffers: TaskBuffers) -> tirx.Stmt:
        """Compute a window of keys for a group of queries."""
        size, start = self.number(self.plan.window), number * self.plan.window
        if self.shape.dynamic_keys:
            is_last = number == self._all_windows - 1
            size = tirx.Select(is_last, self.blocks.key.size - start, size)
        elif self.shape.keys % self.plan.window:
            # One loop for all windows: with a second loop for the rest, LLVM keeps the sums in memory.
            size = tirx.Min(size, self.shape.keys - start)

        def of_seen(seen: Any, start: Any, size: Any) -> tirx.Stmt:
            window = Window(start, size, seen, number == self.number(0))
            scores = Scores(self.blocks, self.plan, self.machine).of_window(group, window, buffers)
            return nest.sequence(scores, self._results(group, window, buffers))

        if self.counts_keys:
            # A tile of keys must fit after the hidden keys that are skipped.
            skipped = self._clipped(buffers.first[group.number] - start, size - self.plan.tile.keys)
            rest = self._clipped(buffers.end[group.number] - start, size) - skipped
            values = ((skipped, "skipped"), (tirx.Max(rest, self.number(0)), "seen"))
            return nest.all_named(
                values, lambda skipped, seen: of_seen(seen, start + skipped, size - skipped)
            )
        seen = self._seen(group, start, size)
        return self.named((seen, "seen"), (start, "start"), (size, "size"), body=of_seen)

    def _seen(self, group: QueryGroup, start: Any, size: Any) -> Any:
        """The number of keys of a window that the last query of a group sees."""
        if self.blocks.causal is None:
            return size
        return self._clipped(group.row + self.plan.tile.queries + self.blocks.causal - start, size)

    def _clipped(self, end: Any, size: Any) -> Any:
        return tirx.Max(tirx.Min(end, size), self.number(0))

    def _results(self, group: QueryGroup, window: Window, buffers: TaskBuffers) -> tirx.Stmt:
        """The product of a window's powers and values."""
        tile = self.plan.tile

        def of_panel(panel: Any) -> tirx.Stmt:
            def of_rows(number: Any) -> tirx.Stmt:
                return self._result_tile(group, window, panel, number * tile.rows, buffers)

            return nest.serial(tile.queries // tile.rows, of_rows, self.index)

        return nest.serial(self._panels, of_panel, self.index)

    def _column(self, panel: Any, v: Any, lane: Any) -> Any:
        tile = self.plan.tile
        first = tirx.Min(panel * tile.width, self.number(self.shape.width - tile.width))
        return first + v * tile.column_lanes + lane

    def _result_tile(
        self, group: QueryGroup, window: Window, panel: Any, row: Any, buffers: TaskBuffers
    ) -> tirx.Stmt:
        tile = self.plan.tile
        sums = nest.registers((tile.rows, tile.columns, tile.column_lanes), self.blocks.dtype, "sums")

        def step(key: Any) -> tirx.Stmt:
            def add(r: Any, v: Any, lane: Any) -> tirx.Stmt:
                number = self.blocks.value(group.batch, window.start + key, self._column(panel, v, lane))
                product = buffers.powers[key, row + r] * number
                return nest.store(sums, sums[r, v, lane] + product, r, v, lane)

            return self._each_result(add)

        def keep(r: Any, v: Any, lane: Any) -> tirx.Stmt:
            if self.is_whole:
                return self._store(sums[r, v, lane], group, row + r, (panel, v, lane), buffers)
            at = (group.number, panel, row + r, v * tile.column_lanes + lane)
            before = tirx.Select(window.is_first, self.float(0), buffers.result[at] * buffers.scale[row + r])
            return nest.store(buffers.result, before + sums[r, v, lane], *at)

        return nest.sequence(
            nest.declare(sums),
            self._each_result(lambda *at: nest.store(sums, self.float(0), *at)),
            self.times(window.seen, step),
            self._each_result(keep),
        )

    def _finish(self, group: QueryGroup, buffers: TaskBuffers) -> tirx.Stmt:
        """Store the result of all windows."""
        tile = self.plan.tile

        def element(row: Any, panel: Any, v: Any, lane: Any) -> tirx.Stmt:
            value = buffers.result[group.number, panel, row, v * tile.column_lanes + lane]
            return self._store(value, group, row, (panel, v, lane), buffers)

        def of_row(row: Any) -> tirx.Stmt:
            def of_panel(panel: Any) -> tirx.Stmt:
                return self._columns(lambda v, lane: element(row, panel, v, lane))

            return nest.serial(self._panels, of_panel, self.index)

        return nest.serial(tile.queries, of_row, self.index)

    def _store(
        self,
        value: Expression,
        group: QueryGroup,
        row: Any,
        column: tuple[Any, Any, Any],
        buffers: TaskBuffers,
    ) -> tirx.Stmt:
        total = buffers.total[group.number, row]
        share = value / total
        if self.blocks.safe:
            share = tirx.Select(total == self.float(0), self.float(0), share)
        return self.blocks.store(share, group.batch, group.row + row, self._column(*column))

    def _each_result(self, statement: Callable[[Any, Any, Any], tirx.Stmt]) -> tirx.Stmt:
        """An unrolled statement for every element of a tile of the result."""
        return nest.unrolled(
            self.plan.tile.rows, lambda r: self._columns(lambda v, lane: statement(r, v, lane)), self.index
        )

    def _columns(self, statement: Callable[[Any, Any], tirx.Stmt]) -> tirx.Stmt:
        tile, index = self.plan.tile, self.index

        def vector(v: Any) -> tirx.Stmt:
            return nest.vectorized(tile.column_lanes, lambda lane: statement(v, lane), index)

        return nest.unrolled(tile.columns, vector, index)
