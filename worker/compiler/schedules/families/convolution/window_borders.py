"""Depthwise convolutions and pools of two-dimensional images in blocks, whose border is not copied::

    for parallel task in (image, block of channels, band of rows):
        for row in band:
            for tile of columns:                                          # the outer ones: code of their own
                sums[columns, lanes] = initial value
                for tap row inside the image:                             # unrolled if few
                    for tap column, column inside the image:              # unrolled
                        sums[column, lanes] = combine(sums[column, lanes], image[pixel, lanes])
                output[columns, lanes] = epilogue(sums[columns, lanes])

Registers hold the sums. A tap on the border would change nothing, so it is left out: rows by a branch, which
is the same for all tiles of a row, and columns when the code of the outermost tiles is written.

Edges: the last, shorter tile is one of the outer tiles with code of their own. Windows with more than four
such tiles, or with many taps, copy their border (``depthwise``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad
from tvm_ffi import structural_equal

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import DEPTHWISE, DILATION, DIMENSIONS, PADDING, POOLING, STRIDES
from worker.compiler.schedules.blocks import Axis, Block, is_branch, is_expensive, read_block, result_at
from worker.compiler.schedules.families.convolution.depthwise import WindowPlan, WindowShape, window_plans
from worker.compiler.schedules.families.convolution.windows import Windows, find_windows
from worker.compiler.schedules.families.convolution.winograd_transforms import Vectors
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import MULTIPLY_ADDS_PER_THREAD, Machine, threads_pay

_MAX_OUTER_TILES = 4
_MAX_STATEMENTS = 512
"""The multiply-adds of a tile up to which they are written one by one."""


def write_depthwise(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the loops of a depthwise convolution with a border; None for other functions."""
    return _write(schedule, DEPTHWISE, machine, choose)


def write_pooling(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the loops of a pool in blocks with a border; None for other functions."""
    return _write(schedule, POOLING, machine, choose)


def _write(
    schedule: s_tir.Schedule, family: str, machine: Machine, choose: PlanChooser
) -> tirx.PrimFunc | None:
    trial = schedule.copy()
    windows = find_windows(trial, family)
    parts = None if windows is None else _find(trial, windows)
    if windows is None or parts is None:
        return None
    batch, blocks, rows, columns, _ = windows.sizes
    shape = WindowShape(batch * blocks, rows, columns, windows.taps, windows.taps_of_row)
    plans = tuple(plan for plan in window_plans(shape, machine.threads) if fits(parts, plan))
    if not plans:
        return None
    is_parallel = threads_pay(machine.threads, windows.work, MULTIPLY_ADDS_PER_THREAD)
    return nest.with_loops(trial.mod["main"], _loops(parts, choose(plans, shape), is_parallel))


@dataclass(frozen=True)
class Side:
    """The rows or the columns of windows.

    Attributes:
        size: pixels of the image.
        output: pixels of the result.
        taps: taps of the window.
        stride: pixels between windows.
        dilation: pixels between taps.
        before: pixels of the border before the image.
    """

    size: int
    output: int
    taps: int
    stride: int
    dilation: int
    before: int

    @property
    def reach(self) -> int:
        """Pixels from a window's first tap to its last."""
        return (self.taps - 1) * self.dilation + 1

    def pixel(self, index: Any, tap: Any) -> Any:
        """The image's pixel under a tap, which may lie outside."""
        return index * self.stride + tap * self.dilation - self.before

    def is_inside(self, first: int, end: int) -> bool:
        """Whether no window of some results touches the border."""
        return self.pixel(first, 0) >= 0 and self.pixel(end - 1, self.taps - 1) < self.size

    def outer_tiles(self, width: int) -> tuple[int, int]:
        """The numbers of tiles before and after the inner tiles, which do not touch the border."""
        starts = range(0, self.output, width)
        inner = [
            number
            for number, first in enumerate(starts)
            if first + width <= self.output and self.is_inside(first, first + width)
        ]
        return (inner[0], len(starts) - inner[-1] - 1) if inner else (len(starts), 0)

    def each_tile(self, width: int, tile: Callable[[Any, int], tirx.Stmt], index: str) -> tirx.Stmt:
        """The tiles of a row in order, each by its first column and its width.

        The first column of the outer ones, which may touch the border, is a number.
        """
        left, right = self.outer_tiles(width)
        count = -(-self.output // width)

        def outer(number: int) -> tirx.Stmt:
            first = number * width
            return tile(first, min(width, self.output - first))

        statements = [outer(number) for number in range(left)]
        inner = count - left - right
        if inner:
            statements.append(nest.serial(inner, lambda number: tile((number + left) * width, width), index))
        return nest.sequence(*statements, *(outer(number) for number in range(count - right, count)))

    def is_skipped(self, first: Any, tap: int) -> bool:
        """Whether a tap of a window lies on the border, if the window's place is a number."""
        return isinstance(first, int) and not 0 <= self.pixel(first, tap) < self.size


@dataclass(frozen=True)
class WindowParts:
    """A function's block of the sums, the one that writes the results, and the image that the sums read.

    ``read`` loads the buffer ``image``, bordered or not, at an image, a block, a row, a column and a lane
    of the image without its border.
    """

    image: Any
    read: Callable[..., Any]
    main: Block
    last: Block
    rows: Side
    columns: Side

    @property
    def vectors(self) -> Vectors:
        """The vectors of the sums."""
        axes = self.last.spatial
        dtype = str(self.main.body.writes[0].source.dtype)
        return Vectors(axes[-1].extent, dtype, nest.dtype_of(axes[0].var))


def _find(schedule: s_tir.Schedule, windows: Windows) -> WindowParts | None:
    main, last = read_block(schedule, windows.main), read_block(schedule, windows.last)
    if windows.border is None or main is None or last is None:
        return None
    image = bordered_image(schedule.get(windows.border), main)
    sides = sides_of(main, image, main.reduced) if image is not None else None
    if sides is None or not has_one_dtype(main):
        return None
    surrounded = schedule.get(windows.border).writes[0].source
    return WindowParts(surrounded, lambda *place: image[place], main, last, *sides)


def has_one_dtype(main: Block) -> bool:
    """Whether a block's sums have the dtype of all that they read."""
    sources = [*main.body.reads, *main.body.writes]
    return len({str(region.source.dtype) for region in sources}) == 1


def bordered_image(border: s_tir.SBlock, main: Block) -> Any:
    """The image that a block surrounds with a number that changes no sum; None if it does anything else."""
    inside = value_inside(border, main)
    return inside.source if isinstance(inside, TensorLoad) else None


def value_inside(border: s_tir.SBlock, main: Block) -> Any:
    """What a block computes inside a border that changes no sum; None if it does anything else."""
    if not isinstance(border.body, tirx.BufferStore) or not isinstance(border.body.value, Call):
        return None
    choice, start = border.body.value, main.body.init
    if not is_branch(choice) or not isinstance(start, tirx.BufferStore):
        return None
    return choice.args[1] if structural_equal(choice.args[2], start.value) else None


def sides_of(main: Block, image: Any, taps: Sequence[Axis]) -> tuple[Side, Side] | None:
    """The rows and the columns of windows over an image of two dimensions; None for other images.

    Args:
        main: the block of the sums.
        image: the buffer of the image, without a border.
        taps: the axes of the taps of a column and of a row.
    """
    annotations = main.body.annotations
    if int(annotations[DIMENSIONS]) != 2 or len(taps) != 2:
        return None
    rows, columns = (
        Side(*numbers)
        for numbers in zip(
            map(int, image.shape[2:4]),
            (axis.extent for axis in main.spatial[2:4]),
            (axis.extent for axis in taps),
            *([int(number) for number in annotations[key]] for key in (STRIDES, DILATION, PADDING)),
            strict=True,
        )
    )
    return rows, columns


def fits(parts: WindowParts, plan: WindowPlan) -> bool:
    """Whether a plan's outer tiles and statements are few enough to be written one by one."""
    rows, columns = parts.rows, parts.columns
    written = columns.taps * plan.columns * (rows.taps if plan.unrolled > 1 else 1)
    return sum(columns.outer_tiles(plan.columns)) <= _MAX_OUTER_TILES and written <= _MAX_STATEMENTS


@dataclass(frozen=True)
class Row:
    """A row of the output: its image, its block of channels or the first of some, and its number."""

    batch: Any
    block: Any
    row: Any


def _loops(parts: WindowParts, plan: WindowPlan, is_parallel: bool) -> tirx.Stmt:
    writer = RowWriter(parts, plan.columns, unrolls=plan.unrolled > 1)
    index = parts.vectors.index
    batch, blocks, rows, *_ = (axis.extent for axis in parts.last.spatial)
    band = plan.band_rows
    bands = rows // band

    def task(number: Any) -> tirx.Stmt:
        places = (
            (number // (blocks * bands), "batch"),
            (number // bands % blocks, "block"),
            (number % bands * band, "first"),
        )
        return nest.all_named(
            places, lambda n, c, first: nest.serial(band, lambda y: writer.write(Row(n, c, first + y)), index)
        )

    return nest.tasks(batch * blocks * bands, task, index, parallel=is_parallel)


@dataclass(frozen=True)
class RowWriter:
    """Writes the loops of one row of windows, in tiles of ``width`` columns."""

    parts: WindowParts
    width: int
    unrolls: bool

    def write(self, row: Row) -> tirx.Stmt:
        """All tiles of a row."""
        side, index = self.parts.columns, self.parts.vectors.index
        return side.each_tile(self.width, lambda first, width: self._tile(row, first, width), index)

    def _tile(self, row: Row, first: Any, width: int) -> tirx.Stmt:
        """One tile; taps are left out if ``first`` is a number and they lie outside."""
        vectors, taps = self.parts.vectors, self.parts.rows.taps
        sums = nest.registers((width, vectors.lanes), vectors.dtype, "sums")
        start = self.parts.main.body.init.value
        clear = [vectors.store((sums, (vectors.constant(x),)), lambda _: start) for x in range(width)]
        loop = nest.unrolled if self.unrolls else nest.serial
        add = loop(taps, lambda tap: self._add_row(sums, row, tap, first, width), vectors.index)
        return nest.sequence(nest.declare(sums), *clear, add, self._finish(sums, row, first, width))

    def _add_row(self, sums: Any, row: Row, tap: Any, first: Any, width: int) -> tirx.Stmt:
        """Add one row of taps, if it lies inside the image."""
        vectors, parts, side = self.parts.vectors, self.parts, self.parts.columns
        y = parts.rows.pixel(row.row, tap)
        spatial, reduced = parts.main.spatial, parts.main.reduced
        summed, body = parts.main.body.writes[0].source, parts.main.body.body.value

        def add(x: int, column: int) -> tirx.Stmt:
            def lane(lane: Any) -> tirx.Stmt:
                place = (row.batch, row.block, row.row, first + x, lane)
                own = {axis.var: index for axis, index in zip(spatial, place, strict=True)}
                own |= {reduced[0].var: tap, reduced[1].var: vectors.constant(column)}
                pixel = parts.read(row.batch, row.block, y, side.pixel(first + x, column), lane)
                loaded = nest.replace_loads(body, parts.image, nest.always(pixel))
                added = nest.replace_loads(loaded, summed, nest.always(sums[x, lane]))
                return nest.store(sums, nest.substitute(added, own), vectors.constant(x), lane)

            return vectors.each(lane)

        places = [(x, column) for column in range(side.taps) for x in range(width)]
        if isinstance(first, int):
            places = [(x, column) for x, column in places if not side.is_skipped(first + x, column)]
        if not places:
            return tirx.Evaluate(vectors.constant(0))
        added = nest.sequence(*(add(*place) for place in places))
        if parts.rows.is_inside(0, parts.rows.output):
            return added
        return tirx.IfThenElse(tirx.all(y >= 0, y < parts.rows.size), added, None)

    def _finish(self, sums: Any, row: Row, first: Any, width: int) -> tirx.Stmt:
        """Apply the epilogue and store: unrolled, or in a loop if its code is long."""
        vectors = self.parts.vectors

        def store(source: Any) -> Callable[[Any], tirx.Stmt]:
            def pixel(x: Any) -> tirx.Stmt:
                return vectors.each(
                    lambda lane: result_at(
                        self.parts.main,
                        self.parts.last,
                        (row.batch, row.block, row.row, first + x, lane),
                        source[x, lane],
                    )
                )

            return pixel

        if not is_expensive(self.parts.last.body):
            return nest.sequence(*(store(sums)(vectors.constant(x)) for x in range(width)))
        kept = nest.registers((width, vectors.lanes), vectors.dtype, "kept")
        copies = [
            vectors.store((kept, (vectors.constant(x),)), lambda lane, x=x: sums[x, lane])  # type: ignore[misc]
            for x in range(width)
        ]
        return nest.sequence(nest.declare(kept), *copies, nest.serial(width, store(kept), vectors.index))
