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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from tvm import s_tir

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
from worker.schedules.plans import Chooser
from worker.schedules.ranking import by_rank

_LOAD_PORTS = 2
_BROADCAST_REGISTERS = 1
_MAX_BLOCKS = 8
_MAX_COLUMNS = 28


@dataclass(frozen=True)
class ConvolutionTile:
    """A register tile: ``blocks`` vectors of output channels times ``columns`` pixels of a row."""

    blocks: int
    columns: int


@dataclass(frozen=True)
class ConvolutionPlan:
    """How a convolution is computed.

    Attributes:
        tile: what stays in registers.
        keeps_weights: whether rows pass by some blocks' weights, rather than weights by a row's pixels.
        unrolls: whether the innermost loop around the tile is written out.
    """

    tile: ConvolutionTile
    keeps_weights: bool
    unrolls: bool


def schedule_conv2d(schedule: s_tir.Schedule, machine: Machine, choose: Chooser) -> bool:
    """Claim a convolution in blocks and schedule it."""
    windows = find_windows(schedule, CONVOLUTION)
    if windows is None:
        return False
    tiles = convolution_tiles(_blocks_per_group(schedule, windows), windows.sizes[3], machine)
    plan = choose(convolution_plans(tiles, lambda tile: _keeps_weights(schedule, windows, tile)))
    _tile(schedule, windows, plan, machine)
    if windows.border is not None:
        copy_border(schedule, windows, machine)
    return True


def convolution_plans(
    tiles: Sequence[ConvolutionTile], keeps_weights: Callable[[ConvolutionTile], bool]
) -> tuple[ConvolutionPlan, ...]:
    """Every way to compute a convolution.

    Args:
        tiles: its tiles, best first.
        keeps_weights: whether the model would keep weights rather than pixels in the cache.
    """
    return tuple(
        ConvolutionPlan(tile, keeps_weights(tile) is as_expected, unrolls)
        for tile, as_expected, unrolls in by_rank(tiles, (True, False), (False, True))
    )


def convolution_tiles(blocks: int, columns: int, machine: Machine) -> tuple[ConvolutionTile, ...]:
    """The tiles that fit the registers, the one that computes a row in the fewest cycles first.

    Of equally fast ones the one that loads least comes first, of those the one that loads fewest weights.

    Args:
        blocks: vectors of output channels that read the same input; a tile's side divides it.
        columns: pixels of a row; a tile's side need not divide it.
        machine: the processor.
    """
    tiles = [
        ConvolutionTile(high, wide)
        for high in divisors(blocks, _MAX_BLOCKS)
        for wide in range(1, min(columns, _MAX_COLUMNS) + 1)
        if high * wide + high + _BROADCAST_REGISTERS <= machine.registers
    ]
    return tuple(sorted(tiles, key=lambda tile: (_cycles(tile, columns, machine), _loads(tile), tile.blocks)))


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


def _tile(schedule: s_tir.Schedule, windows: Windows, plan: ConvolutionPlan, machine: Machine) -> None:
    tile = plan.tile
    batch, block, row, column, lane = schedule.get_loops(windows.last)
    outer_block, inner_block = schedule.split(block, factors=[None, tile.blocks])
    outer_column, inner_column = schedule.split(column, factors=[None, tile.columns])
    outside = (outer_block, row) if plan.keeps_weights else (row, outer_block)
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
    if plan.unrolls:
        schedule.unroll(reductions[-1])
    schedule.decompose_reduction(windows.main, reductions[0])


def _keeps_weights(schedule: s_tir.Schedule, windows: Windows, tile: ConvolutionTile) -> bool:
    """Whether all rows pass by some blocks' weights, rather than all weights by a row's pixels."""
    image, weights = (prod(map(int, read.source.shape)) for read in schedule.get(windows.main).reads)
    blocks, rows = windows.sizes[1:3]
    return image * (blocks // tile.blocks) + weights <= weights * rows + image


def _blocks_per_group(schedule: s_tir.Schedule, windows: Windows) -> int:
    return int(schedule.get(windows.main).annotations[GROUP_BLOCKS])
