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
from worker.compiler.schedules.blocks import Block, Places, is_expensive, read_block, store_result
from worker.compiler.schedules.families.convolution.conv2d import ConvolutionTile
from worker.compiler.schedules.families.convolution.phases import Phases, choose_tile, phases_of, tap_axes
from worker.compiler.schedules.families.convolution.windows import copy_rows, find_windows
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
    main, last, border = (
        None if handle is None else read_block(trial, handle, may_be_dynamic=True)
        for handle in (windows.main, windows.last, windows.border)
    )
    if main is None or last is None or (border is None) != (windows.border is None):
        return None
    dimensions = phases_of(main)
    tile = choose_tile(int(main.body.annotations[GROUP_BLOCKS]), dimensions[-1], machine)
    parallel = threads_pay(machine.threads, windows.work, MULTIPLY_ADDS_PER_THREAD)
    writer = _Writer(main, last, border, dimensions, tile, parallel, machine)
    return nest.with_loops(trial.mod["main"], writer.loops())


@dataclass(frozen=True)
class _Writer:
    """Writes the loops of one transposed convolution."""

    main: Block
    last: Block
    border: Block | None
    dimensions: tuple[Phases, ...]
    tile: ConvolutionTile
    parallel: bool
    machine: Machine

    def loops(self) -> tirx.Stmt:
        """All loops."""
        if self.border is None:
            return self._tasks()
        copy = self.border.body.writes[0].source
        copying = copy_rows(self.border, self.parallel)
        return nest.sequence(nest.declare(copy), copying, self._tasks())

    @property
    def _index(self) -> str:
        return nest.dtype_of(self.main.spatial[0].var)

    @property
    def _lanes(self) -> int:
        return self.main.spatial[-1].extent

    def _tasks(self) -> tirx.Stmt:
        """All loops after the border's, in the order that keeps the weights in L2."""
        batch, blocks = self.main.spatial[0].size, self.main.spatial[1].extent // self.tile.blocks
        rows = [dimension.turns for dimension in self.dimensions[:-1]]
        strides = [dimension.stride for dimension in self.dimensions]
        stay = len(rows) > 0 and self._weights_stay()
        sides = [batch, *rows, blocks] if stay else [batch, blocks, *strides]
        chunks = self._chunks(prod(sides[1:]) * self.main.spatial[0].extent)

        def task(index: Any) -> tirx.Stmt:
            *place, chunk = nest.split_index(index, [*sides, chunks])
            block = place[-1] if stay else place[1]
            origin = _Task(place[0], block * self.tile.blocks, chunk, chunks)
            if stay:
                return self._loops(
                    strides, lambda phases: self._columns(origin, tuple(place[1:-1]), phases), ()
                )
            return self._loops(rows, lambda turns: self._columns(origin, turns, tuple(place[2:])), ())

        return nest.tasks(prod(sides) * chunks, task, self._index, parallel=self.parallel)

    def _weights_stay(self) -> bool:
        """Whether all weights fit half of L2, so that each task may read all of them."""
        weights = self.main.body.reads[1].source
        size = prod(map(int, weights.shape)) * (self.machine.vector_bits // 8 // self._lanes)
        return size <= self.machine.l2_bytes // 2

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
        return nest.serial(sizes[0], lambda i: self._loops(sizes[1:], body, (*outer, i)), self._index)

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
            return self._tile(_Origin(task.batch, task.block, self._row(turns, phases), column, phases))

        count = tiles if task.chunks == 1 else tirx.max(0, tirx.min(part, tiles - task.chunk * part))
        loop = nest.serial(count, of_tile, self._index)
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

    def _tile(self, origin: _Origin) -> tirx.Stmt:
        dtype = str(self.main.body.writes[0].source.dtype)
        sums = nest.registers((self.tile.columns, self.tile.blocks, self._lanes), dtype, "sums")
        clear = self._each(nest.unrolled, lambda *at: nest.store(sums, nest.constant(0, dtype), *at))
        return nest.sequence(nest.declare(sums), clear, self._sum(sums, origin), *self._results(sums, origin))

    def _each(self, loop: Callable[..., tirx.Stmt], statement: Callable[..., tirx.Stmt]) -> tirx.Stmt:
        """A vectorized statement for every ``(column, block, lane)`` of the tile."""

        def vector(t: Any, b: Any) -> tirx.Stmt:
            return nest.vectorized(self._lanes, lambda lane: statement(t, b, lane), self._index)

        def column(t: Any) -> tirx.Stmt:
            return loop(self.tile.blocks, lambda b: vector(t, b), self._index)

        return loop(self.tile.columns, column, self._index)

    def _sum(self, sums: Any, origin: _Origin) -> tirx.Stmt:
        """The loops over input channels and the phase's taps around the tile's multiply-adds."""
        product = _product(self.main)
        axes_of_taps = tap_axes(self.main, len(self.dimensions))

        def inside(axes: Sequence[Any], places: Places) -> tirx.Stmt:
            if not axes:
                return self._each(nest.unrolled, lambda *at: add(places, *at))
            axis, rest = axes[0], axes[1:]
            if axis not in axes_of_taps:
                return nest.serial(axis.extent, lambda i: inside(rest, {**places, axis.var: i}), self._index)
            position = axes_of_taps.index(axis)
            dimension, phase = self.dimensions[position], origin.phases[position]
            first, step = dimension.first_tap(phase), dimension.step
            return nest.serial(
                dimension.count(phase),
                lambda j: inside(rest, {**places, axis.var: j * step + first}),
                self._index,
            )

        def add(places: Places, t: Any, b: Any, lane: Any) -> tirx.Stmt:
            at = {**places, **self._place(origin, t, b, lane)}
            return nest.store(sums, sums[t, b, lane] + nest.substitute(product, at), t, b, lane)

        return inside(self.main.reduced, {})

    def _place(self, origin: _Origin, t: Any, b: Any, lane: Any) -> Places:
        column = origin.column + t * self.dimensions[-1].stride
        values = (origin.batch, origin.block + b, origin.row, column, lane)
        return {axis.var: value for axis, value in zip(self.main.spatial, values, strict=True)}

    def _results(self, sums: Any, origin: _Origin) -> list[tirx.Stmt]:
        """Apply the epilogue and store; an expensive epilogue is a loop, to bound the size of the code."""
        if not is_expensive(self.last.body):
            return [self._each(nest.unrolled, lambda *at: self._result(sums, origin, *at))]
        kept = nest.workspace(sums.shape, str(sums.dtype), "kept")
        keep = self._each(nest.unrolled, lambda *at: nest.store(kept, sums[at], *at))
        results = self._each(nest.serial, lambda *at: self._result(kept, origin, *at))
        return [nest.declare(kept), keep, results]

    def _result(self, sums: Any, origin: _Origin, *at: Any) -> tirx.Stmt:
        return store_result(self.main, self.last, self._place(origin, *at), sums[at])


@dataclass(frozen=True)
class _Task:
    """A task: its image, its first block, and its part of the columns."""

    batch: Any
    block: Any
    chunk: Any
    chunks: int


@dataclass(frozen=True)
class _Origin:
    """The origin of a tile: image, first block, output row and column, and the phase of every dimension."""

    batch: Any
    block: Any
    row: Any
    column: Any
    phases: tuple[Any, ...]


def _product(main: Block) -> Any:
    """The product that a tap of the phase adds."""
    added = main.body.body.value.b
    is_conditional = not isinstance(added, tirx.Mul)
    return added.args[1] if is_conditional else added
