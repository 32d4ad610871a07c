"""Functions scheduled for a GPU compute what they compute on the CPU, thread by thread, without a fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx, topi
from tvm.s_tir import dlight

from tests.gpu.run import GPU, assert_computes, execute_function
from worker.compiler.schedules.gpu.chips import Gpu


def matmul(rows: int, columns: int, depth: int, dtype: str = "float32", sums: str = "float32") -> tirx.PrimFunc:
    a = te.placeholder((rows, depth), dtype, name="a")
    b = te.placeholder((depth, columns), dtype, name="b")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute(
        (rows, columns), lambda i, j: te.sum(a[i, k].astype(sums) * b[k, j].astype(sums), axis=k), name="c"
    )
    return te.create_prim_func([a, b, c])


def of_topi(function: Any, *shapes: tuple[int, ...], dtype: str = "float32") -> tirx.PrimFunc:
    inputs = [te.placeholder(shape, dtype, name=f"x{place}") for place, shape in enumerate(shapes)]
    return te.create_prim_func([*inputs, function(*inputs)])


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(of_topi(topi.add, (33, 65), (33, 65)), id="add"),
        pytest.param(of_topi(lambda x: topi.tanh(topi.exp(x)), (300,)), id="exp and tanh"),
        pytest.param(of_topi(topi.erf, (70,)), id="erf"),
        pytest.param(of_topi(lambda x: topi.transpose(x, (1, 0)), (30, 50)), id="transpose"),
        pytest.param(of_topi(lambda x: topi.nn.pad(x, (1, 2), (3, 4)), (9, 20)), id="pad"),
        pytest.param(of_topi(topi.multiply, (40, 40), (40, 40), dtype="float16"), id="multiply float16"),
        pytest.param(of_topi(lambda x: topi.sum(x, axis=1), (24, 100)), id="sum of rows"),
        pytest.param(of_topi(lambda x: topi.sum(x, axis=0), (100, 24)), id="sum of columns"),
        pytest.param(of_topi(lambda x: topi.max(x, axis=(1, 2)), (3, 17, 30)), id="maximum"),
        pytest.param(of_topi(lambda x: topi.sum(x, axis=1), (4, 2000)), id="sum across warps"),
        pytest.param(of_topi(lambda x: topi.nn.softmax(x, axis=-1), (10, 200)), id="softmax"),
        pytest.param(matmul(64, 64, 64), id="matmul"),
        pytest.param(matmul(40, 70, 33), id="matmul of odd sizes"),
        pytest.param(matmul(1, 64, 200), id="matrix times vector"),
    ],
)
def test_a_function_by_tvms_rules_computes(function: tirx.PrimFunc) -> None:
    assert_computes(function)


@pytest.mark.parametrize("sums", ["float32", "float16"])
def test_a_matmul_of_tensor_cores_computes(sums: str) -> None:
    def tensorize(function: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc:
        with gpu.target:
            return dlight.gpu.Matmul().apply(function, gpu.target, False).mod["main"]

    assert_computes(matmul(128, 128, 128, "float16", sums), schedule=tensorize)


def _pipelined(function: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc:
    """A matmul whose next tiles are copied asynchronously while it multiplies."""
    schedule = s_tir.Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    block = schedule.get_sblock("c")
    i, j, k = schedule.get_loops(block)
    (i, row), (j, column), (k, inner) = (schedule.split(loop, [None, 16]) for loop in (i, j, k))
    schedule.reorder(i, j, row, column, k, inner)
    for loop, axis in ((i, "blockIdx.y"), (j, "blockIdx.x"), (row, "threadIdx.y"), (column, "threadIdx.x")):
        schedule.bind(loop, axis)
    schedule.reverse_compute_at(schedule.cache_write(block, 0, "local"), column)
    for operand in (0, 1):
        tile = schedule.cache_read(block, operand, "shared")
        schedule.compute_at(tile, k)
        fused = schedule.fuse(*schedule.get_loops(tile)[-2:])
        y, x, vector = schedule.split(fused, [4, 16, 4])
        schedule.vectorize(vector)
        schedule.bind(x, "threadIdx.x")
        schedule.bind(y, "threadIdx.y")
    schedule.decompose_reduction(block, k)
    schedule.annotate(k, "software_pipeline_stage", [0, 0, 1])
    schedule.annotate(k, "software_pipeline_order", [0, 1, 2])
    schedule.annotate(k, "software_pipeline_async_stages", [0])
    return schedule.mod["main"]


def test_a_pipeline_of_asynchronous_copies_computes() -> None:
    assert_computes(matmul(64, 64, 64), schedule=_pipelined)


def test_a_function_that_computes_something_else_is_caught() -> None:
    def wrong(function: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc:
        with gpu.target:
            other = tvm.IRModule({"main": of_topi(topi.subtract, (8, 8), (8, 8))})
            return dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(other)["main"]

    with pytest.raises(AssertionError):
        assert_computes(of_topi(topi.add, (8, 8), (8, 8)), schedule=wrong)


def test_given_inputs_are_used() -> None:
    table, rows = np.arange(40, dtype=np.float32).reshape(10, 4), np.array([3, 9, 0], np.int64)
    data, index = te.placeholder((10, 4), name="data"), te.placeholder((3,), "int64", name="index")
    function = te.create_prim_func([data, index, topi.take(data, index, axis=0, mode="fast")])
    assert_computes(function, inputs=[table, rows])


def test_arguments_are_written_in_place() -> None:
    with GPU.target:
        module = dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(
            tvm.IRModule({"main": of_topi(lambda x: topi.multiply(x, x), (5, 7))})
        )
    x, y = np.arange(35, dtype=np.float32).reshape(5, 7), np.zeros((5, 7), np.float32)
    execute_function(module["main"], [x, y], 1)
    np.testing.assert_array_equal(y, x * x)
