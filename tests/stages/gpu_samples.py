"""Functions and schedules for the tests of kernels for GPUs."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, te, tirx
from tvm.s_tir.tensor_intrin import cuda as intrinsics

TILE, WARP = 16, 32


def matmul(
    rows: int,
    columns: int,
    depth: int,
    dtype: str = "float32",
    sums: str = "float32",
    by_columns: bool = False,
) -> tirx.PrimFunc:
    """C = A * B, or A times B transposed."""
    a = te.placeholder((rows, depth), dtype, name="a")
    b = te.placeholder((columns, depth) if by_columns else (depth, columns), dtype, name="b")
    k = te.reduce_axis((0, depth), name="k")

    def term(i: Any, j: Any) -> Any:
        return a[i, k].astype(sums) * (b[j, k] if by_columns else b[k, j]).astype(sums)

    c = te.compute((rows, columns), lambda i, j: te.sum(term(i, j), axis=k), name="c")
    return te.create_prim_func([a, b, c])


def schedule_mma(function: tirx.PrimFunc, dtype: str, sums: str, by_columns: bool) -> tirx.PrimFunc:
    """A matmul by ``ldmatrix`` and ``mma``: a warp per 16x16 tile of C, its operands in shared memory."""
    depth = 32 if dtype == "int8" else 16
    group = intrinsics.get_mma_intrin_group("shared", "global", dtype, sums, False, by_columns, False)
    schedule = s_tir.Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    block = schedule.get_sblock("c")
    i, j, k = schedule.get_loops(block)
    i, tile_i = schedule.split(i, [None, TILE])
    j, tile_j = schedule.split(j, [None, TILE])
    k, tile_k = schedule.split(k, [None, depth])
    schedule.reorder(i, j, k, tile_i, tile_j, tile_k)
    schedule.bind(i, "blockIdx.y")
    schedule.bind(j, "blockIdx.x")
    operands = []
    for index in (0, 1):
        shared = schedule.cache_read(block, index, "shared")
        operands.append(schedule.cache_read(block, index, "warp"))
        schedule.compute_at(operands[-1], k)
        schedule.compute_at(shared, k)
        fused = schedule.fuse(*schedule.get_loops(shared)[-2:])
        _, lane, vector = schedule.split(fused, [None, WARP, 4])
        schedule.bind(lane, "threadIdx.x")
        schedule.vectorize(vector)
    result = schedule.cache_write(block, 0, "warp")
    schedule.reverse_compute_at(result, j)
    a_map, b_map = _operand_maps(depth, by_columns)
    schedule.transform_layout(operands[0], ("write", 0), _tiled(a_map, TILE, depth))
    b_tile = (TILE, depth) if by_columns else (depth, TILE)
    schedule.transform_layout(operands[1], ("write", 0), _tiled(b_map, *b_tile))
    schedule.transform_layout(
        result, ("read", 0), _tiled(intrinsics.shared_16x16_to_ldmatrix_32x8_layout, TILE, TILE)
    )
    start = schedule.decompose_reduction(block, k)
    schedule.tensorize(schedule.get_loops(start)[-2], group["init"])
    for operand, name in zip(operands, ("load_a", "load_b"), strict=True):
        schedule.tensorize(schedule.get_loops(operand)[-2], group[name])
    schedule.tensorize(tile_i, group["compute"])
    schedule.tensorize(schedule.get_loops(result)[-2], group["store"])
    return schedule.mod["main"]


def _operand_maps(depth: int, by_columns: bool) -> tuple[Any, Any]:
    if depth == 16:
        return (intrinsics.shared_16x16_to_ldmatrix_32x8_layout,) * 2
    narrow = intrinsics.shared_16x32_to_ldmatrix_32x16_layout
    return narrow, narrow if by_columns else intrinsics.shared_32x16_to_ldmatrix_32x16_layout


def _tiled(layout: Any, rows: int, columns: int) -> Any:
    def place(i: Any, j: Any) -> Any:
        return i // rows, j // columns, *layout(i % rows, j % columns)

    return place
