"""Traces from other tenants: they rearrange a function, and bring no code along."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from tvm import s_tir, te, tirx

from worker.compiler.tuning.stored_records import applied, trace_text
from worker.job.warmup import import_everything

VNNI_DOT = "dot_16x4_vnni"


def two_steps() -> tvm.IRModule:
    given = te.placeholder((10,), name="given")
    double = te.compute((10,), lambda i: te.exp(given[i]) * 2.0, name="double")
    return tvm.IRModule({"main": te.create_prim_func([given, te.compute((10,), lambda i: double[i] + 1.0)])})


def dot_products() -> tvm.IRModule:
    left, right = te.placeholder((4,), "uint8", "left"), te.placeholder((16, 4), "int8", "right")
    k = te.reduce_axis((0, 4), "k")
    product = te.compute(
        (16,), lambda i: te.sum(left[k].astype("int32") * right[i, k].astype("int32"), axis=k), name="double"
    )
    return tvm.IRModule({"main": te.create_prim_func([left, right, product])})


def loops(schedule: s_tir.Schedule) -> list[s_tir.schedule.LoopRV]:
    return list(schedule.get_loops(schedule.get_sblock("double")))


def pads_with_a_call(schedule: s_tir.Schedule) -> None:
    def padding(_outer: object, _inner: object) -> tirx.PrimExpr:
        return tirx.call_extern("float32", "abort")

    schedule.transform_layout("double", ("write", 0), lambda i: [i // 4, i % 4], pad_value=padding)


def imports_a_program(schedule: s_tir.Schedule) -> None:
    schedule.annotate(loops(schedule)[0], "pragma_import_llvm", "define void @x() { ret void }")


def splits(schedule: s_tir.Schedule) -> None:
    outer, inner = schedule.split(loops(schedule)[0], [None, 4])
    schedule.parallel(outer)
    schedule.annotate(inner, "pragma_auto_unroll_max_step", 16)


def pads(schedule: s_tir.Schedule) -> None:
    schedule.transform_layout("double", ("write", 0), lambda i: [i // 4, i % 4], pad_value=0.0)


def tensorizes(schedule: s_tir.Schedule) -> None:
    import_everything()
    block = schedule.get_sblock("double")
    schedule.decompose_reduction(block, schedule.get_loops(block)[0])
    schedule.tensorize(schedule.get_loops(block)[0], VNNI_DOT)


def trace_of(module: tvm.IRModule, step: Callable[[s_tir.Schedule], None]) -> str:
    schedule = s_tir.Schedule(module)
    step(schedule)
    return trace_text(schedule)


@pytest.mark.parametrize(
    ("step", "reason"), [(pads_with_a_call, "calls tirx.call_extern"), (imports_a_program, "a pragma")]
)
def test_a_trace_that_brings_code_along_is_refused(
    step: Callable[[s_tir.Schedule], None], reason: str
) -> None:
    trace = trace_of(two_steps(), step)
    with pytest.raises(ValueError, match=reason):
        applied(trace, two_steps())


@pytest.mark.parametrize(
    ("module", "step"),
    [(two_steps(), splits), (two_steps(), pads), (dot_products(), tensorizes)],
    ids=["splits", "pads", "tensorizes"],
)
def test_a_trace_that_rearranges_a_function_applies(
    module: tvm.IRModule, step: Callable[[s_tir.Schedule], None]
) -> None:
    assert trace_text(applied(trace_of(module, step), module)) == trace_of(module, step)
