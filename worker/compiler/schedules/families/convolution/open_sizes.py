"""Convolutions and pools of images in blocks whose rows or columns are known only at run time::

    copy the image with its border, in parallel                           # if it has one
    for parallel task in (image, row, group of output blocks, part of the columns):
        for tile of columns:
            sums[columns, blocks, lanes] = initial value
            for input block, tap row, tap column, input lane:             # unrolled for short sums
                for column, block:                                        # unrolled
                    sums[column, block, lanes] = combine(sums[column, block, lanes], image[pixel], ...)
            output[columns, blocks, lanes] = epilogue(sums)

Registers hold the sums, the weights of one tap and input channel, and one broadcast pixel, as in ``conv2d``.
If all weights fit half of L2, a row's pixels stay in L1 while all groups of blocks use them; otherwise rows
are inside groups.

Edges: the last tile moves back over its neighbor, which computes some columns twice. If the neighbor belongs
to another task, two threads store equal numbers. A row of dynamic length that is shorter than a tile is
computed column by column; tiles have at most half of the columns of a typical image.

Source: as ``conv2d``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import CONVOLUTION, DEPTHWISE, GROUP_BLOCKS, POOLING
from worker.compiler.schedules.blocks import Axis, Block, Places, guess, is_expensive, read_block, result_at
from worker.compiler.schedules.families.convolution.conv2d import (
    ConvolutionShape,
    ConvolutionTile,
    rank_convolution_tiles,
)
from worker.compiler.schedules.families.convolution.windows import Windows, copy_rows, find_windows
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import MULTIPLY_ADDS_PER_THREAD, Machine, threads_pay

OPEN_FAMILIES = (CONVOLUTION, DEPTHWISE, POOLING)
TYPICAL_SIDE = 224
"""The size to plan for, for each side of an image that is known at run time."""
_TILES_PER_TASK = 8
_IN_FLIGHT = 8
"""The columns of a tile of a depthwise convolution or a pool: as many sums hide the latency of additions."""
_MOST_COLUMNS = 28
_FEWEST_COLUMNS = 4
_MOST_STATEMENTS = 256
"""The operations of a tile up to which its taps are unrolled."""


def write_open_sizes(
    schedule: s_tir.Schedule, machine: Machine, _choose: PlanChooser
) -> tirx.PrimFunc | None:
    """Write the loops of windows over images of open sizes; None for other functions."""
    trial = schedule.copy()
    found = (find_windows(trial, family, may_be_open=True) for family in OPEN_FAMILIES)
    windows = next((each for each in found if each is not None), None)
    if windows is None or not windows.is_open:
        return None
    main, last, border = (
        None if handle is None else read_block(trial, handle, may_be_dynamic=True)
        for handle in (windows.main, windows.last, windows.border)
    )
    if main is None or last is None or (border is None) != (windows.border is None):
        return None
    tile = _choose_tile(main, windows, machine)
    work = prod(guess(axis.size, TYPICAL_SIDE) for axis in (*main.spatial[:4], *main.reduced))
    runs_parallel = threads_pay(machine.threads, work, MULTIPLY_ADDS_PER_THREAD)
    return nest.with_loops(
        trial.mod["main"], _Writer(main, last, border, tile, runs_parallel, machine).loops()
    )


def _choose_tile(main: Block, windows: Windows, machine: Machine) -> ConvolutionTile:
    """The tile that the model of convolutions prefers on a typical row."""
    _, _, rows, columns, _ = (guess(axis.size, TYPICAL_SIDE) for axis in main.spatial)
    if isinstance(main.spatial[3].size, int):
        widest = min(columns, _MOST_COLUMNS)
    else:
        widest = max(min(columns // 2, _MOST_COLUMNS), _FEWEST_COLUMNS)
    if GROUP_BLOCKS not in main.body.annotations:
        return ConvolutionTile(1, min(widest, _IN_FLIGHT))
    per_group = int(main.body.annotations[GROUP_BLOCKS])
    shape = ConvolutionShape(
        batch=1,
        groups=main.spatial[1].extent // per_group,
        blocks=per_group,
        rows=rows,
        columns=widest,
        taps=windows.taps,
        contiguous=windows.border is None,
        channels=windows.channels,
        bits=windows.dtype_bits,
        joinable=False,
        is_plain=not main.body.reads[0].region[-1].min.same_as(main.body.iter_vars[-1].var),
    )
    tiles = rank_convolution_tiles(shape, machine)
    return replace(tiles[0], parts=1)


@dataclass(frozen=True)
class _Writer:
    """Writes the loops of one function."""

    main: Block
    last: Block
    border: Block | None
    tile: ConvolutionTile
    runs_parallel: bool
    machine: Machine

    def loops(self) -> tirx.Stmt:
        """All loops: rows of at least a tile's columns, or shorter ones."""
        columns = self.main.spatial[3].size
        tasks = self._tasks(self.tile.columns)
        if self.tile.columns > 1 and not isinstance(columns, int):
            tasks = nest.either(columns >= self.tile.columns, tasks, self._tasks(1))
        if self.border is None:
            return tasks
        copy = self.border.body.writes[0].source
        copying = copy_rows(self.border, self.runs_parallel)
        return nest.sequence(nest.declare(copy), copying, tasks)

    @property
    def _index(self) -> str:
        return nest.dtype_of(self.main.spatial[0].var)

    @property
    def _lanes(self) -> int:
        return self.main.spatial[-1].extent

    def _tasks(self, width: int) -> tirx.Stmt:
        """All tiles of so many columns, each task with a few neighboring ones."""
        batch, blocks, rows, columns, _ = (axis.size for axis in self.main.spatial)
        groups, tiles = blocks // self.tile.blocks, nest.ceil_div(columns, width)
        chunks = nest.ceil_div(tiles, _TILES_PER_TASK)
        sides = [batch, rows, groups, chunks] if self._weights_stay() else [batch, groups, rows, chunks]

        def task(number: Any) -> tirx.Stmt:
            n, first, second, chunk = nest.split_index(number, sides)
            row, group = (first, second) if self._weights_stay() else (second, first)
            places = ((n, "batch"), (row, "row"), (group * self.tile.blocks, "block"), (chunk, "chunk"))
            return nest.all_named(places, of_chunk)

        def of_chunk(n: Any, row: Any, block: Any, chunk: Any) -> tirx.Stmt:
            first = chunk * _TILES_PER_TASK

            def of_tile(number: Any) -> tirx.Stmt:
                return nest.named(
                    nest.smaller((first + number) * width, columns - width),
                    "column",
                    lambda column: self._tile(_Origin(n, block, row, column), width),
                )

            return nest.serial(nest.smaller(_TILES_PER_TASK, tiles - first), of_tile, self._index)

        return nest.tasks(prod(sides), task, self._index, parallel=self.runs_parallel)

    def _weights_stay(self) -> bool:
        """Whether all weights fit half of L2, so that each row may read all of them."""
        weights = self.main.body.reads[-1].source
        if not all(isinstance(size, tirx.IntImm) for size in weights.shape):
            return True
        size = prod(map(int, weights.shape)) * (self.machine.vector_bits // 8 // self._lanes)
        return size <= self.machine.l2_bytes // 2

    def _tile(self, origin: _Origin, width: int) -> tirx.Stmt:
        dtype, start = str(self.main.body.writes[0].source.dtype), self.main.body.init.value
        sums = nest.registers((width, self.tile.blocks, self._lanes), dtype, "sums")
        clear = self._each(width, nest.unrolled, lambda *at: nest.store(sums, start, *at))
        results = self._results(sums, origin, width)
        return nest.sequence(nest.declare(sums), clear, self._sum(sums, origin, width), *results)

    def _each(
        self, width: int, loop: Callable[..., tirx.Stmt], statement: Callable[..., tirx.Stmt]
    ) -> tirx.Stmt:
        """A vectorized statement for every ``(column, block, lane)`` of the tile."""

        def vector(x: Any, b: Any) -> tirx.Stmt:
            return nest.vectorized(self._lanes, lambda lane: statement(x, b, lane), self._index)

        def column(x: Any) -> tirx.Stmt:
            return loop(self.tile.blocks, lambda b: vector(x, b), self._index)

        return loop(width, column, self._index)

    def _sum(self, sums: Any, origin: _Origin, width: int) -> tirx.Stmt:
        """The loops over input channels and taps around the tile's operations."""
        body, summed = self.main.body.body.value, self.main.body.writes[0].source
        operations = width * prod(axis.extent for axis in self.main.reduced)
        unrolls = self.tile.blocks == 1 and operations <= _MOST_STATEMENTS
        loop = nest.unrolled if unrolls else nest.serial

        def inside(axes: Sequence[Axis], places: Places) -> tirx.Stmt:
            if not axes:
                return self._each(width, nest.unrolled, lambda *at: add(places, *at))
            axis, *rest = axes
            return loop(axis.extent, lambda i: inside(rest, {**places, axis.var: i}), self._index)

        def add(places: Places, x: Any, b: Any, lane: Any) -> tirx.Stmt:
            place = zip(self.main.spatial, origin.place(x, b, lane), strict=True)
            own = {**places, **{axis.var: index for axis, index in place}}
            value = nest.replace_loads(nest.substitute(body, own), summed, lambda _: sums[x, b, lane])
            return nest.store(sums, value, x, b, lane)

        return inside(self.main.reduced, {})

    def _results(self, sums: Any, origin: _Origin, width: int) -> list[tirx.Stmt]:
        """Apply the epilogue and store; an expensive epilogue is a loop, to bound the size of the code."""

        def result(source: Any) -> Callable[..., tirx.Stmt]:
            return lambda *at: result_at(self.main, self.last, origin.place(*at), source[at])

        if not is_expensive(self.last.body):
            return [self._each(width, nest.unrolled, result(sums))]
        kept = nest.workspace(sums.shape, str(sums.dtype), "kept")
        keep = self._each(width, nest.unrolled, lambda *at: nest.store(kept, sums[at], *at))
        return [nest.declare(kept), keep, self._each(width, nest.serial, result(kept))]


@dataclass(frozen=True)
class _Origin:
    """The origin of a tile: image, first block, row and first column of the output."""

    batch: Any
    block: Any
    row: Any
    column: Any

    def place(self, x: Any, b: Any, lane: Any) -> tuple[Any, ...]:
        """The place of an element of the tile in the output."""
        return (self.batch, self.block + b, self.row, self.column + x, lane)
