"""The cost model of products on a GPU: ranks tiles, stages and divisions of the depth.

A block's tile takes as many cycles as the slowest of::

    rows * columns * depth / multiply_adds                 arithmetic
    warps * (warp_rows + warp_columns) * depth * bytes / 128      shared memory feeds the warps
    (rows + columns) * depth * bytes / 40                  L2 fills shared memory
    tiles of the depth * latency / resident blocks         a warp waits for its own instructions

and the grid takes as many rounds as the multiprocessors need. A divided depth adds what the parts cost to
store and to read, and a launch.

A product of few rows reads its right factor once: its plan keeps every multiprocessor loading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import product
from math import ceil

from worker.compiler.schedules.gpu.chips import Gpu

_MOST_SUMS = 128
"""The sums that a thread holds in registers."""

_REGISTERS_BESIDE_SUMS = 96
_SHARED_BYTES_PER_CYCLE = 128
_L2_BYTES_PER_CYCLE = 40
_MEMORY_BYTES_PER_CYCLE = 12
"""Bytes per cycle for one multiprocessor."""

_STEP_LATENCY = 220
_BLOCK_LATENCY = 1500
"""The cycles before a block's first product, and after its last one."""

_LAUNCH = 3500
"""The cycles that a second kernel costs besides its work."""

PAD = 8
"""Elements between rows of sums in shared memory, so that neighboring rows begin in different banks."""

_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_MOST_SKINNY_ROWS = 16
_MOST_PLANS = 48

_LINE_BYTES = 128
"""Bytes of the depth in a tile; some tiles have half as many."""


class Unit(Enum):
    """The instructions that multiply tiles."""

    TENSOR = "tensor"
    """Tensor cores: fragments of 16 by 8 results."""
    WARPGROUP = "warpgroup"
    """Tensor cores of four warps, which read shared memory themselves."""
    FMA = "fma"
    """Multiply-adds of float32."""


@dataclass(frozen=True)
class ProductShape:
    """What a plan depends on.

    Attributes:
        bits: bits of the factors' elements.
        is_tensor: whether tensor cores may multiply them.
        streams_depth: whether the right factor's neighbors in memory are along the depth.
        width: the elements of the right factor that a thread can load at once.
        copies_async: whether both factors go to shared memory without registers.
        has_warpgroups: whether tensor cores may read both factors from shared memory.
    """

    rows: int
    columns: int
    depth: int
    batches: int
    bits: int
    is_tensor: bool
    streams_depth: bool = False
    width: int = 1
    copies_async: bool = True
    has_warpgroups: bool = False


@dataclass(frozen=True)
class TilePlan:
    """How blocks of threads divide a product, and warps a block's tile.

    Attributes:
        unit: the instructions that multiply.
        rows: rows of the block's tile, which also has ``columns`` and ``depth``.
        warp_rows: rows of a warp's (or a warpgroup's) part of it, which also has ``warp_columns``.
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
        return self.threads // 32

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return (self.rows // self.warp_rows) * (self.columns // self.warp_columns) * self.group

    @property
    def sums(self) -> int:
        """The sums of a thread."""
        return self.warp_rows * self.warp_columns // self.group

    @property
    def group(self) -> int:
        """The threads that compute ``warp_rows`` by ``warp_columns``."""
        return 128 if self.unit is Unit.WARPGROUP else 32

    def shared_bytes(self, bits: int) -> int:
        """The shared memory of a block."""
        tiles = self.stages * (self.rows + self.columns) * self.depth * bits // 8
        staged = self.warps * 16 * (self.warp_columns + PAD) * 4 if self.unit is not Unit.FMA else 0
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


@dataclass(frozen=True)
class DirectPlan:
    """How threads divide the results of sums of few products.

    Attributes:
        vector: the neighboring results of a thread.
        pixels: its neighboring vectors, for which it loads one factor once.
        threads: threads of a block.
    """

    vector: int
    pixels: int
    threads: int


Plan = TilePlan | SkinnyPlan | DirectPlan


def direct_plans(vector: int, pixels: int, results: int, gpu: Gpu) -> tuple[DirectPlan, ...]:
    """The plans for a sum of few products, the one that the model expects to be fastest first.

    A thread with more pixels loads less, as long as all multiprocessors have threads.

    Args:
        vector: the most neighbors that a thread can load at once.
        pixels: the size of the axis along which a factor is shared.
        results: how many results there are.
        gpu: the GPU.
    """

    def cost(plan: DirectPlan) -> float:
        loads = (1 + 1 / plan.pixels) / plan.vector
        threads = results / (plan.pixels * plan.vector)
        filled = min(1.0, threads / (gpu.multiprocessors * gpu.threads_per_multiprocessor / 4))
        wasted = -(-pixels // plan.pixels) * plan.pixels / pixels
        return loads * wasted / filled

    plans = [
        DirectPlan(width, count, threads)
        for width in (16, 8, 4, 2, 1)
        if vector % width == 0 and width * 4 >= vector
        for count in (1, 2, 4)
        if count <= pixels
        for threads in (128, 256)
    ]
    return tuple(sorted(plans, key=cost))


@lru_cache(maxsize=1024)
def plans_for(shape: ProductShape, gpu: Gpu) -> tuple[Plan, ...]:
    """The plans worth measuring, the one that the model expects to be fastest first."""
    possible = sorted(
        (plan for plan in _tile_plans(shape) if _fits(plan, shape, gpu)),
        key=lambda plan: _tile_cycles(plan, shape, gpu),
    )
    tiles = _best_of_each(possible)
    if shape.rows > _MOST_SKINNY_ROWS:
        return tuple(tiles[:_MOST_PLANS])
    skinny = sorted(_skinny_plans(shape), key=lambda plan: _skinny_cycles(plan, shape, gpu))
    prefers_skinny = not shape.is_tensor or shape.rows * 16 <= _MOST_SKINNY_ROWS * shape.bits // 2
    few: tuple[Plan, ...] = tuple(skinny[: _MOST_PLANS // 2])
    rest: tuple[Plan, ...] = tuple(tiles[: _MOST_PLANS // 2])
    return few + rest if prefers_skinny else rest + few


def _best_of_each(plans: list[TilePlan]) -> list[TilePlan]:
    """Ranked plans, the best one of every tile before the others."""
    tiles = [(plan.unit, plan.rows, plan.columns, plan.warp_rows, plan.warp_columns) for plan in plans]
    first = dict(zip(reversed(tiles), reversed(plans), strict=True))
    best = set(first.values())
    return [*(plan for plan in plans if plan in best), *(plan for plan in plans if plan not in best)]


_WARPGROUP_TILES = (
    # rows, columns, a warpgroup's rows and columns
    (128, 256, 64, 256),
    (256, 128, 128, 128),
    (256, 128, 64, 128),
    (128, 192, 64, 192),
    (128, 128, 64, 128),
    (128, 64, 64, 64),
    (64, 256, 64, 256),
    (64, 128, 64, 128),
    (64, 64, 64, 64),
)

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
    line, half = _LINE_BYTES * 8 // shape.bits, _LINE_BYTES * 4 // shape.bits
    if not shape.is_tensor:
        yield from _plans_with(Unit.FMA, _FMA_TILES, (half, line), shape)
        return
    # Rows of half a line are copied by twice as many requests: a quarter slower on an H200.
    depths = (line,) if shape.depth > half else (half,)
    yield from _plans_with(Unit.TENSOR, _TENSOR_TILES, depths, shape)
    if shape.has_warpgroups:
        yield from _plans_with(Unit.WARPGROUP, _WARPGROUP_TILES, (line,), shape)


def _plans_with(
    unit: Unit, tiles: tuple[tuple[int, int, int, int], ...], depths: tuple[int, ...], shape: ProductShape
) -> Iterator[TilePlan]:
    for tile, depth, stages, splits in product(tiles, depths, _stages(unit, shape), _SPLITS):
        rows, columns, warp_rows, warp_columns = tile
        if splits == 1 or ceil(shape.depth / depth) >= 2 * splits:
            yield TilePlan(unit, rows, columns, depth, warp_rows, warp_columns, stages, splits)


def _stages(unit: Unit, shape: ProductShape) -> tuple[int, ...]:
    """The numbers of stages to try. Tiles that pass registers are one ahead: more would only repeat code."""
    if unit is Unit.WARPGROUP:
        return (3, 4, 5) if shape.copies_async else (3,)
    if not shape.copies_async:
        return (2,)
    return (2, 3, 4) if unit is Unit.TENSOR else (2, 3)


def _fits(plan: TilePlan, shape: ProductShape, gpu: Gpu) -> bool:
    return (
        plan.sums <= _MOST_SUMS
        and plan.shared_bytes(shape.bits) <= gpu.shared_bytes
        and (_registers(plan) * plan.threads <= gpu.registers_per_multiprocessor)
    )


def _registers(plan: TilePlan) -> int:
    return min(255, plan.sums + _REGISTERS_BESIDE_SUMS)


def _multiply_adds(unit: Unit, shape: ProductShape, gpu: Gpu) -> float:
    """The multiply-adds of a multiprocessor in a cycle."""
    if unit is Unit.FMA:
        return 64 if gpu.capability in (75, 80) else 128
    of_half = {75: 512, 80: 1024, 90: 1200}.get(gpu.capability, 512)
    return (1800 if unit is Unit.WARPGROUP else of_half) * 16 / shape.bits


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
    arithmetic = plan.rows * plan.columns * depth / _multiply_adds(plan.unit, shape, gpu)
    if plan.unit is not Unit.WARPGROUP:
        # Four schedulers multiply, each for two warps or more: one waits at the barrier.
        arithmetic *= max(1.0, 8 / (plan.warps * together)) ** 0.4
    feed = plan.warps * (plan.warp_rows + plan.warp_columns) * depth * size / _SHARED_BYTES_PER_CYCLE
    if plan.unit is Unit.WARPGROUP:
        feed /= 4
    fill = (plan.rows + plan.columns) * depth * size / _L2_BYTES_PER_CYCLE
    ahead = plan.stages - (2 if plan.unit is Unit.WARPGROUP else 1)
    waiting = steps * (_STEP_LATENCY + 800 / ahead) / together
    own = max(arithmetic, feed, fill, waiting) + 0.15 * (arithmetic + feed + fill) + steps * 100 / ahead
    results = plan.rows * plan.columns * 4 / _L2_BYTES_PER_CYCLE
    cycles = rounds * (own + results) + ceil(rounds / together) * _BLOCK_LATENCY
    if plan.splits > 1:
        parts = shape.rows * shape.columns * shape.batches * 4 * plan.splits
        cycles += _LAUNCH + 2 * parts / (gpu.multiprocessors * _MEMORY_BYTES_PER_CYCLE)
    return cycles


def _skinny_plans(shape: ProductShape) -> Iterator[SkinnyPlan]:
    plans = _plans_along_depth(shape) if shape.streams_depth else _plans_along_columns(shape)
    for plan in plans:
        step = plan.depth_lanes * (shape.width if shape.streams_depth else 1)
        for splits in _SPLITS:
            if splits == 1 or shape.depth >= 2 * step * splits:
                yield replace(plan, splits=splits)


def _plans_along_depth(shape: ProductShape) -> Iterator[SkinnyPlan]:
    for own, warps, steps, column_warps in product((1, 2, 4), (4, 8), (1, 2, 4), (1, 2, 4, 8)):
        if column_warps <= warps and shape.rows * own <= _MOST_SUMS // 2:
            yield SkinnyPlan(column_warps, 32 * warps // column_warps, own, steps)


def _plans_along_columns(shape: ProductShape) -> Iterator[SkinnyPlan]:
    for lanes, threads, steps in product((4, 8, 16, 32), (128, 256, 512), (2, 4, 8)):
        if shape.rows * shape.width <= _MOST_SUMS:
            yield SkinnyPlan(lanes, threads // lanes, shape.width, steps)


def _skinny_cycles(plan: SkinnyPlan, shape: ProductShape, gpu: Gpu) -> float:
    size = shape.bits // 8
    blocks = ceil(shape.columns / plan.columns) * shape.batches * plan.splits
    step = plan.depth_lanes * (shape.width if shape.streams_depth else 1)
    steps = ceil(ceil(shape.depth / plan.splits) / step)
    resident = max(1, min(gpu.threads_per_multiprocessor // plan.threads, 32))
    rounds = ceil(blocks / gpu.multiprocessors)
    together = min(resident, rounds)
    own = plan.own_columns if shape.streams_depth else 1
    in_flight = plan.threads * min(plan.steps, 2, max(1, steps)) * own * shape.width * size * together
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
