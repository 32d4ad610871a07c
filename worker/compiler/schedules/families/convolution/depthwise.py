"""Depthwise convolutions of images in blocks; pools in blocks use the same loops::

    for parallel task in (image, block of channels, band of rows):
        copy the band's input with its border                             # if it has one
        for row in band:
            for tile of columns:
                sums[columns, lanes] = 0
                for tap row, tap column:                                  # unrolled if few
                    for column:                                           # unrolled
                        sums[column, lanes] += image[pixel, lanes] * weights[tap, lanes]
                output[columns, lanes] = epilogue(sums[columns, lanes])

Registers hold the sums, by default eight vectors, which hide the latency of two multiply-add units; LLVM
loads the columns that neighboring pixels share once. L1 holds a band's input, which is copied right before
use.

Windows over two-dimensional images read their border in place (``window_borders``).

Edges: the last, shorter tile of a row is compiled separately (LoopPartition). A band of a volume reads rows
of several planes, so volumes copy the whole image with its border first. A long sequence is cut into parts
that take the place of rows (``windows.cut_row``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import s_tir

from worker.compiler.schedules.annotations import DEPTHWISE, DIMENSIONS, PARTITION
from worker.compiler.schedules.families.convolution.windows import (
    Windows,
    copy_border,
    cut_row,
    find_windows,
    run_parallel,
    tile_inside,
)
from worker.compiler.schedules.plans import PlanChooser, by_rank
from worker.compiler.schedules.processors import Machine, divisors

_IN_FLIGHT = 8
"""Independent sums that hide the latency: four cycles on two ports."""
_MAX_UNROLLED = 128
_MAX_INSTRUCTIONS = 512
_BAND_ROWS = 8
_MAX_BAND_ROWS = 16
_MAX_COLUMNS = 16
_TASKS_PER_THREAD = 4


@dataclass(frozen=True)
class WindowShape:
    """Windows over ``tasks`` blocks of ``rows`` by ``columns`` pixels, and the taps of a window."""

    tasks: int
    rows: int
    columns: int
    taps: int
    taps_of_row: int


@dataclass(frozen=True)
class WindowPlan:
    """How windows are computed.

    Attributes:
        columns: pixels of a tile.
        band_rows: rows of a task.
        unrolled: the number of innermost loops over taps to unroll.
    """

    columns: int
    band_rows: int
    unrolled: int


def schedule_depthwise(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> bool:
    """Schedule a depthwise convolution in blocks; False for other functions."""
    windows = find_windows(schedule, DEPTHWISE)
    if windows is None:
        return False
    tile_windows(schedule, windows, machine, choose)
    return True


def window_plans(shape: WindowShape, threads: int) -> tuple[WindowPlan, ...]:
    """All plans, the most promising first."""
    width = choose_columns(shape.columns, shape.taps_of_row)
    band = choose_band(shape.rows, shape.tasks, threads)
    widths = [width, *sorted(_widths(shape) - {width}, reverse=True)]
    bands = [band, *sorted({*divisors(shape.rows, _MAX_BAND_ROWS)} - {band}, reverse=True)]
    return tuple(WindowPlan(*choices) for choices in by_rank(widths, bands, _unrolled(shape, width)))


def choose_columns(columns: int, taps: int) -> int:
    """The pixels of a tile: enough to hide latency, fewer with many taps, preferably a row's divisor."""
    limit = max(1, min(_IN_FLIGHT, _MAX_UNROLLED // taps, columns))
    largest = divisors(columns, limit)[-1]
    return largest if 2 * largest > limit else limit


def choose_band(rows: int, tasks: int, threads: int) -> int:
    """The rows of a band: few enough for their copy to fit L1 and for all threads to have work."""
    enough = _TASKS_PER_THREAD * threads
    limit = _BAND_ROWS if tasks >= enough else max(1, min(_BAND_ROWS, rows * tasks // enough))
    return divisors(rows, limit)[-1]


def tile_windows(schedule: s_tir.Schedule, windows: Windows, machine: Machine, choose: PlanChooser) -> None:
    """Schedule windows that reduce only their taps."""
    if prod(windows.sizes[:2]) < _TASKS_PER_THREAD * machine.threads:
        windows = cut_row(schedule, windows)
    tasks, rows, columns = prod(windows.sizes[:2]), *windows.sizes[2:4]
    shape = WindowShape(tasks, rows, columns, windows.taps, windows.taps_of_row)
    plan = choose(window_plans(shape, machine.threads), shape)
    batch, block, row, column, lane = schedule.get_loops(windows.last)
    band, _ = schedule.split(row, factors=[None, plan.band_rows])
    outer_column, inner_column = schedule.split(column, factors=[None, plan.columns])
    schedule.vectorize(lane)
    schedule.unroll(inner_column)
    parallel = schedule.fuse(batch, block, band)
    schedule.compute_at(windows.main, outer_column, preserve_unit_loops=True)
    if columns % plan.columns:
        schedule.annotate(outer_column, PARTITION, 1)
    if windows.border is not None and _is_volume(schedule, windows):
        copy_border(schedule, windows, machine)
    elif windows.border is not None:
        schedule.compute_at(windows.border, parallel, preserve_unit_loops=True)
        schedule.vectorize(schedule.get_loops(windows.border)[-1])
    run_parallel(schedule, windows, parallel, machine)
    reductions = tile_inside(schedule, windows.main, outer=3, order=(0, 1, 2, 3, 4))
    for loop in reductions[len(reductions) - plan.unrolled :]:
        schedule.unroll(loop)
    schedule.decompose_reduction(windows.main, reductions[0])


def _unrolled(shape: WindowShape, width: int) -> tuple[int, ...]:
    """The numbers of loops to unroll: the most that keeps the code small, then others worth measuring."""
    levels = (1, shape.taps_of_row, shape.taps)
    small = [level for level, taps in enumerate(levels) if not level or taps * width <= _MAX_UNROLLED]
    bearable = [level for level, taps in enumerate(levels) if not level or taps * width <= _MAX_INSTRUCTIONS]
    return tuple(dict.fromkeys((small[-1], *reversed(bearable))))


def _widths(shape: WindowShape) -> set[int]:
    """The tiles worth measuring: the pixels that hide latency, half of them, and divisors of a row."""
    limit = min(shape.columns, _MAX_COLUMNS)
    wanted = {_IN_FLIGHT // 2, _IN_FLIGHT, *divisors(shape.columns, limit)}
    return {width for width in wanted if width <= limit and width * shape.taps_of_row <= _MAX_INSTRUCTIONS}


def _is_volume(schedule: s_tir.Schedule, windows: Windows) -> bool:
    """Whether the image has three dimensions."""
    return int(schedule.get(windows.main).annotations[DIMENSIONS]) > 2
