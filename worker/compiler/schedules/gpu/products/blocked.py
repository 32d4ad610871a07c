"""Products by tiles of blocks and warps::

    for tile of the product, in blocks of the grid:                # blockIdx.x; blockIdx.y divides the depth
        sums = 0                                                   # registers
        copy the first stages - 1 tiles of both factors            # global -> shared memory
        for tile of the depth:
            wait for its copies; barrier
            start to copy the tile that is stages - 1 ahead
            for step of the depth in the tile:                     # unrolled
                load fragments of both factors                     # shared memory -> registers
                sums += left fragment * right fragment             # tensor core, or multiply-adds
        epilogue(sums)                                             # shared memory -> vectors -> global

A warp computes ``warp_rows`` by ``warp_columns`` of the block's tile. With tensor cores its sums lie as the
instruction returns them, two neighbors per thread; shared memory turns them into rows of vectors, 16 rows at a
time. With multiply-adds each thread has groups of four neighbors, and stores them directly.

With a divided depth, every part stores its sums, and a second kernel adds them up and applies the epilogue.

Source: NVIDIA, "CUTLASS: Efficient GEMM in CUDA" (the hierarchy of tiles); PTX ISA, "Matrix Fragments for
mma.m16n8k16" (which thread holds what).
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.gpu.products import threads as gt
from worker.compiler.schedules.gpu.products.contraction import Contraction
from worker.compiler.schedules.gpu.products.parts import add_parts
from worker.compiler.schedules.gpu.products.plan import TilePlan, Unit
from worker.compiler.schedules.gpu.products.threads import INT, WARP, number
from worker.compiler.schedules.gpu.products.tiles import Copies, Tile, make_tile, wide

_GROUPED_TILES = 8
"""Tiles of rows whose blocks follow each other for one tile of columns: they share it in L2."""

_PAD = 8
"""Elements between rows of sums in shared memory, so that neighboring rows begin in different banks."""

_INSTRUCTIONS = {
    "float16": "m16n8k16.row.col.f32.f16.f16.f32",
    "bfloat16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "float32": "m16n8k8.row.col.f32.tf32.tf32.f32",
    "int8": "m16n8k32.row.col.s32.s8.s8.s32",
}

Element = Callable[[Any], Any]


class BlockedProduct:
    """The loops of a product by tiles."""

    def __init__(self, contraction: Contraction, plan: TilePlan, has_async_copies: bool) -> None:
        self.contraction, self.plan = contraction, plan
        self._is_async = has_async_copies
        dtype = contraction.left.dtype
        self._instruction = _INSTRUCTIONS.get(dtype) if plan.unit is Unit.TENSOR else None
        self._sum_dtype = "int32" if dtype == "int8" else "float32"
        only_along_depth = dtype == "int8"
        up = 1 if plan.unit is Unit.TENSOR and dtype == "float32" else 0

        def tile(factor: Any, outer: int, name: str, start: int) -> Tile:
            return make_tile(
                factor,
                outer,
                plan.depth,
                plan.stages,
                plan.threads,
                name,
                has_async_copies,
                only_along_depth=only_along_depth,
                start=start,
                swizzle_up=up,
            )

        self.left = tile(contraction.left, plan.rows, "left_tile", 0)
        self.right = tile(contraction.right, plan.columns, "right_tile", self.left.size)
        staged = plan.warps * 16 * (plan.warp_columns + _PAD) * 4 if self._instruction else 0
        self._shared = gt.shared(max(self.left.size + self.right.size, staged), dtype)
        self._buffers = (
            gt.view(self._shared, dtype, self.left.name),
            gt.view(self._shared, dtype, self.right.name),
        )
        self._sums = nest.registers((plan.warp_rows * plan.warp_columns // WARP,), self._sum_dtype, "sums")
        self._row_tiles = ceil(contraction.rows.size / plan.rows)
        self._column_tiles = ceil(contraction.columns.size / plan.columns)
        depth_tiles = ceil(contraction.depth.size / plan.depth)
        self._depth_tiles = ceil(depth_tiles / plan.splits)

    def statement(self) -> tirx.Stmt:
        """All kernels."""
        contraction, plan = self.contraction, self.plan
        tiles = self._row_tiles * self._column_tiles * contraction.batch.size
        if plan.splits == 1:
            return gt.bound(
                "blockIdx.x",
                tiles,
                lambda block: gt.bound(
                    "threadIdx.x", plan.threads, lambda thread: self._block(block, number(0), thread, None)
                ),
            )
        shape = (plan.splits, contraction.batch.size, contraction.rows.size, contraction.columns.size)
        parts = tirx.decl_buffer(shape, self._sum_dtype, "parts")
        first = gt.bound(
            "blockIdx.x",
            tiles,
            lambda block: gt.bound(
                "blockIdx.y",
                plan.splits,
                lambda part: gt.bound(
                    "threadIdx.x", plan.threads, lambda thread: self._block(block, part, thread, parts)
                ),
            ),
        )
        return nest.sequence(nest.declare(parts), first, add_parts(contraction, parts, plan.splits))

    def _block(self, block: Any, part: Any, thread: Any, parts: Any) -> tirx.Stmt:
        plan, contraction = self.plan, self.contraction
        row_tile, column_tile, batch = self._tile_of(block)
        row_start, column_start = row_tile * plan.rows, column_tile * plan.columns
        batch_places = contraction.batch.places(wide(batch))
        left = Copies(self.left, self._buffers[0], thread, batch_places, row_start)
        right = Copies(self.right, self._buffers[1], thread, batch_places, column_start)
        first = part * (self._depth_tiles * plan.depth)
        warp, lane = tirx.floordiv(thread, WARP), tirx.floormod(thread, WARP)
        across = plan.columns // plan.warp_columns
        warp_row = tirx.floordiv(warp, across) * plan.warp_rows
        warp_column = tirx.floormod(warp, across) * plan.warp_columns
        compute = self._by_tensor_core if self._instruction else self._by_multiply_adds
        finish = self._finish_fragments if self._instruction else self._finish_groups
        return nest.sequence(
            nest.declare(self._shared),
            *(gt.declare_view(buffer, self._shared) for buffer in self._buffers),
            nest.declare(self._sums),
            *left.allocations(),
            *right.allocations(),
            gt.unrolled(
                int(self._sums.shape[0]),
                lambda index: nest.store(self._sums, tirx.const(0, self._sum_dtype), index),
            ),
            self._pipeline(first, left, right, lambda slot: compute(slot, warp_row, warp_column, lane)),
            finish(parts, part, batch, row_start, column_start, warp, warp_row, warp_column, lane),
        )

    def _tile_of(self, block: Any) -> tuple[Any, Any, Any]:
        """The tile of rows, the tile of columns and the product of a block."""
        rows, columns = self._row_tiles, self._column_tiles
        tile = block if self.contraction.batch.size == 1 else tirx.floormod(block, rows * columns)
        batch = number(0) if self.contraction.batch.size == 1 else tirx.floordiv(block, rows * columns)
        if rows <= _GROUPED_TILES:
            return tirx.floormod(tile, rows), tirx.floordiv(tile, rows), batch
        group = tirx.floordiv(tile, _GROUPED_TILES * columns)
        inside = tirx.floormod(tile, _GROUPED_TILES * columns)
        if rows % _GROUPED_TILES == 0:
            height: Any = number(_GROUPED_TILES)
        else:
            height = tirx.min(number(_GROUPED_TILES), rows - group * _GROUPED_TILES)
        return (
            group * _GROUPED_TILES + tirx.floormod(inside, height),
            tirx.floordiv(inside, height),
            batch,
        )

    def _pipeline(self, first: Any, left: Copies, right: Copies, compute: Element) -> tirx.Stmt:
        plan, stages, tiles = self.plan, self.plan.stages, self._depth_tiles
        both = (left, right)
        has_async = any(copies.tile.is_async for copies in both)
        has_held = not all(copies.tile.is_async for copies in both)

        def depth_at(tile: Any) -> Any:
            return first + tile * plan.depth

        def start(tile: Any, slot: Any) -> list[tirx.Stmt]:
            return [copies.start(depth_at(tile), slot) for copies in both if copies.tile.is_async]

        def read(tile: Any) -> list[tirx.Stmt]:
            return [copies.read(depth_at(tile)) for copies in both if not copies.tile.is_async]

        def write(slot: Any) -> list[tirx.Stmt]:
            return [copies.write(slot) for copies in both if not copies.tile.is_async]

        def if_any(tile: Any, statements: list[tirx.Stmt]) -> list[tirx.Stmt]:
            return [gt.when(tile < tiles, nest.sequence(*statements))] if statements else []

        commit = [gt.commit_copies()] if has_async else []
        wait = [gt.wait_for_copies(stages - 2)] if has_async else []
        prologue: list[tirx.Stmt] = []
        for stage in range(stages - 1):
            if stage < tiles:
                prologue += [
                    *start(number(stage), number(stage)),
                    *read(number(stage)),
                    *write(number(stage)),
                ]
            prologue += commit

        def step(tile: Any) -> tirx.Stmt:
            slot = tirx.floormod(tile, stages)
            ahead = tile + (stages - 1)
            slot_ahead = tirx.floormod(ahead, stages)
            return nest.sequence(
                *wait,
                gt.barrier(),
                *if_any(ahead, [*start(ahead, slot_ahead), *read(ahead)]),
                *commit,
                compute(slot),
                *(if_any(ahead, write(slot_ahead)) if has_held else []),
            )

        return nest.sequence(*prologue, gt.serial(tiles, step))

    # Tensor cores.

    def _by_tensor_core(self, slot: Any, warp_row: Any, warp_column: Any, lane: Any) -> tirx.Stmt:
        plan = self.plan
        lanes = self.left.lanes
        row_fragments, column_fragments = plan.warp_rows // 16, plan.warp_columns // 8
        left = nest.registers((row_fragments * 4,), "uint32", "left_fragments")
        right = nest.registers((column_fragments * 2,), "uint32", "right_fragments")
        assert self._instruction is not None
        instruction = self._instruction

        def step(index: int) -> tirx.Stmt:
            loads = [
                self._load_left(left, fragment, slot, warp_row, index, lane)
                for fragment in range(row_fragments)
            ]
            loads += [
                self._load_right(right, pair, slot, warp_column, index, lane)
                for pair in range(column_fragments // 2)
            ]
            products = [
                gt.multiply(
                    instruction,
                    _elements(self._sums, (row * column_fragments + column) * 4, 4),
                    _elements(left, row * 4, 4),
                    _elements(right, column * 2, 2),
                )
                for row in range(row_fragments)
                for column in range(column_fragments)
            ]
            return nest.sequence(*loads, *products)

        steps = gt.repeated(plan.depth // (2 * lanes), step)
        return nest.sequence(nest.declare(left), nest.declare(right), steps)

    def _load_left(
        self, registers: Any, fragment: int, slot: Any, warp_row: Any, step: int, lane: Any
    ) -> tirx.Stmt:
        """Load 16 rows and two chunks of the depth."""
        tile, buffer = self.left, self._buffers[0]
        start = warp_row + fragment * 16
        into = _elements(registers, fragment * 4, 4)
        if tile.along_depth:
            row = start + tirx.floormod(lane, 16)
            chunk = step * 2 + tirx.floordiv(lane, 16)
            return gt.load_matrices(into, buffer[tile.place(slot, row, chunk)], transposed=False)
        if self._is_tf32:
            return nest.sequence(
                *(
                    self._load_single(
                        tile,
                        buffer,
                        into[register],
                        slot,
                        start + tirx.floordiv(lane, 4) + 8 * (register % 2),
                        step * 8 + tirx.floormod(lane, 4) + 4 * (register // 2),
                    )
                    for register in range(4)
                )
            )
        row = step * 16 + tirx.floordiv(lane, 16) * 8 + tirx.floormod(lane, 8)
        chunk = tirx.floordiv(start, 8) + tirx.floormod(tirx.floordiv(lane, 8), 2)
        return gt.load_matrices(into, buffer[tile.place(slot, row, chunk)], transposed=True)

    def _load_right(
        self, registers: Any, pair: int, slot: Any, warp_column: Any, step: int, lane: Any
    ) -> tirx.Stmt:
        """Load 16 columns and two chunks of the depth."""
        tile, buffer = self.right, self._buffers[1]
        start = warp_column + pair * 16
        into = _elements(registers, pair * 4, 4)
        if tile.along_depth:
            row = start + tirx.floordiv(lane, 16) * 8 + tirx.floormod(lane, 8)
            chunk = step * 2 + tirx.floormod(tirx.floordiv(lane, 8), 2)
            return gt.load_matrices(into, buffer[tile.place(slot, row, chunk)], transposed=False)
        if self._is_tf32:
            return nest.sequence(
                *(
                    self._load_single(
                        tile,
                        buffer,
                        into[register],
                        slot,
                        start + tirx.floordiv(lane, 4) + 8 * (register // 2),
                        step * 8 + tirx.floormod(lane, 4) + 4 * (register % 2),
                    )
                    for register in range(4)
                )
            )
        row = step * 16 + tirx.floormod(tirx.floordiv(lane, 8), 2) * 8 + tirx.floormod(lane, 8)
        chunk = tirx.floordiv(start, 8) + tirx.floordiv(lane, 16)
        return gt.load_matrices(into, buffer[tile.place(slot, row, chunk)], transposed=True)

    @property
    def _is_tf32(self) -> bool:
        return self.contraction.left.dtype == "float32"

    def _load_single(
        self, tile: Tile, buffer: Any, register: Any, slot: Any, outer: Any, depth: Any
    ) -> tirx.Stmt:
        """Load one element of a tile whose rows hold rows or columns."""
        chunk, inside = tirx.floordiv(outer, tile.lanes), tirx.floormod(outer, tile.lanes)
        value = buffer[tile.place(slot, depth, chunk) + inside]
        return nest.store(register.source, tirx.reinterpret("uint32", value), *register.indices)

    def _finish_fragments(
        self,
        parts: Any,
        part: Any,
        batch: Any,
        row_start: Any,
        column_start: Any,
        warp: Any,
        warp_row: Any,
        warp_column: Any,
        lane: Any,
    ) -> tirx.Stmt:
        """Store 16 rows at a time, through shared memory."""
        plan, contraction = self.plan, self.contraction
        vector = self._vector(parts)
        vector = min(vector, plan.warp_columns)
        columns = plan.warp_columns
        pitch = columns + _PAD
        staged = gt.view(self._shared, self._sum_dtype, "staged")
        base = warp * (16 * pitch)
        column_fragments = columns // 8
        vectors = columns // vector
        passes = ceil(16 * vectors / WARP)

        def rows(fragment: Any) -> tirx.Stmt:
            def put(index: Any) -> tirx.Stmt:
                # index counts fragments of 8 columns and halves of 8 rows
                column, half = tirx.floordiv(index, 2), tirx.floormod(index, 2)
                place = (
                    base
                    + (half * 8 + tirx.floordiv(lane, 4)) * pitch
                    + column * 8
                    + tirx.floormod(lane, 4) * 2
                )
                return nest.vectorized(
                    2,
                    lambda two: nest.store(
                        staged,
                        self._sums[(fragment * column_fragments + column) * 4 + half * 2 + two],
                        place + two,
                    ),
                    INT,
                )

            def take(index: Any) -> tirx.Stmt:
                piece = index * WARP + lane
                row, column = tirx.floordiv(piece, vectors), tirx.floormod(piece, vectors) * vector
                stored = self._store_vector(
                    parts,
                    part,
                    batch,
                    row_start + warp_row + fragment * 16 + row,
                    column_start + warp_column + column,
                    vector,
                    lambda along: staged[base + row * pitch + column + along],
                )
                if 16 * vectors % WARP == 0:
                    return stored
                return gt.when(piece < 16 * vectors, stored)

            return nest.sequence(
                gt.barrier(),
                gt.unrolled(column_fragments * 2, put),
                gt.barrier(),
                gt.unrolled(passes, take),
            )

        return nest.sequence(gt.declare_view(staged, self._shared), gt.unrolled(plan.warp_rows // 16, rows))

    def _vector(self, parts: Any) -> int:
        contraction = self.contraction
        if parts is None:
            return contraction.vector
        size = contraction.columns.size
        return min(size & -size, 4)

    def _store_vector(
        self, parts: Any, part: Any, batch: Any, row: Any, column: Any, vector: int, value: Element
    ) -> tirx.Stmt:
        """Store results next to each other, if they are inside."""
        contraction, plan = self.contraction, self.plan
        wide_row, wide_column = wide(row), wide(column)

        def one(along: Any) -> tirx.Stmt:
            if parts is not None:
                return nest.store(
                    parts, value(along), wide(part), wide(batch), wide_row, wide_column + wide(along)
                )
            places = {
                **contraction.batch.places(wide(batch)),
                **contraction.rows.places(wide_row),
                **contraction.columns.places_along(wide_column, wide(along)),
            }
            return contraction.result(value(along), places)

        stored = nest.vectorized(vector, one, INT)
        conditions = []
        if contraction.rows.size % plan.rows:
            conditions.append(row < contraction.rows.size)
        if contraction.columns.size % plan.columns:
            conditions.append(column < contraction.columns.size)
        return gt.when(gt.all_of(conditions), stored) if conditions else stored

    # Multiply-adds.

    @property
    def _lane_grid(self) -> tuple[int, int]:
        return 4, 8

    def _row_of(self, index: int, lane: Any) -> Any:
        """The row of the warp's tile that a thread's row is."""
        high, _ = self._lane_grid
        lane_row = tirx.floordiv(lane, self._lane_grid[1])
        if self.left.along_depth:
            return index * high + lane_row
        return (index // 4) * (high * 4) + lane_row * 4 + index % 4

    def _column_of(self, index: int, lane: Any) -> Any:
        """The column of the warp's tile that a thread's column is."""
        _, across = self._lane_grid
        return (index // 4) * (across * 4) + tirx.floormod(lane, across) * 4 + index % 4

    def _by_multiply_adds(self, slot: Any, warp_row: Any, warp_column: Any, lane: Any) -> tirx.Stmt:
        plan = self.plan
        high, across = self._lane_grid
        own_rows, own_columns = plan.warp_rows // high, plan.warp_columns // across
        left = nest.registers((4 * own_rows,), "float32", "left_values")
        right = nest.registers((4 * own_columns,), "float32", "right_values")
        lanes = self.left.lanes

        def fill(
            registers: Any, tile: Tile, buffer: Any, own: int, start: Any, place_of: Any, step: Any
        ) -> list[tirx.Stmt]:
            """Load four steps of the depth; ``registers[step * own + index]``."""
            statements: list[tirx.Stmt] = []
            if tile.along_depth:
                for index in range(own):
                    place = tile.place(slot, start + place_of(index, lane), step)
                    statements.append(
                        nest.vectorized(
                            4,
                            lambda along, index=index, place=place: nest.store(
                                registers, buffer[place + along], index * 4 + along
                            ),
                            INT,
                        )
                    )
                return statements
            for depth in range(4):
                for group in range(own // 4):
                    outer = start + place_of(group * 4, lane)
                    place = tile.place(slot, step * 4 + depth, tirx.floordiv(outer, lanes))
                    statements.append(
                        nest.vectorized(
                            4,
                            lambda along, depth=depth, group=group, place=place: nest.store(
                                registers, buffer[place + along], depth * own + group * 4 + along
                            ),
                            INT,
                        )
                    )
            return statements

        def value(registers: Any, tile: Tile, own: int, index: int, depth: int) -> Any:
            place = index * 4 + depth if tile.along_depth else depth * own + index
            return registers[number(place)]

        def step(index: Any) -> tirx.Stmt:
            statements = fill(left, self.left, self._buffers[0], own_rows, warp_row, self._row_of, index)
            statements += fill(
                right, self.right, self._buffers[1], own_columns, warp_column, self._column_of, index
            )
            for depth in range(4):
                for row in range(own_rows):
                    for column in range(own_columns):
                        place = number(row * own_columns + column)
                        product = value(left, self.left, own_rows, row, depth) * value(
                            right, self.right, own_columns, column, depth
                        )
                        statements.append(nest.store(self._sums, self._sums[place] + product, place))
            return nest.sequence(*statements)

        return nest.sequence(
            nest.declare(left),
            nest.declare(right),
            gt.serial(
                plan.depth // 8,
                lambda pair: gt.unrolled_by_compiler(2, lambda half: step(pair * 2 + half)),
            ),
        )

    def _finish_groups(
        self,
        parts: Any,
        part: Any,
        batch: Any,
        row_start: Any,
        column_start: Any,
        warp: Any,
        warp_row: Any,
        warp_column: Any,
        lane: Any,
    ) -> tirx.Stmt:
        plan = self.plan
        high, across = self._lane_grid
        own_rows, own_columns = plan.warp_rows // high, plan.warp_columns // across
        vector = min(self._vector(parts), 4)
        stores = []
        for row in range(own_rows):
            for first in range(0, own_columns, vector):
                stores.append(
                    self._store_vector(
                        parts,
                        part,
                        batch,
                        row_start + warp_row + self._row_of(row, lane),
                        column_start + warp_column + self._column_of(first, lane),
                        vector,
                        lambda along, row=row, first=first: self._sums[row * own_columns + first + along],
                    )
                )
        return nest.sequence(*stores)


def _elements(buffer: Any, start: int, count: int) -> list[Any]:
    return [buffer[number(start + index)] for index in range(count)]
