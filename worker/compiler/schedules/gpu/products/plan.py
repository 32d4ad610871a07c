"""The cost model of products on a GPU: ranks tiles, stages and divisions of the depth.

A block's tile takes as many cycles as the slowest of::

    rows * columns * depth / multiply_adds                 arithmetic
    warps * (warp_rows + warp_columns) * depth * bytes / 128      shared memory feeds the warps
    (rows + columns) * depth * bytes / 40                  L2 fills shared memory
    tiles of the depth * latency / resident blocks         a warp waits for its own instructions

and the grid takes as many rounds as the multiprocessors need. A divided depth adds what the parts cost to store
and to read, and a launch.

A product of few rows reads its right factor once: its plan keeps every multiprocessor loading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import ceil

from worker.compiler.schedules.gpu.chips import Gpu

_MOST_SUMS = 128
"""The sums that a thread holds in registers."""

_REGISTERS_BESIDE_SUMS = 96
_SHARED_BYTES_PER_CYCLE = 128
_L2_BYTES_PER_CYCLE = 40
_MEMORY_BYTES_PER_CYCLE = 12
"""Of one multiprocessor."""

_STEP_LATENCY = 220
_BLOCK_LATENCY = 1500
"""The cycles before a block's first product, and after its last one."""

_LAUNCH = 3500
"""The cycles that a second kernel costs besides its work."""

_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_MOST_SKINNY_ROWS = 16
_MOST_PLANS = 48


class Unit(Enum):
    """What multiplies."""

    TENSOR = "tensor"
    """Tensor cores: fragments of 16 by 8 results."""
    FMA = "fma"
    """Multiply-adds of float32."""


@dataclass(frozen=True)
class ProductShape:
    """What a plan depends on.

    Attributes:
        bits: of the factors' elements.
        is_tensor: whether tensor cores may multiply them.
        streams_depth: whether the right factor's neighbors in memory are along the depth.
        width: the elements of the right factor that a thread can load at once.
    """

    rows: int
    columns: int
    depth: int
    batches: int
    bits: int
    is_tensor: bool
    streams_depth: bool = False
    width: int = 1


@dataclass(frozen=True)
class TilePlan:
    """How blocks of threads divide a product, and warps a block's tile.

    Attributes:
        unit: what multiplies.
        rows: of the block's tile, as are ``columns`` and ``depth``.
        warp_rows: of a warp's part of it, as are ``warp_columns``.
        stages: the tiles of the depth that shared memory holds.
        splits: the parts of the depth that different blocks sum.
    """

    unit: Unit
    rows: int
    columns: int
    depth: int
    warp_rows: int
    warp_columns: int
    stages: int
    splits: int = 1

    @property
    def warps(self) -> int:
        """The warps of a block."""
        return (self.rows // self.warp_rows) * (self.columns // self.warp_columns)

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.warps * 32

    def shared_bytes(self, bits: int) -> int:
        """The shared memory of a block."""
        tiles = self.stages * (self.rows + self.columns) * self.depth * bits // 8
        staged = self.warps * 16 * (self.warp_columns + 8) * 4 if self.unit is Unit.TENSOR else 0
        return max(tiles, staged)


@dataclass(frozen=True)
class SkinnyPlan:
    """How threads read the right factor of a product of few rows.

    Attributes:
        column_lanes: threads that read neighboring columns.
        depth_lanes: threads that read other steps of the depth for the same columns.
        own_columns: the columns of a thread.
        steps: the loads that a thread starts before it uses the first.
        splits: the parts of the depth that different blocks sum.
    """

    column_lanes: int
    depth_lanes: int
    own_columns: int
    steps: int
    splits: int = 1

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.column_lanes * self.depth_lanes

    @property
    def columns(self) -> int:
        """The columns of a block."""
        return self.column_lanes * self.own_columns


Plan = TilePlan | SkinnyPlan


@lru_cache(maxsize=1024)
def plans_for(shape: ProductShape, gpu: Gpu) -> tuple[Plan, ...]:
    """The plans worth measuring, the one that the model expects to be fastest first."""
    tiles = sorted(
        (plan for plan in _tile_plans(shape) if _fits(plan, shape, gpu)),
        key=lambda plan: _tile_cycles(plan, shape, gpu),
    )
    if shape.rows > _MOST_SKINNY_ROWS:
        return tuple(tiles[:_MOST_PLANS])
    skinny = sorted(_skinny_plans(shape, gpu), key=lambda plan: _skinny_cycles(plan, shape, gpu))
    prefers_skinny = not shape.is_tensor or shape.rows * 16 <= _MOST_SKINNY_ROWS * shape.bits // 2
    few: tuple[Plan, ...] = tuple(skinny[: _MOST_PLANS // 2])
    rest: tuple[Plan, ...] = tuple(tiles[: _MOST_PLANS // 2])
    return few + rest if prefers_skinny else rest + few


_TENSOR_TILES = (
    # rows, columns, warp rows, warp columns
    (256, 128, 64, 64),
    (128, 256, 64, 64),
    (128, 128, 64, 64),
    (128, 128, 64, 32),
    (128, 64, 64, 32),
    (128, 64, 32, 32),
    (64, 128, 32, 64),
    (64, 128, 32, 32),
    (64, 64, 32, 32),
    (64, 64, 16, 32),
    (128, 32, 32, 32),
    (32, 128, 32, 32),
    (32, 64, 16, 32),
    (64, 32, 16, 32),
    (32, 32, 16, 16),
    (16, 128, 16, 32),
    (16, 64, 16, 16),
)

_FMA_TILES = (
    (128, 128, 32, 64),
    (128, 128, 64, 32),
    (128, 64, 32, 64),
    (128, 64, 32, 32),
    (64, 128, 32, 64),
    (64, 128, 32, 32),
    (64, 64, 32, 32),
    (64, 64, 16, 32),
    (32, 128, 16, 64),
    (32, 64, 16, 32),
    (64, 32, 16, 32),
    (32, 32, 16, 32),
    (16, 128, 16, 32),
)


def _tile_plans(shape: ProductShape) -> Iterator[TilePlan]:
    unit = Unit.TENSOR if shape.is_tensor else Unit.FMA
    depths = tuple(size * 8 // shape.bits for size in ((64, 128) if shape.is_tensor else (64, 128)))
    for rows, columns, warp_rows, warp_columns in _TENSOR_TILES if shape.is_tensor else _FMA_TILES:
        for depth in depths:
            for stages in (2, 3, 4) if shape.is_tensor else (2, 3):
                for splits in _SPLITS:
                    if splits > 1 and ceil(shape.depth / depth) < 2 * splits:
                        continue
                    yield TilePlan(unit, rows, columns, depth, warp_rows, warp_columns, stages, splits)


def _fits(plan: TilePlan, shape: ProductShape, gpu: Gpu) -> bool:
    sums = plan.warp_rows * plan.warp_columns // gpu.warp
    return (
        sums <= _MOST_SUMS
        and plan.shared_bytes(shape.bits) <= gpu.shared_bytes
        and (_registers(plan) * plan.threads <= gpu.registers_per_multiprocessor)
    )


def _registers(plan: TilePlan) -> int:
    return min(255, plan.warp_rows * plan.warp_columns // 32 + _REGISTERS_BESIDE_SUMS)


def _multiply_adds(shape: ProductShape, gpu: Gpu) -> float:
    """The multiply-adds of a multiprocessor in a cycle."""
    if not shape.is_tensor:
        return 64 if gpu.capability in (75, 80) else 128
    of_half = {75: 512, 80: 1024, 90: 1300}.get(gpu.capability, 512)
    return of_half * 16 / shape.bits


def _tile_cycles(plan: TilePlan, shape: ProductShape, gpu: Gpu) -> float:
    size = shape.bits // 8
    blocks = ceil(shape.rows / plan.rows) * ceil(shape.columns / plan.columns) * shape.batches * plan.splits
    steps = ceil(ceil(shape.depth / plan.depth) / plan.splits)
    depth = steps * plan.depth
    resident = min(
        gpu.threads_per_multiprocessor // plan.threads,
        gpu.shared_bytes_per_multiprocessor // (plan.shared_bytes(shape.bits) + 1024),
        gpu.registers_per_multiprocessor // (_registers(plan) * plan.threads),
    )
    rounds = ceil(blocks / gpu.multiprocessors)
    together = max(1, min(resident, rounds))
    arithmetic = plan.rows * plan.columns * depth / _multiply_adds(shape, gpu)
    # Four schedulers multiply; fewer warps leave some idle.
    arithmetic *= max(1.0, 4 / (plan.warps * together))
    feed = plan.warps * (plan.warp_rows + plan.warp_columns) * depth * size / _SHARED_BYTES_PER_CYCLE
    fill = (plan.rows + plan.columns) * depth * size / _L2_BYTES_PER_CYCLE
    waiting = steps * (_STEP_LATENCY + 800 / (plan.stages - 1)) / together
    own = max(arithmetic, feed, fill, waiting) + 0.15 * (arithmetic + feed + fill)
    results = plan.rows * plan.columns * 4 / _L2_BYTES_PER_CYCLE
    cycles = rounds * (own + results) + ceil(rounds / together) * _BLOCK_LATENCY
    if plan.splits > 1:
        parts = shape.rows * shape.columns * shape.batches * 4 * plan.splits
        cycles += _LAUNCH + 2 * parts / (gpu.multiprocessors * _MEMORY_BYTES_PER_CYCLE)
    return cycles


def _skinny_plans(shape: ProductShape, gpu: Gpu) -> Iterator[SkinnyPlan]:
    for splits in _SPLITS:
        if shape.streams_depth:
            for own in (1, 2, 4):
                for warps in (4, 8):
                    for steps in (1, 2, 4):
                        for column_warps in (1, 2, 4, 8):
                            if column_warps > warps or shape.rows * own > 64:
                                continue
                            if splits > 1 and shape.depth < 2 * 32 * shape.width * splits:
                                continue
                            yield SkinnyPlan(column_warps, 32 * warps // column_warps, own, steps, splits)
        else:
            for lanes in (4, 8, 16, 32):
                for threads in (128, 256, 512):
                    for steps in (2, 4, 8):
                        if splits > 1 and shape.depth < 2 * (threads // lanes) * splits:
                            continue
                        if shape.rows * shape.width > _MOST_SUMS:
                            continue
                        yield SkinnyPlan(lanes, threads // lanes, shape.width, steps, splits)


def _skinny_cycles(plan: SkinnyPlan, shape: ProductShape, gpu: Gpu) -> float:
    size = shape.bits // 8
    blocks = ceil(shape.columns / plan.columns) * shape.batches * plan.splits
    step = plan.depth_lanes * (shape.width if shape.streams_depth else 1)
    steps = ceil(ceil(shape.depth / plan.splits) / step)
    resident = max(1, min(gpu.threads_per_multiprocessor // plan.threads, 32))
    rounds = ceil(blocks / gpu.multiprocessors)
    together = min(resident, rounds)
    own = plan.own_columns if shape.streams_depth else 1
    in_flight = plan.threads * min(plan.steps, max(1, steps)) * own * shape.width * size * together
    rate = min(float(_MEMORY_BYTES_PER_CYCLE), in_flight / 800)
    segment = plan.column_lanes * shape.width * size if not shape.streams_depth else 32 * shape.width * size
    rate *= min(1.0, segment / 64)
    loaded = plan.threads * steps * own * shape.width * size
    reads = shape.rows * plan.threads * steps * (shape.width if shape.streams_depth else 1)
    arithmetic = shape.rows * own * shape.width * steps * plan.threads / 100 + reads / 32
    cycles = rounds * max(loaded / rate, arithmetic) + ceil(rounds / together) * _BLOCK_LATENCY
    cycles += 8 * ceil(steps / plan.steps)
    if plan.splits > 1:
        cycles += _LAUNCH + shape.rows * shape.columns * shape.batches * 8 * plan.splits / (
            gpu.multiprocessors * _MEMORY_BYTES_PER_CYCLE
        )
    return cycles
