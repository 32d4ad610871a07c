"""Search spaces that tensorize a matrix product by a 16 by 16 by 16 micro-kernel, in three implementations.

::

    for each 16 by 16 tile, in parallel:
        for each part of the depth:
            copy the operands to a scope of their own       # cache_read
            for each step of 16: sums += micro_kernel(...)  # tensorize
        result = sums                                       # cache_write

The micro-kernel is written in TensorIR, in C compiled to LLVM IR, and by LLVM's fused multiply-add.
"""

from __future__ import annotations

from functools import partial

from tvm import s_tir
from tvm.script import tirx as T

from worker.compiler.schedules.inline import inline_blocks
from worker.compiler.spaces.llvm_ir import read_kernel
from worker.compiler.spaces.matmul_block import find_product, finish_at, require_multiples
from worker.compiler.spaces.space import Intrinsic, Space

SIDE = 16
OPERAND = "global.operand"
SUMS = "global.sums"

_MOST_STEPS = 8
_HALF = 8
_C_KERNEL = read_kernel("update_16x16")


@T.prim_func(s_tir=True)
def describe_update(a: T.handle, b: T.handle, c: T.handle) -> None:
    """``c += a b`` of 16 by 16 matrices."""
    left = T.match_buffer(a, (SIDE, SIDE), "float32", offset_factor=1, scope=OPERAND)
    right = T.match_buffer(b, (SIDE, SIDE), "float32", offset_factor=1, scope=OPERAND)
    sums = T.match_buffer(c, (SIDE, SIDE), "float32", offset_factor=1, scope=SUMS)
    with T.sblock("root"):
        T.reads(sums[0:SIDE, 0:SIDE], left[0:SIDE, 0:SIDE], right[0:SIDE, 0:SIDE])
        T.writes(sums[0:SIDE, 0:SIDE])
        for i, j, k in T.grid(SIDE, SIDE, SIDE):
            with T.sblock("update"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                sums[v_i, v_j] = sums[v_i, v_j] + left[v_i, v_k] * right[v_k, v_j]


@T.prim_func(s_tir=True)
def update_in_tensor_ir(a: T.handle, b: T.handle, c: T.handle) -> None:
    """Outer products of a column and a row; a vector holds a row of 16 sums."""
    left = T.match_buffer(
        a, (SIDE, SIDE), "float32", offset_factor=1, scope=OPERAND, strides=[T.int32(), T.int32()]
    )
    right = T.match_buffer(b, (SIDE, SIDE), "float32", offset_factor=1, scope=OPERAND, strides=[T.int32(), 1])
    sums = T.match_buffer(c, (SIDE, SIDE), "float32", offset_factor=1, scope=SUMS, strides=[T.int32(), 1])
    with T.sblock("root"):
        T.reads(sums[0:SIDE, 0:SIDE], left[0:SIDE, 0:SIDE], right[0:SIDE, 0:SIDE])
        T.writes(sums[0:SIDE, 0:SIDE])
        for i in range(SIDE):
            for k in T.unroll(SIDE):
                for j in T.vectorized(SIDE):
                    sums[i, j] = sums[i, j] + left[i, k] * right[k, j]


@T.prim_func(s_tir=True)
def update_in_c(a: T.handle, b: T.handle, c: T.handle) -> None:
    """A call of ``kernels/update_16x16.c``; LLVM inlines the imported code."""
    a_stride, b_stride, c_stride = T.int32(), T.int32(), T.int32()
    left = T.match_buffer(a, (SIDE, SIDE), "float32", offset_factor=1, scope=OPERAND, strides=[a_stride, 1])
    right = T.match_buffer(b, (SIDE, SIDE), "float32", offset_factor=1, scope=OPERAND, strides=[b_stride, 1])
    sums = T.match_buffer(c, (SIDE, SIDE), "float32", offset_factor=1, scope=SUMS, strides=[c_stride, 1])
    with T.sblock("root"):
        T.reads(sums[0:SIDE, 0:SIDE], left[0:SIDE, 0:SIDE], right[0:SIDE, 0:SIDE])
        T.writes(sums[0:SIDE, 0:SIDE])
        T.attr(T.int32(0), "pragma_import_llvm", _C_KERNEL)
        T.evaluate(
            T.call_extern(
                "int32",
                "bessemer_update_16x16",
                sums.access_ptr("rw"),
                left.access_ptr("r"),
                right.access_ptr("r"),
                T.Cast("int64", c_stride),
                T.Cast("int64", a_stride),
                T.Cast("int64", b_stride),
            )
        )


@T.prim_func(s_tir=True)
def update_by_fma(a: T.handle, b: T.handle, c: T.handle) -> None:
    """LLVM's fused multiply-add of eight floats: ``vfmadd`` on AVX2."""
    left = T.match_buffer(a, (SIDE, SIDE), "float32", offset_factor=1, scope=OPERAND, strides=[T.int32(), 1])
    right = T.match_buffer(b, (SIDE, SIDE), "float32", offset_factor=1, scope=OPERAND, strides=[T.int32(), 1])
    sums = T.match_buffer(c, (SIDE, SIDE), "float32", offset_factor=1, scope=SUMS, strides=[T.int32(), 1])
    with T.sblock("root"):
        T.reads(sums[0:SIDE, 0:SIDE], left[0:SIDE, 0:SIDE], right[0:SIDE, 0:SIDE])
        T.writes(sums[0:SIDE, 0:SIDE])
        for i, half in T.grid(SIDE, 2):
            for k in T.unroll(SIDE):
                sums[i, T.ramp(half * _HALF, 1, _HALF)] = T.call_llvm_pure_intrin(
                    T.llvm_lookup_intrinsic_id("llvm.fma.v8f32"),
                    T.broadcast(left[i, k], _HALF),
                    right.vload([k, half * _HALF], "float32x8"),
                    sums.vload([i, half * _HALF], "float32x8"),
                    dtype="float32x8",
                )


def schedule_tiles(schedule: s_tir.Schedule, intrinsic: str) -> s_tir.Schedule:
    """Blockize a product into tiles and compute them by an intrinsic; see the module.

    The sample is how many steps of the depth are copied at a time.
    """
    schedule = inline_blocks(schedule, is_traced=True)
    found = find_product(schedule)
    require_multiples(found, SIDE, SIDE, SIDE)
    product = found.block
    left = schedule.cache_read(product, 0, OPERAND)
    right = schedule.reindex_cache_read(product, 1, OPERAND, lambda row, column, depth: (depth, column))
    sums = schedule.cache_write(product, 0, SUMS)
    (row_tiles, row), (column_tiles, column), (steps, depth) = (
        schedule.split(loop, [None, SIDE]) for loop in schedule.get_loops(product)
    )
    parts, steps = schedule.split(
        steps, schedule.sample_perfect_tile(steps, n=2, max_innermost_factor=_MOST_STEPS)
    )
    schedule.reorder(row_tiles, column_tiles, parts, steps, row, column, depth)
    for operand in (left, right):
        schedule.compute_at(operand, parts)
    schedule.reverse_compute_at(sums, column_tiles)
    finish_at(schedule, sums, column_tiles)
    schedule.parallel(schedule.fuse(row_tiles, column_tiles))
    schedule.decompose_reduction(product, parts)
    schedule.tensorize(schedule.blockize(row), intrinsic)
    return schedule


_IMPLEMENTATIONS = {"tir": update_in_tensor_ir, "c": update_in_c, "fma": update_by_fma}

SPACES = (
    *(
        Intrinsic(f"course-update-16x16-{name}", describe_update, implementation)
        for name, implementation in _IMPLEMENTATIONS.items()
    ),
    *(
        Space(
            f"course-micro-kernel-{name}",
            partial(schedule_tiles, intrinsic=f"course-update-16x16-{name}"),
            "a product of two float32 matrices whose sizes are multiples of 16",
        )
        for name in _IMPLEMENTATIONS
    ),
)
