"""The plans of Winograd's convolutions, and the cycles that the processor's model expects of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil, prod

from worker.compiler.schedules.families.convolution.conv2d import ConvolutionShape, direct_cycles
from worker.compiler.schedules.families.convolution.winograd_points import (
    POINTS,
    TAPS,
    Matrix,
    reach_of,
    tile_of,
    transforms,
)
from worker.compiler.schedules.processors import Machine, divisors

_MAX_BLOCKS = 4
_MAX_TILES = 28
_MAX_STRIP = 64
BYTES = 4
"""Bytes of a float32."""
_INEFFICIENCY = 1.3
"""The ratio of measured to modeled cycles: transforms and stores sometimes wait for the caches."""
_NOT_HIDDEN = 0.1
"""The share of the shorter time, of arithmetic or of memory, that the longer one does not hide."""
_LEAST_GAIN = 0.85
"""The most that a tile may take of the direct convolution's expected cycles, since models err."""
_STEP_CYCLES = 20
"""The cost of a register tile besides its multiply-adds: clearing and storing the sums, a loop's end."""


@dataclass(frozen=True)
class WinogradShape:
    """The sizes that a plan depends on.

    Attributes:
        side: outputs of a tile's side.
        batch: images.
        inputs: blocks of input channels.
        outputs: blocks of output channels.
        rows: rows of the output.
        columns: columns of the output.
        blocks: output blocks of a group, as the weights are packed.
        lanes: channels of a block.
        dimensions: the image's dimensions; a sequence has one.
    """

    side: int
    batch: int
    inputs: int
    outputs: int
    rows: int
    columns: int
    blocks: int
    lanes: int
    dimensions: int = 2

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile's outputs."""
        return tile_of(self.side, self.dimensions)

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns of a tile's pixels."""
        return reach_of(self.tile)

    @property
    def points(self) -> int:
        """Products of a tile and a pair of channels."""
        return prod(self.reach)

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of tiles in an image."""
        return ceil(self.rows / self.tile[0]), ceil(self.columns / self.tile[1])

    @property
    def tiles(self) -> int:
        """Tiles of all images."""
        return self.batch * self.sides[0] * self.sides[1]

    @property
    def groups(self) -> int:
        """Groups of output blocks."""
        return self.outputs // self.blocks

    @property
    def weight_bytes(self) -> int:
        """Bytes of the transformed weights."""
        return self.points * self.inputs * self.outputs * self.lanes**2 * BYTES


@dataclass(frozen=True)
class WinogradPlan:
    """How a convolution is computed.

    Attributes:
        tiles: tiles of the image in a register tile, which has the group's blocks too.
        strip: tiles of a task.
        parts: the parts into which tasks divide the groups.
    """

    tiles: int
    strip: int
    parts: int


@lru_cache(maxsize=256)
def winograd_plans(shape: WinogradShape, machine: Machine) -> tuple[WinogradPlan, ...]:
    """All plans whose sums fit the registers and whose strips fit L2, the fastest first."""
    plans = [
        WinogradPlan(tiles, strip, parts)
        for tiles in range(1, min(shape.tiles, _MAX_TILES) + 1)
        if _registers(tiles, shape.blocks, machine) <= machine.registers
        for strip in _strips(shape.tiles, tiles)
        if _strip_bytes(strip, shape) <= machine.l2_bytes * 5 // 8
        for parts in divisors(shape.groups, shape.groups)
        if parts == 1 or parts <= 2 * machine.threads
    ]
    return tuple(sorted(plans, key=lambda plan: (round(cycles_of(plan, shape, machine)), -plan.strip)))


def faster_by_winograd(
    direct: ConvolutionShape, machine: Machine, least_gain: float = _LEAST_GAIN
) -> tuple[WinogradShape, ...]:
    """The tiles and groups that are expected to beat the direct convolution, the fastest first.

    Each side of a tile appears once, with its fastest group of blocks.

    Args:
        direct: the convolution.
        machine: the processor.
        least_gain: the share of the direct convolution's cycles that a tile may take.
    """
    limit = least_gain * direct_cycles(direct, machine)
    lanes = machine.lanes(direct.bits)
    dimensions = 1 if direct.taps == TAPS * direct.channels * lanes else 2
    sizes = (1, direct.rows * direct.columns) if dimensions == 1 else (direct.rows, direct.columns)
    found = []
    for side in POINTS:
        shapes = [
            WinogradShape(
                side=side,
                batch=direct.batch,
                inputs=direct.channels,
                outputs=direct.blocks,
                rows=sizes[0],
                columns=sizes[1],
                blocks=blocks,
                lanes=lanes,
                dimensions=dimensions,
            )
            for blocks in divisors(direct.blocks, _MAX_BLOCKS)
        ]
        ranked = [(plans[0], shape) for shape in shapes if (plans := winograd_plans(shape, machine))]
        found += sorted(
            ((cycles_of(plan, shape, machine), shape.blocks, shape) for plan, shape in ranked),
            key=lambda each: each[:2],
        )[:1]
    return tuple(shape for cycles, _, shape in sorted(found, key=lambda each: each[0]) if cycles <= limit)


def _strips(tiles: int, of_registers: int) -> tuple[int, ...]:
    """Whole register tiles, or all tiles."""
    whole = tuple(range(of_registers, min(tiles, _MAX_STRIP) + 1, of_registers))
    return (*whole, tiles) if tiles <= _MAX_STRIP and tiles not in whole else whole


def _registers(tiles: int, blocks: int, machine: Machine) -> int:
    """Sums, the weights of a channel, and one pixel, or every tile's channels if lanes can be factors."""
    return tiles * blocks + blocks + (tiles if machine.lane_factors else 1)


def _strip_bytes(strip: int, shape: WinogradShape) -> int:
    """The transformed pixels and products of a strip."""
    return shape.points * strip * (shape.inputs + shape.blocks) * shape.lanes * BYTES


def cycles_of(plan: WinogradPlan, shape: WinogradShape, machine: Machine) -> float:
    """The cycles of the thread with the most tasks: transforms, and products or reading their weights."""
    strips = ceil(shape.tiles / plan.strip)
    tasks = ceil(strips * plan.parts / machine.threads)
    blocks, depth = shape.outputs // plan.parts, shape.inputs * shape.lanes
    rate = min(machine.fma_ports, machine.loads_per_cycle)
    transforms_of_task = plan.strip * (
        shape.inputs * image_operations(shape.tile) + blocks * output_operations(shape.tile)
    )
    step = max(
        plan.tiles * shape.blocks / machine.fma_ports,
        (plan.tiles + shape.blocks) / machine.loads_per_cycle,
        machine.fma_latency,
    )
    register_tiles = shape.points * ceil(plan.strip / plan.tiles) * (blocks // shape.blocks)
    arithmetic = register_tiles * (depth * step + _STEP_CYCLES)
    weights = shape.points * depth * blocks * shape.lanes * BYTES
    stays = weights <= machine.l2_bytes // 2
    memory = (ceil(tasks / strips) if stays else tasks) * weights / machine.far_bytes_per_cycle
    products = _INEFFICIENCY * tasks * arithmetic
    return (
        _INEFFICIENCY * tasks * transforms_of_task / rate
        + max(products, memory)
        + _NOT_HIDDEN * min(products, memory)
    )


@cache
def image_operations(tile: tuple[int, int]) -> int:
    """Vector operations, loads and stores that transform a tile of a block of channels."""
    down, across = (transforms(side).image for side in tile)
    return _operations(down, across)


@cache
def output_operations(tile: tuple[int, int]) -> int:
    """The same for a tile of an output block."""
    down, across = (transforms(side).output for side in tile)
    return _operations(down, across)


def _operations(down: Matrix, across: Matrix) -> int:
    """The operations of a matrix times a tile times a transposed matrix; a single row is not transformed."""
    columns = len(across[0]) * _sums(down) if len(down[0]) > 1 else 0
    moved = len(down[0]) * len(across[0]) + len(down) * len(across)
    return columns + len(down) * _sums(across) + moved


def _sums(matrix: Matrix) -> int:
    """Operations of a product of a matrix and a vector."""
    return sum(sum(number != 0 for number in row) for row in matrix)
