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

from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import CONVOLUTION, DEPTHWISE, GROUP_BLOCKS, POOLING
from worker.compiler.schedules.blocks import Block, guess
from worker.compiler.schedules.families.convolution.conv2d import (
    ConvolutionShape,
    ConvolutionTile,
    rank_convolution_tiles,
)
from worker.compiler.schedules.families.convolution.register_tile import Origin, RegisterTile, WindowBlocks
from worker.compiler.schedules.families.convolution.windows import Windows, find_windows
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
    parts = WindowBlocks.read(trial, windows)
    if parts is None:
        return None
    tile = _choose_tile(parts.main, windows, machine)
    axes = (*parts.main.spatial[:4], *parts.main.reduced)
    work = prod(guess(axis.size, TYPICAL_SIDE) for axis in axes)
    runs_parallel = threads_pay(machine.threads, work, MULTIPLY_ADDS_PER_THREAD)
    return nest.with_loops(trial.mod["main"], _Writer(parts, tile, runs_parallel, machine).loops())


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

    parts: WindowBlocks
    tile: ConvolutionTile
    runs_parallel: bool
    machine: Machine

    def loops(self) -> tirx.Stmt:
        """All loops: rows of at least a tile's columns, or shorter ones.

        The branch reads the number of columns from a register: TVM (0.27) fails to simplify loops inside a
        condition such as ``4 * h >= 4``.
        """
        columns, width = self.parts.main.spatial[3].size, self.tile.columns
        tasks = self._tasks(width)
        if width > 1 and not isinstance(columns, int):
            choose = partial(self._by_width, tasks, self._tasks(1))
            tasks = nest.named(columns, "columns", choose)
        return self.parts.behind_border(tasks, self.runs_parallel)

    def _by_width(self, wide: tirx.Stmt, narrow: tirx.Stmt, columns: Any) -> tirx.Stmt:
        return nest.either(columns >= self.tile.columns, wide, narrow)

    def _tasks(self, width: int) -> tirx.Stmt:
        """All tiles of so many columns, each task with a few neighboring ones."""
        batch, blocks, rows, columns, _ = (axis.size for axis in self.parts.main.spatial)
        stay, index = self.parts.weights_stay(self.machine), self.parts.index
        groups, tiles = blocks // self.tile.blocks, nest.ceil_div(columns, width)
        chunks = nest.ceil_div(tiles, _TILES_PER_TASK)
        sides = [batch, rows, groups, chunks] if stay else [batch, groups, rows, chunks]

        def task(number: Any) -> tirx.Stmt:
            n, first, second, chunk = nest.split_index(number, sides)
            row, group = (first, second) if stay else (second, first)
            places = ((n, "batch"), (row, "row"), (group * self.tile.blocks, "block"), (chunk, "chunk"))
            return nest.all_named(places, of_chunk)

        def of_chunk(n: Any, row: Any, block: Any, chunk: Any) -> tirx.Stmt:
            first = chunk * _TILES_PER_TASK

            def of_tile(number: Any) -> tirx.Stmt:
                return nest.named(
                    nest.smaller((first + number) * width, columns - width),
                    "column",
                    lambda column: self._tile(Origin(n, block, row, column), width),
                )

            return nest.serial(nest.smaller(_TILES_PER_TASK, tiles - first), of_tile, index)

        return nest.tasks(prod(sides), task, index, parallel=self.runs_parallel)

    def _tile(self, origin: Origin, width: int) -> tirx.Stmt:
        main, tile = self.parts.main, RegisterTile(self.parts, width, self.tile.blocks, origin)
        operations = width * prod(axis.extent for axis in main.reduced)
        unrolls = self.tile.blocks == 1 and operations <= _MOST_STATEMENTS
        loop = nest.unrolled if unrolls else nest.serial
        return tile.loops(main.body.body.value, lambda axis, body: loop(axis.extent, body, self.parts.index))
