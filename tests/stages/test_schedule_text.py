"""Inlining, the general rules and vector arithmetic, as TensorIR before and after."""

from collections.abc import Callable

import tvm
import tvm.script.parser
from tvm import s_tir, tirx
from tvm.script import tirx as T

from worker.compiler.schedules.inline import inline_blocks
from worker.compiler.schedules.processors import Machine
from worker.compiler.schedules.reduction import schedule_reduction
from worker.compiler.schedules.spatial import schedule_spatial
from worker.compiler.schedules.vector_math import with_vector_math

AVX2 = Machine(vector_bits=256, registers=16, threads=1)


def parse(text: str) -> tirx.PrimFunc:
    return tvm.script.parser.parse(f"@T.prim_func(s_tir=True)\n{text.strip()}", extra_vars={"T": T})


def scheduled(text: str, step: Callable[[s_tir.Schedule], s_tir.Schedule | None]) -> str:
    """The script of a function after a step, which transforms its schedule or returns a new one."""
    schedule = s_tir.Schedule(tvm.IRModule({"main": parse(text)}))
    changed = step(schedule) or schedule
    return str(changed.mod["main"].script())


def test_a_short_producer_is_inlined_for_every_read() -> None:
    before = """
def main(x: T.Buffer((64,), "float32"), z: T.Buffer((64,), "float32")):
    y = T.sblock_alloc_buffer((64,))
    for i in range(64):
        with T.sblock("y"):
            v = T.axis.spatial(64, i)
            y[v] = x[v] + T.float32(1)
    for i in range(64):
        with T.sblock("z"):
            v = T.axis.spatial(64, i)
            z[v] = y[v] * y[v]
"""
    after = """
def main(x: T.Buffer((64,), "float32"), z: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.sblock("z"):
            v = T.axis.spatial(64, i)
            z[v] = (x[v] + T.float32(1)) * (x[v] + T.float32(1))
"""
    assert scheduled(before, inline_blocks) == parse(after).script()


def test_a_long_producer_is_bound_to_a_variable() -> None:
    before = """
def main(x: T.Buffer((64,), "float32"), z: T.Buffer((64,), "float32")):
    y = T.sblock_alloc_buffer((64,))
    for i in range(64):
        with T.sblock("y"):
            v = T.axis.spatial(64, i)
            y[v] = x[v] * (x[v] * (x[v] * (x[v] * (x[v] * (x[v] * (x[v] * (x[v] * x[v] + x[v]) + x[v]))))))
    for i in range(64):
        with T.sblock("z"):
            v = T.axis.spatial(64, i)
            z[v] = y[v] * y[v]
"""
    after = """
def main(x: T.Buffer((64,), "float32"), z: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.sblock("z"):
            v = T.axis.spatial(64, i)
            t = T.float32()
            z[v] = T.Let(t * t, where={
                t: x[v] * (x[v] * (x[v] * (x[v] * (x[v] * (x[v] * (x[v] * (x[v] * x[v] + x[v]) + x[v]))))))
            })
"""
    assert scheduled(before, inline_blocks) == parse(after).script()


def test_the_last_dimension_of_an_elementwise_block_is_vectorized() -> None:
    before = """
def main(x: T.Buffer((3, 64), "float32"), y: T.Buffer((3, 64), "float32")):
    for i, j in T.grid(3, 64):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj] + T.float32(1)
"""
    after = """
def main(x: T.Buffer((3, 64), "float32"), y: T.Buffer((3, 64), "float32")):
    for i, j_0 in T.grid(3, 8):
        for j_1 in T.vectorized(8):
            with T.sblock("y"):
                vi = T.axis.spatial(3, i)
                vj = T.axis.spatial(64, j_0 * 8 + j_1)
                y[vi, vj] = x[vi, vj] + T.float32(1)
"""
    assert scheduled(before, lambda schedule: schedule_spatial(schedule, "y", AVX2)) == parse(after).script()


def test_a_reduction_accumulates_a_tile_of_vectors_before_its_epilogue() -> None:
    before = """
def main(
    x: T.Buffer((6, 4, 16), "float32"), y: T.Buffer((6, 16), "float32"), z: T.Buffer((6, 16), "float32")
):
    s = T.sblock_alloc_buffer((6, 16))
    for i, j, k in T.grid(6, 16, 4):
        with T.sblock("s"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                s[vi, vj] = T.float32(0)
            s[vi, vj] = s[vi, vj] + x[vi, vk, vj]
    for i, j in T.grid(6, 16):
        with T.sblock("z"):
            vi, vj = T.axis.remap("SS", [i, j])
            z[vi, vj] = s[vi, vj] + y[vi, vj]
"""
    after = """
def main(
    x: T.Buffer((6, 4, 16), "float32"), y: T.Buffer((6, 16), "float32"), z: T.Buffer((6, 16), "float32")
):
    s = T.sblock_alloc_buffer((6, 16))
    for i_j_0_fused in range(6):
        for ax0_init in T.unroll(1):
            for ax1_0_init in T.unroll(2):
                for ax1_1_init in T.vectorized(8):
                    with T.sblock("s_init"):
                        vi = T.axis.spatial(6, i_j_0_fused + ax0_init)
                        vj = T.axis.spatial(16, ax1_0_init * 8 + ax1_1_init)
                        s[vi, vj] = T.float32(0)
        for ax2 in range(4):
            for ax0 in T.unroll(1):
                for ax1_0 in T.unroll(2):
                    for ax1_1 in T.vectorized(8):
                        with T.sblock("s_update"):
                            vi = T.axis.spatial(6, i_j_0_fused + ax0)
                            vj = T.axis.spatial(16, ax1_0 * 8 + ax1_1)
                            vk = T.axis.reduce(4, ax2)
                            s[vi, vj] = s[vi, vj] + x[vi, vk, vj]
        for j_1 in T.unroll(2):
            for j_2 in T.vectorized(8):
                with T.sblock("z"):
                    vi = T.axis.spatial(6, i_j_0_fused)
                    vj = T.axis.spatial(16, j_1 * 8 + j_2)
                    z[vi, vj] = s[vi, vj] + y[vi, vj]
"""
    result = scheduled(before, lambda schedule: schedule_reduction(schedule, "s", "z", AVX2))
    assert result == parse(after).script()


def test_a_choice_that_guards_its_branches_becomes_a_statement() -> None:
    before = """
def main(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for i in range(8):
        for lane in T.vectorized(8):
            y[i * 8 + lane] = T.if_then_else(
                x[i * 8 + lane] > T.float32(0),
                T.pow(x[i * 8 + lane] + T.float32(1), T.float32(-2)),
                T.float32(0),
            )
"""
    after = """
def main(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for i in range(8):
        chosen = T.alloc_local((8,))
        term = T.alloc_local((8,))
        for lane in T.vectorized(8):
            if x[i * 8 + lane] > T.float32(0):
                term[lane] = x[i * 8 + lane] + T.float32(1)
                chosen[lane] = T.float32(1) / (term[lane] * term[lane])
            else:
                chosen[lane] = T.float32(0)
            y[i * 8 + lane] = chosen[lane]
"""
    assert with_vector_math(parse(before)).script() == parse(after).script()
