"""Products by tiles of blocks and warps::

    for tile of the product, in blocks of the grid:                # blockIdx.x; blockIdx.y divides the depth
        sums = 0                                                   # registers
        copy the first stages - 1 tiles of both factors            # global -> shared memory
        for tile of the depth:
            wait for its copies; barrier
            start to copy the tile that is stages - 1 ahead
            for step of the depth in the tile:                     # tensor cores, or multiply-adds
                load parts of both tiles                           # shared memory -> registers
                sums += left part * right part
        epilogue(sums)                                             # vectors -> global memory

A warp computes ``warp_rows`` by ``warp_columns`` of the block's tile. With a divided depth, every part
stores its sums, and a second kernel adds them up and applies the epilogue.

Source: NVIDIA, "CUTLASS: Fast Linear Algebra in CUDA C++" (the hierarchy of tiles).
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.gpu.chips import Gpu
from worker.compiler.schedules.gpu.products import plan as plans
from worker.compiler.schedules.gpu.products import threads as gt
from worker.compiler.schedules.gpu.products.contraction import Contraction, Factor
from worker.compiler.schedules.gpu.products.multiply_adds import MultiplyAdds
from worker.compiler.schedules.gpu.products.parts import divided, part_vector, store_part
from worker.compiler.schedules.gpu.products.plan import TilePlan
from worker.compiler.schedules.gpu.products.tensor_cores import TensorCores
from worker.compiler.schedules.gpu.products.threads import INT, number
from worker.compiler.schedules.gpu.products.tiles import Copies, Tile, make_tile, wide
from worker.compiler.schedules.gpu.products.units import Element, Operands, Unit, warp_of
from worker.compiler.schedules.gpu.products.warpgroups import Warpgroups

_GROUPED_TILES = 8
"""Tiles of rows whose blocks follow each other for one tile of columns: they share it in L2."""


class BlockedProduct:
    """The loops of a product by tiles."""

    def __init__(self, contraction: Contraction, plan: TilePlan, gpu: Gpu) -> None:
        self.contraction, self.plan = contraction, plan
        self._operands = _operands(contraction, plan, gpu)
        self._unit = _unit(self._operands, gpu)
        self._row_tiles = ceil(contraction.rows.size / plan.rows)
        self._column_tiles = ceil(contraction.columns.size / plan.columns)
        self._depth_tiles = ceil(ceil(contraction.depth.size / plan.depth) / plan.splits)

    def statement(self) -> tirx.Stmt:
        """All kernels."""
        tiles = self._padded_row_tiles * self._column_tiles * self.contraction.batch.size

        def block(index: Any, part: Any, parts: Any) -> tirx.Stmt:
            return gt.bound(
                "threadIdx.x", self.plan.threads, lambda thread: self._block(index, part, thread, parts)
            )

        return divided(self.contraction, self.plan.splits, tiles, block)

    def _block(self, block: Any, part: Any, thread: Any, parts: Any) -> tirx.Stmt:
        plan, operands, unit = self.plan, self._operands, self._unit
        row_tile, column_tile, batch = self._tile_of(block)
        row_start, column_start = row_tile * plan.rows, column_tile * plan.columns
        places = self.contraction.batch.places(wide(batch))
        left = Copies(operands.left, operands.left_buffer, thread, places, row_start)
        right = Copies(operands.right, operands.right_buffer, thread, places, column_start)
        warp = warp_of(thread, plan)

        def store(row: Any, column: Any, vector: int, value: Element) -> tirx.Stmt:
            return self._store(parts, part, batch, row_start + row, column_start + column, vector, value)

        vector = self.contraction.vector if parts is None else part_vector(self.contraction)
        statement = nest.sequence(
            nest.declare(operands.shared),
            gt.declare_view(operands.left_buffer, operands.shared),
            gt.declare_view(operands.right_buffer, operands.shared),
            nest.declare(unit.sums),
            *left.allocations(),
            *right.allocations(),
            gt.cleared(unit.sums),
            self._pipeline(
                part * (self._depth_tiles * plan.depth), left, right, lambda slot: unit.multiply(slot, warp)
            ),
            unit.finish(warp, vector, store),
        )
        if self._padded_row_tiles == self._row_tiles:
            return statement
        return gt.when(row_tile < self._row_tiles, statement)

    def _tile_of(self, block: Any) -> tuple[Any, Any, Any]:
        """The tile of rows, the tile of columns and the product of a block."""
        group = self._grouped_tiles
        tile, batch = block, number(0)
        if self.contraction.batch.size > 1:
            tiles = self._padded_row_tiles * self._column_tiles
            tile, batch = tirx.floormod(block, tiles), tirx.floordiv(block, tiles)
        in_group = group * self._column_tiles
        outer, inside = tirx.floordiv(tile, in_group), tirx.floormod(tile, in_group)
        return outer * group + tirx.floormod(inside, group), tirx.floordiv(inside, group), batch

    @property
    def _grouped_tiles(self) -> int:
        """Tiles of rows that share a tile of columns, so many that few blocks have none."""
        rows = self._row_tiles
        if rows <= _GROUPED_TILES:
            return rows
        return min(range(_GROUPED_TILES, _GROUPED_TILES // 2, -1), key=lambda group: -rows % group)

    @property
    def _padded_row_tiles(self) -> int:
        """The tiles of rows, with those that only fill the last group: their blocks do nothing."""
        return ceil(self._row_tiles / self._grouped_tiles) * self._grouped_tiles

    def _pipeline(
        self, first: Any, left: Copies, right: Copies, multiply: Callable[[Any], tirx.Stmt]
    ) -> tirx.Stmt:
        """Multiply all tiles of the depth, while later ones are copied."""
        plan, stages, tiles = self.plan, self.plan.stages, self._depth_tiles
        direct = [copies for copies in (left, right) if copies.tile.is_async]
        held = [copies for copies in (left, right) if not copies.tile.is_async]
        commit = [gt.commit_copies()] if direct else []
        ahead_by = stages - 1 - self._unit.lag
        wait = [gt.wait_for_copies(ahead_by - 1)] if direct else []
        rounded = [copies for copies in direct if copies.tile.is_rounded]

        def fetch(tile: Any, slot: Any) -> list[tirx.Stmt]:
            depth = first + tile * plan.depth
            return [copies.start(depth, slot) for copies in direct] + [copies.read(depth) for copies in held]

        prologue: list[tirx.Stmt] = []
        for stage in range(ahead_by):
            if stage < tiles:
                prologue += fetch(number(stage), number(stage))
                prologue += [copies.write(number(stage)) for copies in held]
            prologue += commit

        def step(tile: Any) -> tirx.Stmt:
            ahead = tile + ahead_by
            slot = tirx.floormod(ahead, stages)
            is_any = ahead < tiles
            write = [gt.when(is_any, nest.sequence(*(copies.write(slot) for copies in held)))] if held else []
            return nest.sequence(
                *wait,
                *(copies.round(tirx.floormod(tile, stages)) for copies in rounded),
                *self._unit.arrive(),
                gt.barrier(),
                gt.when(is_any, nest.sequence(*fetch(ahead, slot))),
                *commit,
                multiply(tirx.floormod(tile, stages)),
                *write,
            )

        return nest.sequence(*prologue, gt.serial(tiles, step))

    def _store(
        self, parts: Any, part: Any, batch: Any, row: Any, column: Any, vector: int, value: Element
    ) -> tirx.Stmt:
        """Store results next to each other, if they are inside."""
        contraction, plan = self.contraction, self.plan

        def one(along: Any) -> tirx.Stmt:
            if parts is not None:
                return store_part(parts, value(along), part, batch, row, column, along)
            places = {
                **contraction.batch.places(wide(batch)),
                **contraction.rows.places(wide(row)),
                **contraction.columns.places_along(wide(column), wide(along)),
            }
            return contraction.result(value(along), places)

        conditions = []
        if contraction.rows.size % plan.rows:
            conditions.append(row < contraction.rows.size)
        if contraction.columns.size % plan.columns:
            conditions.append(column < contraction.columns.size)
        return gt.when_all(conditions, nest.vectorized(vector, one, INT))


def _unit(operands: Operands, gpu: Gpu) -> Unit:
    match operands.plan.unit:
        case plans.Unit.WARPGROUP:
            return Warpgroups(operands)
        case plans.Unit.TENSOR:
            return TensorCores(operands, gpu)
        case plans.Unit.FMA:
            return MultiplyAdds(operands)


def _operands(contraction: Contraction, plan: TilePlan, gpu: Gpu) -> Operands:
    """Both tiles one after the other in shared memory."""
    dtype = contraction.left.dtype
    is_rounded = plan.unit is not plans.Unit.FMA and dtype == "float32"
    is_single = plan.unit is plans.Unit.TENSOR and is_rounded
    has_panels = plan.unit is plans.Unit.WARPGROUP

    def tile(factor: Factor, outer: int, name: str, start: int) -> Tile:
        return make_tile(
            factor,
            outer,
            depth=plan.depth,
            stages=plan.stages,
            threads=plan.threads,
            name=name,
            start=start,
            can_copy_async=gpu.has_async_copies,
            loads_singles=is_single,
            has_panels=has_panels,
            is_rounded=is_rounded,
        )

    left = tile(contraction.left, plan.rows, "left_tile", 0)
    right = tile(contraction.right, plan.columns, "right_tile", left.size)
    shared = gt.shared(plan.shared_bytes(left.bits), dtype)
    left_buffer, right_buffer = gt.view(shared, dtype, left.name), gt.view(shared, dtype, right.name)
    return Operands(plan, left, right, left_buffer, right_buffer, shared)
