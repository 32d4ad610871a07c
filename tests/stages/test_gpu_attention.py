"""Attention on GPUs: one kernel with right results for odd sizes, masks and types."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
import tvm
from gpu_functions import assert_one_kernel, code_of, family_of, functions_of, kernels_of, usage_of
from tvm import relax, tirx
from tvm.relax import op

from tests.gpu.run import GPU, assert_computes
from worker.compiler.codegen.cuda.machine_code import toolkit
from worker.compiler.layout.attention.fuse_attention import fuse_attention
from worker.compiler.schedules.gpu.chips import writing_for


@dataclass(frozen=True)
class Sizes:
    """The sizes of attention: ``[batch, rows, heads, depth]``."""

    heads: int
    queries: int
    keys: int
    depth: int
    width: int
    batch: int = 1
    dtype: str = "float32"
    masked: bool = False
    causal: bool = False


def attention(sizes: Sizes) -> tirx.PrimFunc:
    """The function that a model's attention becomes."""
    dtype, builder = sizes.dtype, relax.BlockBuilder()
    shapes = [
        (sizes.batch, sizes.queries, sizes.heads, sizes.depth),
        (sizes.batch, sizes.keys, sizes.heads, sizes.depth),
        (sizes.batch, sizes.keys, sizes.heads, sizes.width),
    ]
    parameters = [
        relax.Var(f"x{place}", relax.TensorType(shape, dtype)) for place, shape in enumerate(shapes)
    ]
    mask = relax.Var("mask", relax.TensorType((sizes.batch, 1, sizes.queries, sizes.keys), dtype))
    with builder.function("main", [*parameters, *([mask] if sizes.masked else [])]):
        with builder.dataflow():
            query, key, value = (builder.emit(op.permute_dims(x, (0, 2, 1, 3))) for x in parameters)
            scores = builder.emit(op.matmul(query, builder.emit(op.permute_dims(key, (0, 1, 3, 2)))))
            scores = builder.emit(op.multiply(scores, relax.const(1 / sqrt(sizes.depth), dtype)))
            if sizes.masked:
                scores = builder.emit(op.add(scores, mask))
            if sizes.causal:
                hidden = np.triu(np.full((sizes.queries, sizes.keys), -np.inf, dtype), 1)
                scores = builder.emit(op.add(scores, relax.const(hidden)))
            shares = builder.emit(op.nn.softmax(scores))
            result = builder.emit(op.matmul(shares, value))
            result = builder.emit_output(op.permute_dims(result, (0, 2, 1, 3)))
        builder.emit_func_output(result)
    with writing_for(GPU):
        module: tvm.IRModule = fuse_attention(builder.get())
    (function,) = functions_of(module).values()
    return function


CASES = {
    "odd rows and keys": Sizes(heads=2, queries=19, keys=21, depth=16, width=16),
    "odd depth and width": Sizes(heads=1, queries=5, keys=20, depth=7, width=5),
    "several tiles of keys": Sizes(heads=1, queries=17, keys=70, depth=8, width=16),
    "a mask": Sizes(heads=1, queries=18, keys=33, depth=12, width=24, masked=True),
    "a causal mask": Sizes(heads=1, queries=40, keys=40, depth=8, width=8, causal=True),
    "one query": Sizes(heads=2, queries=1, keys=37, depth=16, width=16),
    "halves": Sizes(heads=1, queries=17, keys=20, depth=16, width=32, dtype="float16"),
    "several images": Sizes(heads=2, queries=6, keys=6, depth=4, width=4, batch=3),
}


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_computes_attention(name: str) -> None:
    function = attention(CASES[name])

    assert family_of(function) == "attention"
    assert_computes(function, tolerance=5e-3 if CASES[name].dtype == "float16" else None)


@pytest.mark.parametrize("name", CASES)
def test_scores_never_leave_the_kernel(name: str) -> None:
    assert_one_kernel(code_of(attention(CASES[name])))


def test_operands_are_read_and_written_in_vectors() -> None:
    kernels = kernels_of(code_of(attention(Sizes(heads=2, queries=64, keys=64, depth=64, width=64))))

    assert "(float4*)(p0" in kernels
    assert "(float4*)(attended" in kernels


@pytest.mark.skipif(toolkit() is None, reason="the CUDA compilers are not installed")
@pytest.mark.parametrize("depth", [64, 128])
def test_registers_hold_scores_and_result(depth: int, tmp_path: Path) -> None:
    sizes = Sizes(heads=12, queries=512, keys=512, depth=depth, width=depth, batch=8)
    usage = usage_of(code_of(attention(sizes)), tmp_path)

    assert [(kernel.spilled_bytes, kernel.stack_bytes) for kernel in usage] == [(0, 0)]
