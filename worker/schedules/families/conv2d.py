"""Dense and grouped convolutions of images in blocks, and of plain images of few channels (stems).

Loops: batch, groups of output blocks, rows (in parallel), tiles of columns; inside, input channels and
taps; inside these the register tile, ``blocks`` vectors of output channels times ``columns`` pixels. Each
tap of an input channel loads ``blocks`` vectors of weights and broadcasts ``columns`` pixels for ``blocks *
columns`` fused multiply-adds, so that the tile has to be large enough to hide their latency and square
enough to load little. Pixels are outside blocks: LLVM then keeps a tap's weights in registers beside the
sums, and one broadcast pixel at a time (the other way around it keeps all pixels, and spills). A row's
last, shorter tile is compiled apart. Whichever of weights and image would be read again more often stays in
the cache: blocks outside rows, or rows outside blocks. Bias, residual and activation are applied to a tile
in the first-level cache.

Source: Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures"
(2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import s_tir, tirx

from worker.layout.convolution_kernels import CONVOLUTION, GROUP_BLOCKS
from worker.schedules.families.windows import (
    PARTITION,
    Windows,
    copy_border,
    find_windows,
    run_parallel,
    tile_inside,
)
from worker.schedules.machine import Machine, divisors

_LOAD_PORTS = 2
_BROADCAST_REGISTERS = 1
_MAX_BLOCKS = 8
_MAX_COLUMNS = 28


@dataclass(frozen=True)
class ConvolutionTile:
    """A register tile: ``blocks`` vectors of output channels times ``columns`` pixels of a row."""

    blocks: int
    columns: int


def schedule_conv2d(schedule: s_tir.Schedule, machine: Machine) -> bool:
    """Claim a convolution in blocks and schedule it."""
    windows = find_windows(schedule, CONVOLUTION)
    if windows is None:
        return False
    columns = windows.sizes[3]
    tile = choose_convolution_tile(_blocks_per_group(schedule, windows), columns, machine, windows.is_open)
    _tile(schedule, windows, tile, machine)
    if windows.border is not None:
        copy_border(schedule, windows, machine)
    return True


def choose_convolution_tile(
    blocks: int, columns: int, machine: Machine, only_whole: bool = False
) -> ConvolutionTile:
    """The tile that computes a row in the fewest cycles.

    Args:
        blocks: vectors of output channels that read the same input; the tile's side divides it.
        columns: pixels of a row; the tile's side need not divide it.
        machine: the processor.
        only_whole: whether the tile's columns must divide those of a row.

    Returns:
        The tile; of equally fast ones the one that loads least, of those the one that loads fewest weights.
    """
    tiles = [
        ConvolutionTile(high, wide)
        for high in divisors(blocks, _MAX_BLOCKS)
        for wide in range(1, min(columns, _MAX_COLUMNS) + 1)
        if high * wide + high + _BROADCAST_REGISTERS <= machine.registers
        and not (only_whole and columns % wide)
    ]
    return min(tiles, key=lambda tile: (_cycles(tile, columns, machine), _loads(tile), tile.blocks))


def _cycles(tile: ConvolutionTile, columns: int, machine: Machine) -> float:
    """Cycles that one tap of a row takes, per output block."""
    whole, rest = divmod(columns, tile.columns)
    total = whole * _tile_cycles(tile.blocks, tile.columns, machine)
    if rest:
        total += _tile_cycles(tile.blocks, rest, machine)
    return total / tile.blocks


def _tile_cycles(blocks: int, columns: int, machine: Machine) -> float:
    """Cycles of a tap: of the multiply-adds, of the loads, or of one multiply-add that waits for its sum."""
    multiply_adds = blocks * columns / machine.fma_ports
    return max(multiply_adds, (blocks + columns) / _LOAD_PORTS, machine.fma_latency)


def _loads(tile: ConvolutionTile) -> float:
    return (tile.blocks + tile.columns) / (tile.blocks * tile.columns)


def _tile(schedule: s_tir.Schedule, windows: Windows, tile: ConvolutionTile, machine: Machine) -> None:
    batch, block, row, column, lane = schedule.get_loops(windows.last)
    outer_block, inner_block = schedule.split(block, factors=[None, tile.blocks])
    outer_column, inner_column = schedule.split(column, factors=[None, tile.columns])
    outside = (outer_block, row) if _keeps_weights(schedule, windows, tile) else (row, outer_block)
    schedule.reorder(batch, *outside, outer_column, inner_block, inner_column, lane)
    schedule.vectorize(lane)
    schedule.unroll(inner_block)
    schedule.unroll(inner_column)
    parallel = schedule.fuse(batch, *outside)
    schedule.compute_at(windows.main, outer_column, preserve_unit_loops=True)
    if windows.sizes[3] % tile.columns:
        schedule.annotate(outer_column, PARTITION, 1)
    run_parallel(schedule, windows, parallel, machine)
    reductions = tile_inside(schedule, windows.main, outer=2, order=(0, 2, 3, 1, 4))
    schedule.decompose_reduction(windows.main, reductions[0])


def _keeps_weights(schedule: s_tir.Schedule, windows: Windows, tile: ConvolutionTile) -> bool:
    """Whether all rows pass by some blocks' weights, rather than all weights by a row's pixels."""
    image, weights = (_elements(read.source.shape) for read in schedule.get(windows.main).reads)
    blocks, rows = windows.sizes[1:3]
    return image * (blocks // tile.blocks) + weights <= weights * rows + image


def _elements(shape: Any) -> int:
    """Elements of a buffer; of one image where the batch is open."""
    return prod(int(size) for size in shape if isinstance(size, tirx.IntImm))


def _blocks_per_group(schedule: s_tir.Schedule, windows: Windows) -> int:
    return int(schedule.get(windows.main).annotations[GROUP_BLOCKS])
