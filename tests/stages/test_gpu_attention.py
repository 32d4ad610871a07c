"""Attention on GPUs: one kernel with right results for odd sizes, masks and types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
import tvm
from gpu_functions import assert_one_kernel, code_of, family_of, functions_of, kernels_of, usage_of
from tvm import relax, s_tir, tirx
from tvm.relax import op

import tests.gpu.instructions  # noqa: F401
from tests.gpu.run import GPU, assert_computes, random_arrays
from worker.compiler.codegen.cuda.machine_code import toolkit
from worker.compiler.layout.attention.fuse_attention import fuse_attention
from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import TF32
from worker.compiler.schedules.families.attention.blocks import AttentionBlocks, find_attention
from worker.compiler.schedules.gpu.attention.plan import AttentionPlan, attention_plans
from worker.compiler.schedules.gpu.attention.tensor_cores import TensorCoreAttention
from worker.compiler.schedules.gpu.chips import gpu_of, writing_for
from worker.compiler.schedules.inline import inline_blocks


@dataclass(frozen=True)
class Sizes:
    """The sizes of attention: ``[batch, rows, heads, depth]``.

    Scores and products are of the dtype ``scores``, and what is computed before the softmax of ``steps``.
    """

    heads: int
    queries: int
    keys: int
    depth: int
    width: int
    batch: int = 1
    dtype: str = "float32"
    masked: bool = False
    causal: bool = False
    scores: str | None = None
    steps: str | None = None


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
    single, between = sizes.scores or dtype, sizes.steps or sizes.scores or dtype
    mask = relax.Var("mask", relax.TensorType((sizes.batch, 1, sizes.queries, sizes.keys), between))

    def cast(value: relax.Var, wanted: str) -> relax.Var:
        return value if str(value.ty.dtype) == wanted else builder.emit(op.astype(value, wanted))

    with builder.function("main", [*parameters, *([mask] if sizes.masked else [])]):
        with builder.dataflow():
            query, key, value = (builder.emit(op.permute_dims(x, (0, 2, 1, 3))) for x in parameters)
            key = builder.emit(op.permute_dims(key, (0, 1, 3, 2)))
            scores = cast(builder.emit(op.matmul(query, key, single)), between)
            scores = builder.emit(op.multiply(scores, relax.const(1 / sqrt(sizes.depth), between)))
            if sizes.masked:
                scores = builder.emit(op.add(scores, mask))
            if sizes.causal:
                hidden = np.triu(np.full((sizes.queries, sizes.keys), -np.inf, between), 1)
                scores = builder.emit(op.add(scores, relax.const(hidden)))
            shares = cast(builder.emit(op.nn.softmax(cast(scores, single))), dtype)
            result = cast(builder.emit(op.matmul(shares, value, single)), dtype)
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
    "several images": Sizes(heads=2, queries=6, keys=6, depth=4, width=4, batch=3),
}


HALVES = {
    **{name: replace(sizes, dtype="float16") for name, sizes in CASES.items()},
    "bfloat16": Sizes(heads=2, queries=37, keys=53, depth=32, width=32, dtype="bfloat16"),
    "several tiles of queries": Sizes(heads=1, queries=197, keys=197, depth=32, width=64, dtype="bfloat16"),
    "more keys than a causal mask shows": Sizes(
        heads=1, queries=70, keys=150, depth=32, width=24, dtype="bfloat16", causal=True
    ),
    "a mask that is causal in part": Sizes(
        heads=1, queries=20, keys=20, depth=16, width=16, dtype="float16", masked=True, causal=True
    ),
    "a head of 128": Sizes(heads=1, queries=20, keys=40, depth=128, width=128, dtype="float16"),
    "a wide head": Sizes(heads=1, queries=5, keys=20, depth=192, width=192, dtype="float16"),
}
SINGLE = {
    f"{name} in float32": replace(HALVES[name], scores="float32")
    for name in ("bfloat16", "a mask", "a causal mask", "more keys than a causal mask shows", "a wide head")
}
HALVES |= SINGLE
HALVES["steps between in bfloat16"] = replace(
    HALVES["bfloat16"], masked=True, scores="float32", steps="bfloat16"
)
TF32_CASES = {
    "odd rows and keys": CASES["odd rows and keys"],
    "a mask": CASES["a mask"],
    "a causal mask": CASES["a causal mask"],
    "several tiles of queries": replace(HALVES["several tiles of queries"], dtype="float32"),
}
TOLERANCES = {"float16": 5e-3, "bfloat16": 2e-2}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_one_kernel_computes_attention(name: str) -> None:
    function = attention(CASES[name])

    assert family_of(function) == "attention"
    assert_one_kernel(code_of(function))
    assert_computes(function)


@pytest.mark.sampled
@pytest.mark.parametrize("name", HALVES)
def test_tensor_cores_compute_attention_in_one_kernel(name: str) -> None:
    sizes = HALVES[name]
    function = attention(sizes)

    assert family_of(function) == "attention"
    code = code_of(function)
    assert_one_kernel(code)
    assert ("mma" in kernels_of(code)) == (sizes.depth <= 128)
    assert_computes(function, tolerance=TOLERANCES[sizes.dtype])


@pytest.mark.sampled
@pytest.mark.parametrize("name", TF32_CASES)
def test_tensor_cores_compute_attention_of_tf32_if_they_may(name: str) -> None:
    function = attention(TF32_CASES[name]).with_attr(TF32, True)

    assert "tf32" in kernels_of(code_of(function))
    assert_computes(function, tolerance=2e-3)


def test_tensor_cores_of_older_gpus_compute_attention() -> None:
    sizes = Sizes(heads=1, queries=37, keys=70, depth=32, width=16, dtype="float16", causal=True)
    assert_computes(attention(sizes), gpu_of("sm_75"), tolerance=5e-3)


def blocks_of(function: tirx.PrimFunc) -> AttentionBlocks:
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    blocks = find_attention(inline_blocks(s_tir.Schedule(module)))
    assert blocks is not None
    return blocks


@pytest.mark.slow
def test_every_plan_computes_the_same() -> None:
    function = attention(
        Sizes(heads=1, queries=70, keys=130, depth=16, width=16, dtype="float16", causal=True)
    )
    blocks = blocks_of(function)
    plans = attention_plans(blocks, GPU)

    assert {plan.fragments for plan in plans} == {1, 2}
    for plan in plans[::9]:

        def follow(function: tirx.PrimFunc, _gpu: object, plan: AttentionPlan = plan) -> tirx.PrimFunc:
            return nest.with_loops(function, TensorCoreAttention(blocks, plan, GPU).statement())

        assert_computes(function, schedule=follow, tolerance=5e-3)


@pytest.mark.parametrize("mask", [-3.3e38, -np.inf])
def test_a_query_without_keys_is_what_the_model_says(mask: float) -> None:
    function = attention(
        Sizes(heads=1, queries=3, keys=20, depth=16, width=16, dtype="bfloat16", masked=True)
    )
    shapes = [tuple(map(int, parameter.shape)) for parameter in function.params[:4]]
    inputs = random_arrays(shapes, ["bfloat16"] * 4)
    inputs[0][..., 1, :] = np.array(mask, inputs[0].dtype)  # the mask comes first

    assert_computes(function, inputs=inputs, tolerance=2e-2)


def test_operands_are_read_and_written_in_vectors() -> None:
    kernels = kernels_of(code_of(attention(Sizes(heads=2, queries=64, keys=64, depth=64, width=64))))

    assert "(float4*)(p0" in kernels
    assert "(float4*)(attended" in kernels


USED = {
    "float32": Sizes(heads=12, queries=512, keys=512, depth=64, width=64, batch=8),
    "float32, 128": Sizes(heads=12, queries=512, keys=512, depth=128, width=128, batch=8),
    "bfloat16": Sizes(heads=3, queries=197, keys=197, depth=64, width=64, batch=32, dtype="bfloat16"),
    "causal": Sizes(
        heads=12, queries=1024, keys=1024, depth=64, width=64, batch=8, dtype="bfloat16", causal=True
    ),
    "bfloat16, 128": Sizes(heads=8, queries=512, keys=512, depth=128, width=128, dtype="bfloat16"),
    "a mask": Sizes(heads=8, queries=512, keys=512, depth=32, width=32, dtype="bfloat16", masked=True),
}


@pytest.mark.sampled
@pytest.mark.skipif(toolkit() is None, reason="the CUDA compilers are not installed")
@pytest.mark.parametrize("name", USED)
def test_registers_hold_scores_and_result(name: str, tmp_path: Path) -> None:
    function = attention(USED[name])
    for allowed in (False, True) if USED[name].dtype == "float32" else (False,):
        usage = usage_of(code_of(function.with_attr(TF32, allowed)), tmp_path)

        assert [(kernel.spilled_bytes, kernel.stack_bytes) for kernel in usage] == [(0, 0)]
