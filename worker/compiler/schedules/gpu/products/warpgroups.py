"""Tiles multiplied by the tensor cores of a warpgroup, four warps, on sm_90::

    for step of the depth, 32 bytes:                   # copied
        for 64 rows:
            sums[64 rows, columns] += left * right     # wgmma reads both tiles from shared memory

The instruction is asynchronous: a warpgroup starts the products of a tile, then waits for those of the tile
before, so that tensor cores never pause. So tiles are copied two ahead of the one whose memory they take.

A descriptor says where a factor begins in shared memory, and how it lies there. Rows of 128 bytes have
their eight chunks permuted (``c ^ (r & 7)``), as in ``tiles``; 8 of them are a group of 1024 bytes. If rows
hold the depth, a step is 32 bytes along the row, and a group has 8 rows of the product. Otherwise rows hold
64 rows (or columns) of the product, a step is two groups of 8 steps of the depth, and the next 64 rows are
a panel further.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions"; NVIDIA, CUTLASS,
``mma_sm90_desc.hpp`` (canonical layouts).
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from worker.compiler.schedules import nest
from worker.compiler.schedules.gpu.products import threads as gt
from worker.compiler.schedules.gpu.products.staging import Fragments, store_fragments
from worker.compiler.schedules.gpu.products.threads import WARP, number
from worker.compiler.schedules.gpu.products.tiles import Tile
from worker.compiler.schedules.gpu.products.units import Operands, Store, Warp

WARPS = 4
"""The warps of a warpgroup."""

_ROWS = 64
_GROUP_BYTES = 1024
_SWIZZLE_128 = 1 << 62
_ADDRESS_MASK = 0x3FFFF
_TYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32"}


class Warpgroups:
    """Multiplies tiles by the tensor cores of warpgroups."""

    lag = 1

    def __init__(self, operands: Operands) -> None:
        plan = operands.plan
        self.operands, self.plan = operands, plan
        self._high = plan.warp_rows // _ROWS
        size = plan.warp_rows * plan.warp_columns // (WARPS * WARP)
        self.sums = nest.registers((size,), "float32", "sums")

    def arrive(self) -> list[tirx.Stmt]:
        """Let tensor cores see what this thread copied."""
        return [gt.instruct("fence.proxy.async.shared::cta")]

    def multiply(self, slot: Any, warp: Warp) -> tirx.Stmt:
        """Start the products of the tiles of a stage, and wait for those before."""
        lanes = self.operands.left.lanes
        products = [
            self._add_product(slot, warp, step, high)
            for step in range(self.plan.depth // (2 * lanes))
            for high in range(self._high)
        ]
        return nest.sequence(
            gt.instruct("wgmma.fence.sync.aligned"),
            *products,
            gt.instruct("wgmma.commit_group.sync.aligned"),
            gt.instruct("wgmma.wait_group.sync.aligned", 1),
        )

    def _add_product(self, slot: Any, warp: Warp, step: int, high: int) -> tirx.Stmt:
        operands, plan = self.operands, self.plan
        dtype = operands.left.factor.dtype
        kind = _TYPES[dtype]
        depth = 8 if dtype == "float32" else 16
        count = plan.warp_columns // 2
        sums = [self.sums[number(high * count + index)] for index in range(count)]
        left = _descriptor(operands.left, operands.left_buffer, slot, warp.row + high * _ROWS, step)
        right = _descriptor(operands.right, operands.right_buffer, slot, warp.column, step)
        transposed = [int(not tile.along_depth) for tile in (operands.left, operands.right)]
        modes = transposed if dtype != "float32" else []
        return gt.instruct(
            f"wgmma.mma_async.sync.aligned.m64n{plan.warp_columns}k{depth}.f32.{kind}.{kind}",
            *sums,
            left,
            right,
            tirx.IntImm("bool", 1),
            1,
            1,
            *modes,
        )

    def finish(self, warp: Warp, vector: int, store: Store) -> tirx.Stmt:
        """Store the sums, 16 rows of each warp at a time, through shared memory."""
        plan = self.plan
        settled = [gt.settle(self.sums[number(index)]) for index in range(int(self.sums.shape[0]))]
        row = warp.row + tirx.floormod(warp.number, WARPS) * 16
        fragments = Fragments(self.sums, self._high, plan.warp_columns, lambda at: row + at * _ROWS)
        return nest.sequence(
            gt.instruct("wgmma.wait_group.sync.aligned", 0),
            *settled,
            store_fragments(fragments, self.operands.shared, warp, vector, store),
        )


def _descriptor(tile: Tile, buffer: Any, slot: Any, outer: Any, step: int) -> Any:
    """The descriptor of a factor from a row (or column) and a step on."""
    panel_bytes = tile.rows * 128
    if tile.along_depth:
        place = tile.panel_place(slot, step // 4, outer) + step % 4 * 2 * tile.lanes
        leading = 16
    else:
        place = tile.panel_place(slot, tirx.floordiv(outer, 8 * tile.lanes), step * 2 * tile.lanes)
        leading = panel_bytes
    address = T.cuda.cvta_generic_to_shared(tirx.address_of(buffer[place]))
    start = tirx.shift_right(tirx.bitwise_and(address, gt.unsigned(_ADDRESS_MASK)), gt.unsigned(4))
    fixed = _SWIZZLE_128 | (_GROUP_BYTES >> 4) << 32 | (leading >> 4) << 16
    return tirx.bitwise_or(tirx.Cast("uint64", start), gt.unsigned(fixed, "uint64"))
