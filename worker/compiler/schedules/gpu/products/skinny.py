"""Products of few rows: every thread streams a part of the right factor::

    for columns, in blocks of the grid:                    # blockIdx.x; blockIdx.y divides the depth
        for column lane, depth lane, in threads:
            sums[rows, own columns] = 0
            for steps of the depth, every depth lane others:
                load ``steps`` vectors of the right factor # all are under way before the first is used
                sums += left elements * right elements
            add the sums of all depth lanes                # shuffles in a warp, then shared memory
            epilogue

Where the right factor's neighbors in memory are columns, a thread owns a vector of columns, and neighboring
threads own neighboring vectors. Where they are steps of the depth, a warp owns its columns, and its threads
read neighboring vectors of the depth.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.gpu.products import threads as gt
from worker.compiler.schedules.gpu.products.contraction import Contraction, Factor, Group
from worker.compiler.schedules.gpu.products.parts import divided, store_part
from worker.compiler.schedules.gpu.products.plan import SkinnyPlan
from worker.compiler.schedules.gpu.products.threads import INT, WARP, number
from worker.compiler.schedules.gpu.products.tiles import wide

_ALL_LANES = 0xFFFFFFFF


class SkinnyProduct:
    """The loops of a product of few rows."""

    def __init__(self, contraction: Contraction, plan: SkinnyPlan) -> None:
        self.contraction, self.plan = contraction, plan
        self._streams_depth, self._width = stream_of(contraction)
        self._rows = contraction.rows.size
        self._dtype = "float32"
        per_step = self._width if self._streams_depth else 1
        self._depth_step = plan.depth_lanes * per_step
        self._part = ceil(ceil(contraction.depth.size / self._depth_step) / plan.splits)
        """The steps of the depth of a part."""

    def statement(self) -> tirx.Stmt:
        """All kernels."""
        contraction, plan = self.contraction, self.plan
        blocks = ceil(contraction.columns.size / plan.columns) * contraction.batch.size

        def block(index: Any, part: Any, parts: Any) -> tirx.Stmt:
            return gt.bound(
                "threadIdx.x", plan.threads, lambda thread: self._block(index, part, thread, parts)
            )

        return divided(contraction, plan.splits, blocks, block)

    def _block(self, block: Any, part: Any, thread: Any, parts: Any) -> tirx.Stmt:
        contraction, plan = self.contraction, self.plan
        rows, own = self._rows, plan.own_columns
        column_blocks = ceil(contraction.columns.size / plan.columns)
        if contraction.batch.size == 1:
            batch, column_block = number(0), block
        else:
            batch, column_block = tirx.floordiv(block, column_blocks), tirx.floormod(block, column_blocks)
        batch_places = contraction.batch.places(wide(batch))
        column_lane, depth_lane = self._lanes(thread)
        first_column = column_block * plan.columns + column_lane * own
        sums = nest.registers((rows * own,), self._dtype, "sums")
        steps, width = plan.steps, self._width
        per_load = own * width if self._streams_depth else width
        held = nest.registers((steps * per_load,), contraction.right.dtype, "right_values")
        per_row = width if self._streams_depth else 1
        left = nest.registers((rows * per_row,), contraction.left.dtype, "left_values")
        inside_part = min(steps, self._part)

        def depth_at(step: Any) -> Any:
            return (part * self._part + step) * self._depth_step + depth_lane * per_row

        def body(outer: Any) -> tirx.Stmt:
            loads = [
                self._load_right(
                    held,
                    index,
                    first_column,
                    depth_at(outer * steps + index),
                    outer * steps + index,
                    batch_places,
                )
                for index in range(inside_part)
            ]
            uses = [
                nest.sequence(
                    self._load_left(left, depth_at(outer * steps + index), batch_places),
                    self._multiply(sums, left, held, index),
                )
                for index in range(inside_part)
            ]
            return nest.sequence(*loads, *uses)

        return nest.sequence(
            nest.declare(sums),
            nest.declare(held),
            nest.declare(left),
            gt.cleared(sums),
            gt.serial(ceil(self._part / steps), body),
            self._finish(sums, parts, part, batch, column_block, thread, column_lane, depth_lane),
        )

    @property
    def _fills_depth(self) -> bool:
        """Whether no thread goes beyond the depth."""
        steps = self._part * self.plan.splits
        return self._part % self.plan.steps == 0 and steps * self._depth_step == self.contraction.depth.size

    def _lanes(self, thread: Any) -> tuple[Any, Any]:
        plan = self.plan
        if self._streams_depth:
            return tirx.floordiv(thread, plan.depth_lanes), tirx.floormod(thread, plan.depth_lanes)
        return tirx.floormod(thread, plan.column_lanes), tirx.floordiv(thread, plan.column_lanes)

    def _load_right(
        self, held: Any, index: int, first_column: Any, depth: Any, step: Any, batch: Any
    ) -> tirx.Stmt:
        contraction, width = self.contraction, self._width
        factor, own = contraction.right, self.plan.own_columns
        inside = [] if self._fills_depth else [depth < contraction.depth.size]
        if self._part % self.plan.steps:
            inside.append(step < self._part)
        statements = []
        for load in range(own if self._streams_depth else 1):
            column = first_column + load
            base = (index * own + load) * width if self._streams_depth else index * width
            conditions = list(inside)
            if contraction.columns.size % self.plan.columns:
                conditions.append(column < contraction.columns.size)
            along = contraction.depth if self._streams_depth else contraction.columns
            statements.append(_load(factor, along, held, base, width, conditions, column, depth, batch))
        return nest.sequence(*statements)

    def _load_left(self, left: Any, depth: Any, batch: Any) -> tirx.Stmt:
        contraction = self.contraction
        factor = contraction.left
        width = self._width if self._streams_depth else 1
        vector = min(width, factor.width_along(contraction.depth, in_inner=True))
        statements = []
        for row in range(self._rows):
            for first in range(0, width, vector):
                conditions = [] if self._fills_depth else [depth + first < contraction.depth.size]
                statements.append(
                    _load(
                        factor,
                        contraction.depth,
                        left,
                        row * width + first,
                        vector,
                        conditions,
                        number(row),
                        depth + first,
                        batch,
                    )
                )
        return nest.sequence(*statements)

    def _multiply(self, sums: Any, left: Any, held: Any, index: int) -> tirx.Stmt:
        own, width = self.plan.own_columns, self._width
        statements = []
        for row in range(self._rows):
            for column in range(own):
                place = number(row * own + column)
                total = sums[place]
                for depth in range(width if self._streams_depth else 1):
                    if self._streams_depth:
                        right = held[number((index * own + column) * width + depth)]
                        factor = left[number(row * width + depth)]
                    else:
                        right = held[number(index * width + column)]
                        factor = left[number(row)]
                    total = total + _as(factor, self._dtype) * _as(right, self._dtype)
                statements.append(nest.store(sums, total, place))
        return nest.sequence(*statements)

    def _finish(
        self,
        sums: Any,
        parts: Any,
        part: Any,
        batch: Any,
        column_block: Any,
        thread: Any,
        column_lane: Any,
        depth_lane: Any,
    ) -> tirx.Stmt:
        """Add the sums of the depth lanes, and store results."""
        plan, contraction, rows = self.plan, self.contraction, self._rows
        own, columns = plan.own_columns, plan.columns
        statements: list[tirx.Stmt] = []
        groups, group, is_first = plan.depth_lanes, depth_lane, None
        if self._streams_depth:
            statements.append(self._add_in_warp(sums))
            groups = plan.depth_lanes // WARP
            group = tirx.floordiv(depth_lane, WARP)
            is_first = tirx.EQ(tirx.floormod(depth_lane, WARP), number(0))
        shared = gt.shared(groups * rows * columns * 4, self._dtype)
        view = gt.view(shared, self._dtype, "group_sums")

        def put(index: Any) -> tirx.Stmt:
            row, column = tirx.floordiv(index, own), tirx.floormod(index, own)
            place = (group * rows + row) * columns + column_lane * own + column
            return nest.store(view, sums[index], place)

        stored = gt.unrolled(rows * own, put)
        statements += [
            gt.when(is_first, stored) if is_first is not None else stored,
            gt.barrier(),
        ]
        results = rows * columns
        total = nest.registers((1,), self._dtype, "total")

        def take(index: Any) -> tirx.Stmt:
            piece = index * plan.threads + thread
            row, column = tirx.floordiv(piece, columns), tirx.floormod(piece, columns)
            add = gt.unrolled(
                groups,
                lambda other: nest.store(
                    total, total[number(0)] + view[(other * rows + row) * columns + column], number(0)
                ),
            )
            outside = column_block * columns + column
            finish = nest.sequence(
                nest.store(total, tirx.const(0, self._dtype), number(0)),
                add,
                self._store(total[number(0)], parts, part, batch, row, outside),
            )
            conditions = []
            if results % plan.threads:
                conditions.append(piece < results)
            if contraction.columns.size % columns:
                conditions.append(outside < contraction.columns.size)
            return gt.when_all(conditions, finish)

        return nest.sequence(
            nest.declare(shared),
            gt.declare_view(view, shared),
            nest.declare(total),
            *statements,
            gt.unrolled(ceil(results / plan.threads), take),
        )

    def _store(self, value: Any, parts: Any, part: Any, batch: Any, row: Any, column: Any) -> tirx.Stmt:
        contraction = self.contraction
        if parts is not None:
            return store_part(parts, value, part, batch, row, column)
        places = {
            **contraction.batch.places(wide(batch)),
            **contraction.rows.places(wide(row)),
            **contraction.columns.places(wide(column)),
        }
        return contraction.result(value, places)

    def _add_in_warp(self, sums: Any) -> tirx.Stmt:
        """Add each sum over the lanes of a warp; the first lane has the result."""

        def one(index: Any) -> tirx.Stmt:
            statements = []
            for distance in (16, 8, 4, 2, 1):
                other = tirx.call_intrin(
                    self._dtype,
                    "tirx.tvm_warp_shuffle_down",
                    tirx.IntImm("uint32", _ALL_LANES),
                    sums[index],
                    number(distance),
                    number(WARP),
                    number(WARP),
                )
                statements.append(nest.store(sums, sums[index] + other, index))
            return nest.sequence(*statements)

        return gt.unrolled(int(sums.shape[0]), one)


def stream_of(contraction: Contraction) -> tuple[bool, int]:
    """Whether threads stream the right factor along the depth, and how many elements they load at once."""
    right, depth, columns = contraction.right, contraction.depth, contraction.columns
    along_depth = right.width_along(depth, in_inner=True)
    along_columns = right.width_along(columns, in_inner=True)
    if right.is_along_depth:
        return True, along_depth
    return False, along_columns


def _load(
    factor: Factor,
    along: Group,
    registers: Any,
    base: int,
    width: int,
    conditions: list[Any],
    outer: Any,
    depth: Any,
    batch: Any,
) -> tirx.Stmt:
    """Load neighbors, or zeros outside."""

    def value(lane: Any) -> tirx.Stmt:
        outer_places = (
            factor.outer.places_along(wide(outer), wide(lane))
            if along is factor.outer
            else factor.outer.places(wide(outer))
        )
        depth_places = (
            factor.depth.places_along(wide(depth), wide(lane))
            if along is factor.depth
            else factor.depth.places(wide(depth))
        )
        places = {**batch, **outer_places, **depth_places}
        return nest.store(registers, nest.substitute(factor.value, places), base + lane)

    def zero(lane: Any) -> tirx.Stmt:
        return nest.store(registers, tirx.const(0, factor.dtype), base + lane)

    loaded = nest.vectorized(width, value, INT)
    if not conditions:
        return loaded
    return nest.either(gt.all_of(conditions), loaded, nest.vectorized(width, zero, INT))


def _as(value: Any, dtype: str) -> Any:
    return value if nest.dtype_of(value) == dtype else tirx.Cast(dtype, value)
