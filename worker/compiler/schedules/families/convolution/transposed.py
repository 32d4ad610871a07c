"""Transposed convolutions of images in blocks, computed by phases, without multiplying by inserted zeros.

The phase of an output pixel is its remainder by the stride. All pixels of a phase use the same taps and
neighboring input pixels: a phase is an ordinary convolution with some of the taps, whose outputs are a stride
apart. Taps and inputs follow from the phase by arithmetic, so phases are loops::

    copy the image with its border, in parallel                           # if it has one
    # if all weights fit half of L2
    for parallel task in (image, input row, group of output blocks, part of the columns):
        for phase of rows, phase of columns:
            for tile of columns of the phase: TILE
    # otherwise
    for parallel task in (image, group of output blocks, phases, part of the columns):
        for input row:
            for tile of columns of the phase: TILE

    TILE:
        sums[columns, blocks, lanes] = 0
        for input block, tap of the phase, input lane:
            for column, block:                                            # unrolled
                sums[column, block, lanes] += image[pixel] * weights[block, lanes]
        output = epilogue(sums)

Registers hold the sums, the weights of one tap and input channel, and one broadcast pixel, as in ``conv2d``.
L2 holds all weights or those of one task.

Edges: the last tile of a phase's row moves back over its neighbor. A phase may have one row less than the
first phase, which a condition checks. A row is divided into parts if there are too few tasks.

Source: Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import GROUP_BLOCKS, TRANSPOSED
from worker.compiler.schedules.blocks import Axis, Block
from worker.compiler.schedules.families.convolution.conv2d import ConvolutionTile
from worker.compiler.schedules.families.convolution.phases import Phases, choose_tile, phases_of, tap_axes
from worker.compiler.schedules.families.convolution.register_tile import Origin, RegisterTile, WindowBlocks
from worker.compiler.schedules.families.convolution.windows import find_windows
from worker.compiler.schedules.nest import join_rows
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import MULTIPLY_ADDS_PER_THREAD, Machine, threads_pay

_TASKS_PER_THREAD = 4


def write_transposed_convolution(
    schedule: s_tir.Schedule, machine: Machine, _choose: PlanChooser
) -> tirx.PrimFunc | None:
    """Write the loops of a function; None if it is not a transposed convolution in blocks."""
    trial = schedule.copy()
    windows = find_windows(trial, TRANSPOSED)
    if windows is None:
        return None
    parts = WindowBlocks.read(trial, windows)
    if parts is None:
        return None
    dimensions = phases_of(parts.main)
    tile = choose_tile(int(parts.main.body.annotations[GROUP_BLOCKS]), dimensions[-1], machine)
    parallel = threads_pay(machine.threads, windows.work, MULTIPLY_ADDS_PER_THREAD)
    return nest.with_loops(trial.mod["main"], _Writer(parts, dimensions, tile, parallel, machine).loops())


@dataclass(frozen=True)
class _Writer:
    """Writes the loops of one transposed convolution."""

    parts: WindowBlocks
    dimensions: tuple[Phases, ...]
    tile: ConvolutionTile
    parallel: bool
    machine: Machine

    def loops(self) -> tirx.Stmt:
        """All loops."""
        return self.parts.behind_border(self._tasks(), self.parallel)

    def _tasks(self) -> tirx.Stmt:
        """All loops after the border's, in the order that keeps the weights in L2."""
        images, channels = self.parts.main.spatial[:2]
        batch, blocks = images.size, channels.extent // self.tile.blocks
        rows = [dimension.turns for dimension in self.dimensions[:-1]]
        strides = [dimension.stride for dimension in self.dimensions]
        stay = len(rows) > 0 and self.parts.weights_stay(self.machine)
        sides = [batch, *rows, blocks] if stay else [batch, blocks, *strides]
        chunks = self._chunks(prod(sides[1:]) * images.extent)

        def task(index: Any) -> tirx.Stmt:
            *place, chunk = nest.split_index(index, [*sides, chunks])
            block = place[-1] if stay else place[1]
            origin = _Task(place[0], block * self.tile.blocks, chunk, chunks)
            if stay:
                return self._loops(
                    strides, lambda phases: self._columns(origin, tuple(place[1:-1]), phases), ()
                )
            return self._loops(rows, lambda turns: self._columns(origin, turns, tuple(place[2:])), ())

        return nest.tasks(prod(sides) * chunks, task, self.parts.index, parallel=self.parallel)

    def _chunks(self, tasks: int) -> int:
        """The parts of a row that give all threads work."""
        tiles = ceil(self.dimensions[-1].turns / self.tile.columns)
        wanted = _TASKS_PER_THREAD * self.machine.threads
        return 1 if not self.parallel or tasks >= wanted else min(tiles, ceil(wanted / tasks))

    def _loops(
        self, sizes: Sequence[int], body: Callable[[tuple[Any, ...]], tirx.Stmt], outer: tuple[Any, ...]
    ) -> tirx.Stmt:
        """Nested loops."""
        if not sizes:
            return body(outer)
        return nest.serial(sizes[0], lambda i: self._loops(sizes[1:], body, (*outer, i)), self.parts.index)

    def _columns(self, task: _Task, turns: tuple[Any, ...], phases: tuple[Any, ...]) -> tirx.Stmt:
        """The columns of one phase of a row, tile by tile, if the phase has this row."""
        dimension, width = self.dimensions[-1], self.tile.columns
        size = dimension.size(phases[-1])
        tiles = (size + (width - 1)) // width
        part = ceil(ceil(dimension.turns / width) / task.chunks)

        def of_tile(number: Any) -> tirx.Stmt:
            turn = (
                tirx.min((task.chunk * part + number) * width, size - width)
                if width > 1
                else (task.chunk * part + number)
            )
            column = turn * dimension.stride + phases[-1]
            return self._tile(Origin(task.batch, task.block, self._row(turns, phases), column), phases)

        count = tiles if task.chunks == 1 else tirx.max(0, tirx.min(part, tiles - task.chunk * part))
        loop = nest.serial(count, of_tile, self.parts.index)
        return self._guarded(loop, turns, phases)

    def _row(self, turns: tuple[Any, ...], phases: tuple[Any, ...]) -> Any:
        outputs = [
            turn * dimension.stride + phase
            for turn, dimension, phase in zip(turns, self.dimensions, phases, strict=False)
        ]
        sizes = tuple(dimension.output for dimension in self.dimensions)
        return join_rows((*outputs, 0), sizes)

    def _guarded(self, loop: tirx.Stmt, turns: tuple[Any, ...], phases: tuple[Any, ...]) -> tirx.Stmt:
        conditions = [
            turn < dimension.size(phase)
            for turn, dimension, phase in zip(turns, self.dimensions, phases, strict=False)
            if dimension.output % dimension.stride
        ]
        return tirx.IfThenElse(tirx.all(*conditions), loop, None) if conditions else loop

    def _tile(self, origin: Origin, phases: tuple[Any, ...]) -> tirx.Stmt:
        """A tile, whose sums skip the taps of other phases."""
        axes_of_taps = tap_axes(self.parts.main, len(self.dimensions))

        def loop(axis: Axis, body: nest.Body) -> tirx.Stmt:
            if axis not in axes_of_taps:
                return nest.serial(axis.extent, body, self.parts.index)
            position = axes_of_taps.index(axis)
            dimension, phase = self.dimensions[position], phases[position]
            first, step = dimension.first_tap(phase), dimension.step
            return nest.serial(dimension.count(phase), lambda j: body(j * step + first), self.parts.index)

        stride = self.dimensions[-1].stride
        tile = RegisterTile(self.parts, self.tile.columns, self.tile.blocks, origin, stride)
        return tile.loops(_total(self.parts.main), loop)


@dataclass(frozen=True)
class _Task:
    """A task: its image, its first block, and its part of the columns."""

    batch: Any
    block: Any
    chunk: Any
    chunks: int


def _total(main: Block) -> Any:
    """A sum and the product that a tap of the phase adds to it."""
    total = main.body.body.value
    is_conditional = not isinstance(total.b, tirx.Mul)
    return total.a + (total.b.args[1] if is_conditional else total.b)
