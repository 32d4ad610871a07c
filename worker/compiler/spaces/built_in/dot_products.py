"""Search spaces for integer matrix products by the processor's dot products of bytes with 32-bit sums.

| space | instruction | of |
|---|---|---|
| `dot-vnni` | `vpdpbusd` | AVX-512 VNNI: 16 sums of 4 products, unsigned by signed bytes |
| `dot-sdot` | `sdot` | Arm dot product: 4 sums of 4 products, signed bytes |
| `dot-avx2` | `vpmaddwd` | AVX2: 8 sums of 2 products, signed bytes widened to 16 bits: exact |

The function packs the right matrix to ``[columns / lanes, depth / group, lanes, group]``, so that each
instruction reads contiguous memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import s_tir, tirx
from tvm.script import tirx as T

from worker.compiler.schedules.inline import inline_blocks
from worker.compiler.spaces.matmul_block import find_product, finish_at, require_multiples
from worker.compiler.spaces.space import Intrinsic, Space

_MOST_ROWS = 8


def describe(lanes: int, group: int, dtype: str) -> tirx.PrimFunc:
    """``lanes`` sums of ``group`` products each, of ``dtype`` by int8."""

    @T.prim_func(s_tir=True)
    def update(a: T.handle, b: T.handle, c: T.handle) -> None:
        left = T.match_buffer(a, (group,), dtype, offset_factor=1)
        right = T.match_buffer(b, (lanes, group), "int8", offset_factor=1)
        sums = T.match_buffer(c, (lanes,), "int32", offset_factor=1)
        with T.sblock("root"):
            T.reads(sums[0:lanes], left[0:group], right[0:lanes, 0:group])
            T.writes(sums[0:lanes])
            for i, k in T.grid(lanes, group):
                with T.sblock("update"):
                    v_i, v_k = T.axis.remap("SR", [i, k])
                    sums[v_i] = sums[v_i] + T.Cast("int32", left[v_k]) * T.Cast("int32", right[v_i, v_k])

    return update


@T.prim_func(s_tir=True)
def update_by_vpdpbusd(a: T.handle, b: T.handle, c: T.handle) -> None:
    """``vpdpbusd`` of AVX-512 VNNI on bytes, as LLVM 22 defines it; TVM's own intrinsic passes words."""
    left = T.match_buffer(a, (4,), "uint8", offset_factor=1)
    right = T.match_buffer(b, (16, 4), "int8", offset_factor=1)
    sums = T.match_buffer(c, (16,), "int32", offset_factor=1)
    with T.sblock("root"):
        T.reads(sums[0:16], left[0:4], right[0:16, 0:4])
        T.writes(sums[0:16])
        group = T.reinterpret(left.vload([0], "uint8x4"), dtype="int32")
        sums[T.ramp(T.int32(0), 1, 16)] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.x86.avx512.vpdpbusd.512"),
            sums.vload([0], "int32x16"),
            T.reinterpret(T.broadcast(group, 16), dtype="uint8x64"),
            right.vload([0, 0], "int8x64"),
            dtype="int32x16",
        )


@T.prim_func(s_tir=True)
def update_by_sdot(a: T.handle, b: T.handle, c: T.handle) -> None:
    """``sdot`` of the Arm dot product extension."""
    left = T.match_buffer(a, (4,), "int8", offset_factor=1)
    right = T.match_buffer(b, (4, 4), "int8", offset_factor=1)
    sums = T.match_buffer(c, (4,), "int32", offset_factor=1)
    with T.sblock("root"):
        T.reads(sums[0:4], left[0:4], right[0:4, 0:4])
        T.writes(sums[0:4])
        sums[T.ramp(T.int32(0), 1, 4)] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.aarch64.neon.sdot.v4i32.v16i8"),
            sums.vload([0], "int32x4"),
            T.reinterpret(
                T.broadcast(T.reinterpret(left.vload([0], "int8x4"), dtype="int32"), 4), dtype="int8x16"
            ),
            right.vload([0, 0], "int8x16"),
            dtype="int32x4",
        )


@T.prim_func(s_tir=True)
def update_by_pmaddwd(a: T.handle, b: T.handle, c: T.handle) -> None:
    """``vpmaddwd`` of widened bytes, which cannot saturate."""
    left = T.match_buffer(a, (2,), "int8", offset_factor=1)
    right = T.match_buffer(b, (8, 2), "int8", offset_factor=1)
    sums = T.match_buffer(c, (8,), "int32", offset_factor=1)
    with T.sblock("root"):
        T.reads(sums[0:8], left[0:2], right[0:8, 0:2])
        T.writes(sums[0:8])
        pair = T.reinterpret(T.Cast("int16x2", left.vload([0], "int8x2")), dtype="int32")
        sums[T.ramp(T.int32(0), 1, 8)] = sums.vload([0], "int32x8") + T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.x86.avx2.pmadd.wd"),
            T.reinterpret(T.broadcast(pair, 8), dtype="int16x16"),
            T.Cast("int16x16", right.vload([0, 0], "int8x16")),
            dtype="int32x8",
        )


@dataclass(frozen=True)
class Dot:
    """An intrinsic that updates ``lanes`` sums, each by ``group`` products."""

    intrinsic: str
    lanes: int
    group: int


def schedule_dots(schedule: s_tir.Schedule, dot: Dot) -> s_tir.Schedule:
    """Pack the right matrix and compute every dot product by the intrinsic; sample the tile of rows."""
    schedule = inline_blocks(schedule, is_traced=True)
    found = find_product(schedule)
    require_multiples(found, 1, dot.lanes, dot.group)
    product = found.block
    packed = schedule.reindex_cache_read(product, 1, "global", _packed_place(dot))
    sums = schedule.cache_write(product, 0, "global")
    rows, columns, depth = schedule.get_loops(product)
    row_tiles, row = schedule.split(
        rows, schedule.sample_perfect_tile(rows, n=2, max_innermost_factor=_MOST_ROWS)
    )
    column_tiles, lane = schedule.split(columns, [None, dot.lanes])
    steps, member = schedule.split(depth, [None, dot.group])
    schedule.reorder(row_tiles, column_tiles, steps, row, lane, member)
    schedule.reverse_compute_at(sums, column_tiles)
    finish_at(schedule, sums, column_tiles)
    schedule.parallel(schedule.fuse(row_tiles, column_tiles))
    schedule.parallel(schedule.get_loops(packed)[0])
    schedule.decompose_reduction(product, steps)
    schedule.tensorize(schedule.blockize(lane), dot.intrinsic)
    return schedule


def _packed_place(dot: Dot) -> Callable[[Any, Any, Any], tuple[Any, ...]]:
    def place(_row: Any, column: Any, depth: Any) -> tuple[Any, ...]:
        return column // dot.lanes, depth // dot.group, column % dot.lanes, depth % dot.group

    return place


SPACES = (
    Intrinsic("dot-16x4-vnni", describe(16, 4, "uint8"), update_by_vpdpbusd),
    Intrinsic("dot-4x4-sdot", describe(4, 4, "int8"), update_by_sdot),
    Intrinsic("dot-8x2-pmaddwd", describe(8, 2, "int8"), update_by_pmaddwd),
    Space(
        "dot-vnni",
        partial(schedule_dots, dot=Dot("dot-16x4-vnni", lanes=16, group=4)),
        "uint8 by int8 to int32, for AVX-512 VNNI",
    ),
    Space(
        "dot-sdot",
        partial(schedule_dots, dot=Dot("dot-4x4-sdot", lanes=4, group=4)),
        "int8 by int8 to int32, for Arm's dot product",
    ),
    Space(
        "dot-avx2",
        partial(schedule_dots, dot=Dot("dot-8x2-pmaddwd", lanes=8, group=2)),
        "int8 by int8 to int32, for AVX2",
    ),
)
