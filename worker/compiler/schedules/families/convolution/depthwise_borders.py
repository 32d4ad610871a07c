"""Depthwise convolutions of two-dimensional images in blocks whose border is not copied::

    for parallel task in (image, block of channels, band of rows):
        for row in band:
            for tile of columns:                                          # the outer ones: code of their own
                sums[columns, lanes] = 0
                for tap row inside the image:                             # unrolled if few
                    for tap column, column inside the image:              # unrolled
                        sums[column, lanes] += image[pixel, lanes] * weights[tap, lanes]
                output[columns, lanes] = epilogue(sums[columns, lanes])

Registers hold the sums. A tap on the border would add zero, so it is left out: rows by a branch, which is the
same for all tiles of a row, and columns when the code of the outermost tiles is written.

Edges: the last, shorter tile is one of those whose code is their own. Convolutions with more than four such
tiles, or with many taps, copy their border (``depthwise``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import DEPTHWISE, DILATION, DIMENSIONS, PADDING, STRIDES
from worker.compiler.schedules.blocks import Block, is_branch, is_expensive, read_block
from worker.compiler.schedules.families.convolution.depthwise import WindowPlan, WindowShape, window_plans
from worker.compiler.schedules.families.convolution.windows import Windows, find_windows
from worker.compiler.schedules.families.convolution.winograd_transforms import Vectors
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import MIN_PARALLEL_MULTIPLY_ADDS, Machine

_MAX_OUTER_TILES = 4
_MAX_STATEMENTS = 512
"""The multiply-adds of a tile up to which they are written one by one."""


def write_depthwise(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the loops of a depthwise convolution with a border; None for other functions."""
    trial = schedule.copy()
    windows = find_windows(trial, DEPTHWISE)
    parts = None if windows is None else _find(trial, windows)
    if windows is None or parts is None:
        return None
    batch, blocks, rows, columns, _ = windows.sizes
    shape = WindowShape(batch * blocks, rows, columns, windows.taps, windows.taps_of_row)
    plans = tuple(plan for plan in window_plans(shape, machine.threads) if _fits(parts, plan))
    if not plans:
        return None
    is_parallel = machine.threads > 1 and windows.work >= MIN_PARALLEL_MULTIPLY_ADDS
    return nest.with_loops(trial.mod["main"], _Writer(parts, choose(plans, shape), is_parallel).loops())


@dataclass(frozen=True)
class Side:
    """The rows or the columns of a convolution.

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

    def pixel(self, index: Any, tap: int) -> Any:
        """The image's pixel under a tap, which may lie outside."""
        return index * self.stride + tap * self.dilation - self.before

    def is_inside(self, first: int, end: int) -> bool:
        """Whether no window of some results touches the border."""
        return self.pixel(first, 0) >= 0 and self.pixel(end - 1, self.taps - 1) < self.size

    def outer_tiles(self, width: int) -> tuple[int, int]:
        """The number of tiles before the first and from the first one behind the inner tiles on."""
        starts = range(0, self.output, width)
        inner = [
            number
            for number, first in enumerate(starts)
            if first + width <= self.output and self.is_inside(first, first + width)
        ]
        return (inner[0], len(starts) - inner[-1] - 1) if inner else (len(starts), 0)


@dataclass(frozen=True)
class _Parts:
    """A function's image and weights, its block of the sums and the block that writes the results."""

    image: Any
    weights: Any
    main: Block
    last: Block
    rows: Side
    columns: Side


def _find(schedule: s_tir.Schedule, windows: Windows) -> _Parts | None:
    annotations = schedule.get(windows.main).annotations
    if windows.border is None or windows.is_dynamic or int(annotations[DIMENSIONS]) != 2:
        return None
    main, last = read_block(schedule, windows.main), read_block(schedule, windows.last)
    image = _bordered(schedule.get(windows.border))
    if main is None or last is None or image is None:
        return None
    weights = main.body.reads[1].source
    if not str(image.dtype) == str(weights.dtype) == str(main.body.writes[0].source.dtype):
        return None
    sides = zip(
        map(int, image.shape[2:4]),
        windows.sizes[2:4],
        map(int, weights.shape[1:3]),
        *([int(number) for number in annotations[key]] for key in (STRIDES, DILATION, PADDING)),
        strict=True,
    )
    rows, columns = (Side(*numbers) for numbers in sides)
    return _Parts(image, weights, main, last, rows, columns)


def _bordered(border: s_tir.SBlock) -> Any:
    """The image that a block surrounds with zeros; None if it does anything else."""
    if not isinstance(border.body, tirx.BufferStore) or not isinstance(border.body.value, Call):
        return None
    choice = border.body.value
    if not is_branch(choice) or not isinstance(choice.args[1], TensorLoad):
        return None
    return choice.args[1].source if float(getattr(choice.args[2], "value", 1)) == 0 else None


def _fits(parts: _Parts, plan: WindowPlan) -> bool:
    rows, columns = parts.rows, parts.columns
    written = columns.taps * plan.columns * (rows.taps if plan.unrolled > 1 else 1)
    return sum(columns.outer_tiles(plan.columns)) <= _MAX_OUTER_TILES and written <= _MAX_STATEMENTS


@dataclass(frozen=True)
class _Row:
    """A row of the output: its image and block of channels, and the row's number."""

    batch: Any
    block: Any
    row: Any


@dataclass(frozen=True)
class _Writer:
    """Writes the loops of one convolution."""

    parts: _Parts
    plan: WindowPlan
    is_parallel: bool

    @property
    def _vectors(self) -> Vectors:
        axes = self.parts.last.spatial
        return Vectors(axes[-1].extent, str(self.parts.image.dtype), nest.dtype_of(axes[0].var))

    def loops(self) -> tirx.Stmt:
        """All loops."""
        batch, blocks, rows, *_ = (axis.extent for axis in self.parts.last.spatial)
        band = self.plan.band_rows
        bands, index = rows // band, self._vectors.index

        def task(number: Any) -> tirx.Stmt:
            places = (
                (number // (blocks * bands), "batch"),
                (number // bands % blocks, "block"),
                (number % bands * band, "first"),
            )
            return nest.all_named(
                places,
                lambda n, c, first: nest.serial(band, lambda y: self._row(_Row(n, c, first + y)), index),
            )

        loop = nest.parallel if self.is_parallel else nest.serial
        return loop(batch * blocks * bands, task, index)

    def _row(self, row: _Row) -> tirx.Stmt:
        side, width = self.parts.columns, self.plan.columns
        left, right = side.outer_tiles(width)
        count = -(-side.output // width)

        def outer(number: int) -> tirx.Stmt:
            first = number * width
            return self._tile(row, first, min(width, side.output - first))

        statements = [outer(number) for number in range(left)]
        inner = count - left - right
        if inner:
            statements.append(
                nest.serial(
                    inner, lambda number: self._tile(row, (number + left) * width, width), self._vectors.index
                )
            )
        return nest.sequence(*statements, *(outer(number) for number in range(count - right, count)))

    def _tile(self, row: _Row, first: Any, width: int) -> tirx.Stmt:
        """One tile; taps are left out if ``first`` is a number and they lie outside."""
        vectors, taps = self._vectors, self.parts.rows.taps
        sums = nest.registers((width, vectors.lanes), vectors.dtype, "sums")
        zero = nest.constant(0, vectors.dtype)
        clear = [vectors.store((sums, (vectors.constant(x),)), lambda _: zero) for x in range(width)]
        loop = nest.unrolled if self.plan.unrolled > 1 else nest.serial
        add = loop(taps, lambda tap: self._add_row(sums, row, tap, first, width), vectors.index)
        return nest.sequence(nest.declare(sums), *clear, add, self._finish(sums, row, first, width))

    def _add_row(self, sums: Any, row: _Row, tap: Any, first: Any, width: int) -> tirx.Stmt:
        """Add the products of one row of taps, if it lies inside the image."""
        vectors, parts, side = self._vectors, self.parts, self.parts.columns
        y = parts.rows.pixel(row.row, tap)

        def add(x: int, column: int) -> tirx.Stmt:
            at = (row.batch, row.block, y, side.pixel(first + x, column))

            def lane(lane: Any) -> tirx.Stmt:
                product = parts.image[(*at, lane)] * parts.weights[(row.block, tap, column, lane)]
                return nest.store(sums, sums[x, lane] + product, vectors.constant(x), lane)

            return vectors.each(lane)

        places = [(x, column) for column in range(side.taps) for x in range(width)]
        if isinstance(first, int):
            places = [(x, column) for x, column in places if 0 <= side.pixel(first + x, column) < side.size]
        if not places:
            return tirx.Evaluate(vectors.constant(0))
        products = nest.sequence(*(add(*place) for place in places))
        if parts.rows.is_inside(0, parts.rows.output):
            return products
        return tirx.IfThenElse(tirx.all(y >= 0, y < parts.rows.size), products, None)

    def _finish(self, sums: Any, row: _Row, first: Any, width: int) -> tirx.Stmt:
        """Apply the epilogue and store: unrolled, or in a loop if its code is long."""
        vectors = self._vectors

        def store(source: Any) -> Callable[[Any], tirx.Stmt]:
            def pixel(x: Any) -> tirx.Stmt:
                return vectors.each(
                    lambda lane: self._result(
                        (row.batch, row.block, row.row, first + x, lane), source[x, lane]
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

    def _result(self, place: tuple[Any, ...], value: Any) -> tirx.Stmt:
        last = self.parts.last
        own = {axis.var: index for axis, index in zip(last.spatial, place, strict=True)}
        summed = self.parts.main.body.writes[0].source
        body = last.body.body
        computed = nest.replace_loads(nest.substitute(body.value, own), summed, nest.always(value))
        return nest.store(body.buffer, computed, *(nest.substitute(index, own) for index in body.indices))
