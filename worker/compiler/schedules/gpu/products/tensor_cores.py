"""Tiles multiplied by tensor cores::

    for step of the depth, two chunks of 16 bytes:     # copied
        load 16 rows by two chunks for each fragment of rows       # ldmatrix
        load 16 columns by two chunks for each pair of columns     # ldmatrix
        for 16 rows, for 8 columns:
            sums[4] += rows * columns                              # mma

``mma`` takes the left factor by rows and the right one by columns, both along the depth. ``ldmatrix`` gives
each lane 32 bits of a row of 16 bytes, so two chunks of the depth are 16 steps of half precision and 8 of
tf32. Where a tile's rows hold columns instead, ``ldmatrix`` transposes elements of 16 bits; those of 32
bits are loaded one by one.

Source: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.gpu.chips import Gpu
from worker.compiler.schedules.gpu.products import threads as gt
from worker.compiler.schedules.gpu.products.staging import Fragments, store_fragments
from worker.compiler.schedules.gpu.products.threads import WARP, number
from worker.compiler.schedules.gpu.products.tiles import Tile
from worker.compiler.schedules.gpu.products.units import Operands, Store, Warp

_INSTRUCTIONS = {
    "float16": "m16n8k16.row.col.f32.f16.f16.f32",
    "bfloat16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "float32": "m16n8k8.row.col.f32.tf32.tf32.f32",
}
_HALF_INSTRUCTIONS = {"float16": "m16n8k8.row.col.f32.f16.f16.f32"}
_FULL_DEPTH = 80
"""The first capability whose tensor cores multiply 16 steps of half precision at once."""

_ROWS, _COLUMNS = 16, 8
_SINGLE = 32
"""Bits of an element of tf32."""


@dataclass(frozen=True)
class Multiply:
    """The instruction that adds 16 rows by 16 steps (8 of tf32) times 8 columns to sums."""

    name: str
    is_full: bool

    def __call__(self, sums: list[Any], left: list[Any], right: list[Any]) -> tirx.Stmt:
        """Add the product of two fragments."""
        return (gt.multiply if self.is_full else gt.multiply_halves)(self.name, sums, left, right)


def multiply_of(dtype: str, gpu: Gpu) -> Multiply:
    """The instruction of a GPU for factors of a dtype."""
    is_full = gpu.capability >= _FULL_DEPTH
    return Multiply((_INSTRUCTIONS if is_full else _HALF_INSTRUCTIONS)[dtype], is_full)


def load_left(
    tile: Tile, buffer: Any, into: list[Any], slot: Any, start: Any, step: int, lane: Any
) -> tirx.Stmt:
    """Load 16 rows and two chunks of the depth: 8 rows and one chunk per register, rows first."""
    low, high = tirx.floormod(lane, 16), tirx.floordiv(lane, 16)
    if tile.along_depth:
        return _load(tile, buffer, into, slot, start + low, step * 2 + high)
    if tile.bits == _SINGLE:
        return nest.sequence(
            *(
                _load_one(tile, buffer, into[at], slot, start, 8 * (at % 2), step * 8 + 4 * (at // 2), lane)
                for at in range(4)
            )
        )
    row = step * 16 + high * 8 + tirx.floormod(lane, 8)
    chunk = tirx.floordiv(start, 8) + tirx.floormod(tirx.floordiv(lane, 8), 2)
    return _load(tile, buffer, into, slot, row, chunk)


def load_right(
    tile: Tile, buffer: Any, into: list[Any], slot: Any, start: Any, step: int, lane: Any
) -> tirx.Stmt:
    """Load 16 columns and two chunks of the depth: 8 columns and one chunk per register, chunks first."""
    inside, half = tirx.floormod(lane, 8), tirx.floormod(tirx.floordiv(lane, 8), 2)
    high = tirx.floordiv(lane, 16)
    if tile.along_depth:
        return _load(tile, buffer, into, slot, start + high * 8 + inside, step * 2 + half)
    if tile.bits == _SINGLE:
        return nest.sequence(
            *(
                _load_one(tile, buffer, into[at], slot, start, 8 * (at // 2), step * 8 + 4 * (at % 2), lane)
                for at in range(4)
            )
        )
    row = step * 16 + half * 8 + inside
    return _load(tile, buffer, into, slot, row, tirx.floordiv(start, 8) + high)


def _load(tile: Tile, buffer: Any, into: list[Any], slot: Any, row: Any, chunk: Any) -> tirx.Stmt:
    return gt.load_matrices(into, buffer[tile.place(slot, row, chunk)], transposed=not tile.along_depth)


def _load_one(
    tile: Tile, buffer: Any, register: Any, slot: Any, start: Any, outer: int, depth: int, lane: Any
) -> tirx.Stmt:
    """Load an element of 32 bits of a tile whose rows hold rows or columns of the product."""
    place = start + outer + tirx.floordiv(lane, 4)
    row = depth + tirx.floormod(lane, 4)
    chunk, inside = tirx.floordiv(place, tile.lanes), tirx.floormod(place, tile.lanes)
    value = buffer[tile.place(slot, row, chunk) + inside]
    return nest.store(register.source, tirx.reinterpret("uint32", value), *register.indices)


class TensorCores:
    """Multiplies tiles by tensor cores."""

    lag = 0

    def __init__(self, operands: Operands, gpu: Gpu) -> None:
        plan = operands.plan
        self.operands, self.plan = operands, plan
        dtype = operands.left.factor.dtype
        self._multiply = multiply_of(dtype, gpu)
        self._row_fragments = plan.warp_rows // _ROWS
        self._column_fragments = plan.warp_columns // _COLUMNS
        self.sums = nest.registers((plan.warp_rows * plan.warp_columns // WARP,), "float32", "sums")

    def arrive(self) -> list[tirx.Stmt]:
        """Nothing to do."""
        return []

    def multiply(self, slot: Any, warp: Warp) -> tirx.Stmt:
        """Add the products of the tiles of a stage to the sums."""
        operands = self.operands
        left = nest.registers((self._row_fragments * 4,), "uint32", "left_fragments")
        right = nest.registers((self._column_fragments * 2,), "uint32", "right_fragments")

        def step(index: int) -> tirx.Stmt:
            loads = [
                load_left(
                    operands.left,
                    operands.left_buffer,
                    elements(left, at * 4, 4),
                    slot,
                    warp.row + at * _ROWS,
                    index,
                    warp.lane,
                )
                for at in range(self._row_fragments)
            ]
            loads += [
                load_right(
                    operands.right,
                    operands.right_buffer,
                    elements(right, pair * 4, 4),
                    slot,
                    warp.column + pair * 2 * _COLUMNS,
                    index,
                    warp.lane,
                )
                for pair in range(self._column_fragments // 2)
            ]
            products = [
                self._add_product(row, column, left, right)
                for row in range(self._row_fragments)
                for column in range(self._column_fragments)
            ]
            return nest.sequence(*loads, *products)

        steps = gt.repeated(self.plan.depth // (2 * self.operands.left.lanes), step)
        return nest.sequence(nest.declare(left), nest.declare(right), steps)

    def _add_product(self, row: int, column: int, left: Any, right: Any) -> tirx.Stmt:
        return self._multiply(
            elements(self.sums, (row * self._column_fragments + column) * 4, 4),
            elements(left, row * 4, 4),
            elements(right, column * 2, 2),
        )

    def finish(self, warp: Warp, vector: int, store: Store) -> tirx.Stmt:
        """Store the sums, 16 rows at a time, through shared memory."""
        fragments = Fragments(
            self.sums, self._row_fragments, self.plan.warp_columns, lambda at: warp.row + at * _ROWS
        )
        return store_fragments(fragments, self.operands.shared, warp, vector, store)


def elements(buffer: Any, start: int, count: int) -> list[Any]:
    """Some registers of a buffer."""
    return [buffer[number(start + index)] for index in range(count)]
