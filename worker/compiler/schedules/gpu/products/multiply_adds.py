"""Tiles multiplied by multiply-adds of float32::

    for four steps of the depth:
        load four steps of the thread's rows and columns           # vectors from shared memory
        for step, row, column:                                     # copied
            sums[row, column] += left[row, step] * right[step, column]

A warp's threads form a grid of 4 by 8. A thread has groups of four neighboring columns, so it stores its
sums as vectors. Its rows are apart by 4 if the tile's rows hold the depth (each is a row of its own in
shared memory), and groups of four otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.gpu.products import threads as gt
from worker.compiler.schedules.gpu.products.threads import INT, WARP, number
from worker.compiler.schedules.gpu.products.tiles import Tile
from worker.compiler.schedules.gpu.products.units import Operands, Store, Warp

_HIGH, _ACROSS = 4, 8
"""The grid of a warp's threads."""

_STEPS = 4
"""The steps of the depth that a thread loads at once."""

_UNROLLED = 2
"""Loads whose code is repeated: they overlap. More need registers for a second block."""


class MultiplyAdds:
    """Multiplies tiles by multiply-adds."""

    lag = 0

    def __init__(self, operands: Operands) -> None:
        plan = operands.plan
        self.operands, self.plan = operands, plan
        self._rows, self._columns = plan.warp_rows // _HIGH, plan.warp_columns // _ACROSS
        self.sums = nest.registers((plan.warp_rows * plan.warp_columns // WARP,), "float32", "sums")

    def arrive(self) -> list[tirx.Stmt]:
        """Nothing to do."""
        return []

    def multiply(self, slot: Any, warp: Warp) -> tirx.Stmt:
        """Add the products of the tiles of a stage to the sums."""
        operands = self.operands
        left = nest.registers((_STEPS * self._rows,), "float32", "left_values")
        right = nest.registers((_STEPS * self._columns,), "float32", "right_values")

        def row_at(index: int) -> Any:
            return warp.row + self._row_of(index, warp.lane)

        def column_at(index: int) -> Any:
            return warp.column + self._column_of(index, warp.lane)

        def step(index: Any) -> tirx.Stmt:
            return nest.sequence(
                *_load(left, operands.left, operands.left_buffer, self._rows, slot, row_at, index),
                *_load(right, operands.right, operands.right_buffer, self._columns, slot, column_at, index),
                *self._add_products(left, right),
            )

        loads = self.plan.depth // _STEPS
        steps = gt.serial(
            loads // _UNROLLED,
            lambda outer: gt.unrolled_by_compiler(_UNROLLED, lambda inner: step(outer * _UNROLLED + inner)),
        )
        return nest.sequence(nest.declare(left), nest.declare(right), steps)

    def _add_products(self, left: Any, right: Any) -> list[tirx.Stmt]:
        operands, statements = self.operands, []
        for step in range(_STEPS):
            for row in range(self._rows):
                for column in range(self._columns):
                    place = number(row * self._columns + column)
                    one = left[_register(operands.left, self._rows, row, step)]
                    other = right[_register(operands.right, self._columns, column, step)]
                    statements.append(nest.store(self.sums, self.sums[place] + one * other, place))
        return statements

    def _row_of(self, index: int, lane: Any) -> Any:
        """The row of the warp's part that a thread's row is."""
        own = tirx.floordiv(lane, _ACROSS)
        if self.operands.left.along_depth:
            return index * _HIGH + own
        return (index // 4) * (_HIGH * 4) + own * 4 + index % 4

    def _column_of(self, index: int, lane: Any) -> Any:
        """The column of the warp's part that a thread's column is."""
        return (index // 4) * (_ACROSS * 4) + tirx.floormod(lane, _ACROSS) * 4 + index % 4

    def finish(self, warp: Warp, vector: int, store: Store) -> tirx.Stmt:
        """Store the sums from registers."""
        vector = min(vector, 4)

        def value(row: int, first: int, along: Any) -> Any:
            return self.sums[row * self._columns + first + along]

        return nest.sequence(
            *(
                store(
                    warp.row + self._row_of(row, warp.lane),
                    warp.column + self._column_of(first, warp.lane),
                    vector,
                    partial(value, row, first),
                )
                for row in range(self._rows)
                for first in range(0, self._columns, vector)
            )
        )


def _register(tile: Tile, own: int, index: int, step: int) -> Any:
    """Where ``_load`` put a step of a row or a column."""
    return number(index * _STEPS + step if tile.along_depth else step * own + index)


def _load(
    registers: Any, tile: Tile, buffer: Any, own: int, slot: Any, place_of: Callable[[int], Any], index: Any
) -> list[tirx.Stmt]:
    """Load four steps of a thread's rows or columns, as vectors."""

    def vector(place: Any, first: int) -> tirx.Stmt:
        return nest.vectorized(
            4, lambda along: nest.store(registers, buffer[place + along], number(first) + along), INT
        )

    if tile.along_depth:
        return [vector(tile.place(slot, place_of(at), index), _STEPS * at) for at in range(own)]
    return [
        vector(
            tile.place(slot, index * _STEPS + step, tirx.floordiv(place_of(first), tile.lanes)),
            step * own + first,
        )
        for step in range(_STEPS)
        for first in range(0, own, 4)
    ]
