"""Attention as a whole: ``softmax(f(QK))V``, never with all scores in memory.

Claims the functions that ``layout.attention.fuse_attention`` makes.

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

Open numbers of queries and keys come in several versions, chosen when they run by how many of them there
are. The last window takes the rest of the keys, so that none has fewer than a tile's.

Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
"FlashAttention", 2022; the tiles as in ``schedules.families.matmul``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.attention_plan import attention_versions
from worker.compiler.schedules.families.attention_blocks import AttentionBlocks, find_attention
from worker.compiler.schedules.families.attention_frame import Frame, Memory, Spot, Window
from worker.compiler.schedules.families.attention_scores import Scores
from worker.compiler.schedules.families.product import Places, split_place
from worker.compiler.schedules.machine import Machine
from worker.compiler.schedules.plans import PlanChooser

Expression = Any


def write_attention(schedule: s_tir.Schedule, machine: Machine, _choose: PlanChooser) -> tirx.PrimFunc | None:
    """The function as loops of this family, or None where ``fuse_attention`` did not make it."""
    blocks = find_attention(schedule)
    if blocks is None:
        return None
    return nest.with_loops(schedule.mod["main"], _write(blocks, machine))


def _write(blocks: AttentionBlocks, machine: Machine) -> tirx.Stmt:
    """All loops, in as many versions as open sizes ask for."""
    *others, last = attention_versions(blocks.shape, machine)
    loops = _Writer(blocks, last, machine).tasks()
    for plan in reversed(others):
        queries, keys = plan.needs
        enough = tirx.all(blocks.row.size >= queries, blocks.key.size >= keys)
        loops = nest.either(enough, _Writer(blocks, plan, machine).tasks(), loops)
    return loops


@dataclass(frozen=True)
class _Writer(Frame):
    """Writes the loops."""

    def tasks(self) -> tirx.Stmt:
        """All loops."""
        chunks = nest.ceil_div(self._groups, self.plan.groups)
        tasks = self.blocks.batch_count * chunks
        is_single = isinstance(tasks, int) and tasks == 1
        loop = nest.parallel if self.plan.parallel and not is_single else nest.serial

        def task(index: Any) -> tirx.Stmt:
            return self.named((index // chunks, "batch"), (index % chunks, "chunk"), body=self._task)

        return loop(tasks, task, self.index)

    @property
    def _groups(self) -> nest.Size:
        return nest.ceil_div(self.blocks.row.size, self.plan.tile.queries)

    @property
    def _panels(self) -> int:
        return ceil(self.shape.width / self.plan.tile.width)

    def _task(self, batch: Any, chunk: Any) -> tirx.Stmt:
        places, memory = split_place(batch, self.blocks.axes), self._memory()

        def task(*at: Any) -> tirx.Stmt:
            return self._of_batch(dict(zip(places, at, strict=True)), chunk, memory)

        return self.named(*((place, "place") for place in places.values()), body=task)

    def _of_batch(self, batch: Places, chunk: Any, memory: Memory) -> tirx.Stmt:
        tile, groups = self.plan.tile, self.plan.groups
        last = self._number(self.blocks.row.size - tile.queries)

        def of_groups(body: Callable[[Spot], tirx.Stmt]) -> tirx.Stmt:
            def of_group(number: Any) -> tirx.Stmt:
                row = tirx.Min((chunk * groups + number) * tile.queries, last)
                return self.named((row, "row"), body=lambda row: body(Spot(batch, number, row)))

            count = groups
            if self.shape.open_queries:
                count = tirx.Min(self.number(groups), self._groups - chunk * groups)
            return nest.serial(count, of_group, self.index)

        def window(number: Any) -> tirx.Stmt:
            return of_groups(lambda spot: self._windowed(spot, number, memory))

        return nest.sequence(
            *(nest.declare(buffer) for buffer in vars(memory).values() if buffer is not None),
            of_groups(lambda spot: self._begin(spot, memory)),
            self.times(self._windows(chunk), window),
            *([] if self.is_whole else [of_groups(lambda spot: self._finish(spot, memory))]),
        )

    def _number(self, size: nest.Size) -> Any:
        return self.number(size) if isinstance(size, int) else size

    def _memory(self) -> Memory:
        tile, groups, dtype = self.plan.tile, self.plan.groups, self.blocks.dtype
        states = (groups, tile.queries)
        window = self.plan.window * (2 if self.shape.open_keys else 1)
        window += self.lanes if tile.lanes == 1 else 0
        result = (groups, self._panels, tile.queries, tile.width)
        return Memory(
            queries=nest.workspace((groups, self.shape.depth, tile.queries), dtype, "queries"),
            powers=nest.workspace((window, tile.queries), dtype, "powers"),
            highest=nest.workspace(states, dtype, "highest"),
            total=nest.workspace(states, dtype, "total"),
            scale=nest.workspace((tile.queries,), dtype, "scale"),
            result=None if self.is_whole else nest.workspace(result, dtype, "result"),
        )

    @property
    def _all_windows(self) -> Any:
        """How many windows there are."""
        if self.shape.open_keys:
            return tirx.Max(self.blocks.key.size // self.plan.window, self.number(1))
        return self.number(ceil(self.shape.keys / self.plan.window))

    def _windows(self, chunk: Any) -> Any:
        """How many windows the queries of a task see."""
        size = self.plan.window
        if self.blocks.causal is None:
            return self._all_windows
        end = (chunk + 1) * (self.plan.groups * self.plan.tile.queries) + self.blocks.causal
        return tirx.Min((end + (size - 1)) // size, self._all_windows)

    def _begin(self, spot: Spot, memory: Memory) -> tirx.Stmt:
        """Transpose the queries of a group, and clear its state."""

        def element(r: Any, step: Any) -> tirx.Stmt:
            number = self.blocks.query(spot.batch, spot.row + r, step)
            return nest.store(memory.queries, number, spot.number, step, r)

        def row(r: Any) -> tirx.Stmt:
            return nest.serial(self.shape.depth, lambda step: element(r, step), self.index)

        def clear(*at: Any) -> tirx.Stmt:
            place = (spot.number, self.place(*at))
            return nest.sequence(
                nest.store(memory.highest, self.float(-inf), *place),
                nest.store(memory.total, self.float(0), *place),
            )

        return nest.sequence(nest.serial(self.plan.tile.queries, row, self.index), self.each_query(clear))

    def _windowed(self, spot: Spot, number: Any, memory: Memory) -> tirx.Stmt:
        """Take a group of queries through a window of keys."""
        size, start = self.number(self.plan.window), number * self.plan.window
        if self.shape.open_keys:
            is_last = number == self._all_windows - 1
            size = tirx.Select(is_last, self.blocks.key.size - start, size)
        elif self.shape.keys % self.plan.window:
            # One loop for all windows: with a second one for the rest LLVM keeps sums in memory.
            size = tirx.Min(size, self.shape.keys - start)

        def of_seen(seen: Any, start: Any, size: Any) -> tirx.Stmt:
            window = Window(start, size, seen)
            scores = Scores(self.blocks, self.plan, self.machine).of_window(spot, window, memory)
            return nest.sequence(scores, self._results(spot, window, memory))

        seen = self._seen(spot, start, size)
        return self.named((seen, "seen"), (start, "start"), (size, "size"), body=of_seen)

    def _seen(self, spot: Spot, start: Any, size: Any) -> Any:
        """How many keys of a window the last query of a group sees."""
        if self.blocks.causal is None:
            return size
        end = spot.row + self.plan.tile.queries + self.blocks.causal - start
        return tirx.Max(tirx.Min(end, size), self.number(0))

    def _results(self, spot: Spot, window: Window, memory: Memory) -> tirx.Stmt:
        """The products of a window's powers and values."""
        tile = self.plan.tile

        def of_panel(panel: Any) -> tirx.Stmt:
            def of_rows(number: Any) -> tirx.Stmt:
                return self._result_tile(spot, window, panel, number * tile.rows, memory)

            return nest.serial(tile.queries // tile.rows, of_rows, self.index)

        return nest.serial(self._panels, of_panel, self.index)

    def _column(self, panel: Any, v: Any, lane: Any) -> Any:
        tile = self.plan.tile
        first = tirx.Min(panel * tile.width, self.number(self.shape.width - tile.width))
        return first + v * tile.column_lanes + lane

    def _result_tile(self, spot: Spot, window: Window, panel: Any, row: Any, memory: Memory) -> tirx.Stmt:
        tile = self.plan.tile
        sums = nest.registers((tile.rows, tile.columns, tile.column_lanes), self.blocks.dtype, "sums")

        def step(key: Any) -> tirx.Stmt:
            def add(r: Any, v: Any, lane: Any) -> tirx.Stmt:
                number = self.blocks.value(spot.batch, window.start + key, self._column(panel, v, lane))
                product = memory.powers[key, row + r] * number
                return nest.store(sums, sums[r, v, lane] + product, r, v, lane)

            return self._each_result(add)

        def keep(r: Any, v: Any, lane: Any) -> tirx.Stmt:
            if self.is_whole:
                return self._store(sums[r, v, lane], spot, row + r, (panel, v, lane), memory)
            at = (spot.number, panel, row + r, v * tile.column_lanes + lane)
            before = tirx.Select(
                window.start == self.number(0), self.float(0), memory.result[at] * memory.scale[row + r]
            )
            return nest.store(memory.result, before + sums[r, v, lane], *at)

        return nest.sequence(
            nest.declare(sums),
            self._each_result(lambda *at: nest.store(sums, self.float(0), *at)),
            self.times(window.seen, step),
            self._each_result(keep),
        )

    def _finish(self, spot: Spot, memory: Memory) -> tirx.Stmt:
        """Store the result of all windows."""
        tile = self.plan.tile

        def element(row: Any, panel: Any, v: Any, lane: Any) -> tirx.Stmt:
            value = memory.result[spot.number, panel, row, v * tile.column_lanes + lane]
            return self._store(value, spot, row, (panel, v, lane), memory)

        def of_row(row: Any) -> tirx.Stmt:
            def of_panel(panel: Any) -> tirx.Stmt:
                return self._columns(lambda v, lane: element(row, panel, v, lane))

            return nest.serial(self._panels, of_panel, self.index)

        return nest.serial(tile.queries, of_row, self.index)

    def _store(
        self, value: Expression, spot: Spot, row: Any, column: tuple[Any, Any, Any], memory: Memory
    ) -> tirx.Stmt:
        total = memory.total[spot.number, row]
        share = value / total
        if self.blocks.safe:
            share = tirx.Select(total == self.float(0), self.float(0), share)
        return self.blocks.store(share, spot.batch, spot.row + row, self._column(*column))

    def _each_result(self, statement: Callable[[Any, Any, Any], tirx.Stmt]) -> tirx.Stmt:
        """A statement for every element of a tile of the result, written out."""
        return nest.unrolled(
            self.plan.tile.rows, lambda r: self._columns(lambda v, lane: statement(r, v, lane)), self.index
        )

    def _columns(self, statement: Callable[[Any, Any], tirx.Stmt]) -> tirx.Stmt:
        tile, index = self.plan.tile, self.index

        def vector(v: Any) -> tirx.Stmt:
            return nest.vectorized(tile.column_lanes, lambda lane: statement(v, lane), index)

        return nest.unrolled(tile.columns, vector, index)
