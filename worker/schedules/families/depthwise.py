"""Depthwise convolutions of images in blocks; pools go by the same template.

Loops: batch, blocks of channels, bands of rows (in parallel), rows, tiles of columns; inside, the taps,
unrolled (of a large window one row of them at a time); inside these the tile of ``columns`` pixels, each an
accumulator in a register, so that as many sums run side by side as hide an addition's latency. Neighboring
pixels of a tile read the same columns, which LLVM loads once. A band gets its border just before it is
computed, and is still in the first-level cache then. A band of a volume reads rows of several planes, so
that volumes get theirs all at once.
"""

from __future__ import annotations

from math import prod

from tvm import s_tir

from worker.layout.convolution_kernels import DEPTHWISE, DIMENSIONS
from worker.schedules.families.sequences import cut_row
from worker.schedules.families.windows import (
    PARTITION,
    Windows,
    copy_border,
    find_windows,
    run_parallel,
    tile_inside,
)
from worker.schedules.machine import Machine, divisors

_IN_FLIGHT = 8
"""Sums that have to run side by side: a latency of four cycles on two ports."""
_MAX_UNROLLED = 128
_BAND_ROWS = 8
_TASKS_PER_THREAD = 4


def schedule_depthwise(schedule: s_tir.Schedule, machine: Machine) -> bool:
    """Claim a depthwise convolution in blocks and schedule it."""
    windows = find_windows(schedule, DEPTHWISE)
    if windows is None:
        return False
    tile_windows(schedule, windows, machine)
    return True


def choose_columns(columns: int, taps: int) -> int:
    """Pixels of a tile: enough to hide latency, fewer where unrolled taps are many, best a row's divisor."""
    limit = max(1, min(_IN_FLIGHT, _MAX_UNROLLED // taps, columns))
    largest = divisors(columns, limit)[-1]
    return largest if 2 * largest > limit else limit


def choose_band(rows: int, tasks: int, threads: int) -> int:
    """Rows of a band: few enough that their copy stays cached and that all threads have work."""
    enough = _TASKS_PER_THREAD * threads
    limit = _BAND_ROWS if tasks >= enough else max(1, min(_BAND_ROWS, rows * tasks // enough))
    return divisors(rows, limit)[-1]


def tile_windows(schedule: s_tir.Schedule, windows: Windows, machine: Machine) -> None:
    """Schedule windows that reduce over their taps only."""
    if prod(windows.sizes[:2]) < _TASKS_PER_THREAD * machine.threads:
        windows = cut_row(schedule, windows)
    tasks, rows, columns = prod(windows.sizes[:2]), *windows.sizes[2:4]
    width = choose_columns(columns, windows.taps_of_row)
    batch, block, row, column, lane = schedule.get_loops(windows.last)
    band, _ = schedule.split(row, factors=[None, choose_band(rows, tasks, machine.threads)])
    outer_column, inner_column = schedule.split(column, factors=[None, width])
    schedule.vectorize(lane)
    schedule.unroll(inner_column)
    parallel = schedule.fuse(batch, block, band)
    schedule.compute_at(windows.main, outer_column, preserve_unit_loops=True)
    if columns % width:
        schedule.annotate(outer_column, PARTITION, 1)
    if windows.border is not None and _is_volume(schedule, windows):
        copy_border(schedule, windows, machine)
    elif windows.border is not None:
        schedule.compute_at(windows.border, parallel, preserve_unit_loops=True)
        schedule.vectorize(schedule.get_loops(windows.border)[-1])
    run_parallel(schedule, windows, parallel, machine)
    reductions = tile_inside(schedule, windows.main, outer=3, order=(0, 1, 2, 3, 4))
    unrolled = 2 if windows.taps * width <= _MAX_UNROLLED else 1
    if windows.taps_of_row * width <= _MAX_UNROLLED:
        for loop in reductions[-unrolled:]:
            schedule.unroll(loop)
    schedule.decompose_reduction(windows.main, reductions[0])


def _is_volume(schedule: s_tir.Schedule, windows: Windows) -> bool:
    """Whether the image has depth."""
    return int(schedule.get(windows.main).annotations[DIMENSIONS]) > 2
