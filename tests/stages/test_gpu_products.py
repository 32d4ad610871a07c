"""Products and convolutions on GPUs: what they compute, and what they compile to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tvm import relax, s_tir, tirx

import tests.gpu.instructions  # noqa: F401
from tests.gpu.run import assert_computes
from worker.compiler.codegen.cuda.kernels import lower_for_gpu
from worker.compiler.codegen.cuda.machine_code import GpuBinary, compile_cuda, toolkit
from worker.compiler.schedules.gpu import schedule_for_gpu
from worker.compiler.schedules.gpu.chips import gpu_of
from worker.compiler.schedules.gpu.products import EXACT, Precision, product_plans, write_product
from worker.compiler.schedules.gpu.products.plan import DirectPlan, Plan, SkinnyPlan, TilePlan, Unit
from worker.compiler.schedules.inline import inline_blocks

H100 = gpu_of("sm_90")
TF32 = Precision(tf32=True)
TOLERANCES = {"float32": 2e-3, "float16": 2e-2, "bfloat16": 4e-2}
"""The CPU adds halves in half precision, and tf32 has 10 bits."""

needs_cuda = pytest.mark.skipif(toolkit() is None, reason="the CUDA compilers are not installed")


def fused(build: Any, *inputs: tuple[tuple[int, ...], str]) -> tirx.PrimFunc:
    """The fused function of some operators, as legalization and fusion leave it."""
    builder = relax.BlockBuilder()
    values = [
        relax.Var(f"x{place}", relax.TensorType(shape, dtype)) for place, (shape, dtype) in enumerate(inputs)
    ]
    with builder.function("main", values):
        with builder.dataflow():
            result = builder.emit_output(build(builder.emit, *values))
        builder.emit_func_output(result)
    module = builder.get()
    for step in ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR"):
        module = getattr(relax.transform, step)()(module)
    return next(function for function in module.functions.values() if isinstance(function, tirx.PrimFunc))


def matmul(
    rows: int, columns: int, depth: int, dtype: str = "float16", batch: tuple[int, ...] = ()
) -> tirx.PrimFunc:
    """``relu(x @ w + b)``."""

    def build(emit: Any, x: Any, w: Any, b: Any) -> Any:
        return relax.op.nn.relu(emit(relax.op.add(emit(relax.op.matmul(x, w)), b)))

    return fused(
        build, ((*batch, rows, depth), dtype), ((*batch, depth, columns), dtype), ((columns,), dtype)
    )


def convolution(
    size: int,
    channels: int,
    outputs: int,
    dtype: str = "float16",
    groups: int = 1,
    layout: str = "NHWC",
    **how: int,
) -> tirx.PrimFunc:
    """``relu(conv2d(x, w) + b)`` with a window of 3 by 3 and a border of one."""
    of_images, of_weights = ("NHWC", "OHWI") if layout == "NHWC" else ("NCHW", "OIHW")

    def build(emit: Any, x: Any, w: Any, b: Any) -> Any:
        product = relax.op.nn.conv2d(
            x, w, padding=1, groups=groups, data_layout=of_images, kernel_layout=of_weights, **how
        )
        return relax.op.nn.relu(emit(relax.op.add(emit(product), b)))

    group = channels // groups
    if layout == "NHWC":
        shapes: Any = (1, size, size, channels), (outputs, 3, 3, group), (outputs,)
    else:
        shapes = (1, channels, size, size), (outputs, group, 3, 3), (outputs, 1, 1)
    return fused(build, *((shape, dtype) for shape in shapes))


MMA = TilePlan(Unit.TENSOR, 32, 32, 32, 16, 16, 3)
WGMMA = TilePlan(Unit.WARPGROUP, 64, 64, 64, 64, 64, 3)
WIDE_WGMMA = replace(WGMMA, rows=128, columns=128, warp_columns=128)
FMA = TilePlan(Unit.FMA, 32, 32, 16, 16, 32, 2)

PRODUCTS: Mapping[str, tuple[tirx.PrimFunc, Plan | None, Precision]] = {
    "whole tiles": (matmul(64, 64, 64), MMA, EXACT),
    "more stages than tiles": (matmul(64, 64, 32), replace(MMA, stages=4), EXACT),
    "tiles over every edge": (matmul(40, 72, 88), MMA, EXACT),
    "rows of an odd length": (matmul(37, 53, 29), MMA, EXACT),
    "several products": (matmul(24, 40, 32, batch=(2, 3)), MMA, EXACT),
    "more rows of tiles than a group": (matmul(9 * 32 + 5, 40, 32), MMA, EXACT),
    "a divided depth": (matmul(40, 72, 200), replace(MMA, splits=3), EXACT),
    "bfloat16": (matmul(40, 72, 64, "bfloat16"), MMA, EXACT),
    "tf32": (matmul(40, 72, 48, "float32"), replace(MMA, depth=16), TF32),
    "tf32 at every edge": (matmul(37, 53, 29, "float32"), replace(MMA, depth=16), TF32),
    "wgmma": (matmul(72, 72, 136), WGMMA, EXACT),
    "wgmma with a divided depth": (matmul(37, 53, 29 * 8), replace(WGMMA, splits=2), EXACT),
    "wgmma of two warpgroups": (
        matmul(72, 136, 72),
        WIDE_WGMMA,
        EXACT,
    ),
    "multiply-adds": (matmul(40, 72, 48, "float32"), FMA, EXACT),
    "multiply-adds at every edge": (matmul(37, 53, 29, "float32"), FMA, EXACT),
    "multiply-adds with a divided depth": (matmul(40, 72, 128, "float32"), replace(FMA, splits=3), EXACT),
    "one row": (matmul(1, 72, 96), SkinnyPlan(4, 32, 8, 4), EXACT),
    "a few rows of an odd length": (matmul(5, 53, 29, "float32"), SkinnyPlan(32, 4, 1, 2), EXACT),
    "one row with a divided depth": (matmul(1, 64, 512), SkinnyPlan(8, 16, 8, 2, 2), EXACT),
    "convolution": (convolution(7, 16, 24), MMA, EXACT),
    "convolution by wgmma": (convolution(7, 16, 24), WGMMA, EXACT),
    "convolution of tf32 by wgmma": (convolution(7, 12, 20, "float32"), replace(WGMMA, depth=32), TF32),
    "convolution with strides": (convolution(9, 8, 24, strides=2), MMA, EXACT),
    "convolution of three channels": (convolution(9, 3, 8), replace(MMA, stages=2), EXACT),
    "convolution in NCHW": (convolution(8, 12, 20, "float32", layout="NCHW"), FMA, EXACT),
    "depthwise convolution": (convolution(7, 16, 16, groups=16), DirectPlan(8, 2, 128), EXACT),
    "depthwise convolution in NCHW": (convolution(7, 6, 6, "float32", 6, "NCHW"), None, EXACT),
    "grouped convolution": (convolution(6, 16, 32, "float32", groups=4), None, EXACT),
}


@pytest.mark.sampled
@pytest.mark.parametrize("case", PRODUCTS)
def test_products_are_those_of_the_cpu(case: str) -> None:
    function, plan, precision = PRODUCTS[case]
    tolerance = TOLERANCES[str(function.params[0].dtype)]
    assert_computes(function, H100, lambda one, gpu: _written(one, gpu, plan, precision), tolerance=tolerance)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_older_gpus_compute_the_same_product(arch: str, dtype: str) -> None:
    assert_computes(matmul(37, 72, 40, dtype), gpu_of(arch), tolerance=TOLERANCES[dtype])


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("arch", "dtype", "instruction"),
    [
        ("sm_90", "float16", "wgmma.mma_async"),
        ("sm_90", "bfloat16", "wgmma.mma_async"),
        ("sm_80", "float16", "mma.sync.aligned.m16n8k16"),
        ("sm_80", "bfloat16", "mma.sync.aligned.m16n8k16"),
        ("sm_75", "float16", "mma.sync.aligned.m16n8k8"),
    ],
)
@needs_cuda
def test_half_precision_is_multiplied_by_tensor_cores(
    arch: str, dtype: str, instruction: str, tmp_path: Path
) -> None:
    ptx = _compiled(schedule_for_gpu(matmul(1024, 1024, 1024, dtype), gpu_of(arch)), arch, tmp_path)
    assert instruction in ptx
    assert ("cp.async.cg" in ptx) == (arch != "sm_75")
    assert "st.global.v4" in ptx


@needs_cuda
def test_float32_is_exact_unless_tf32_is_asked_for(tmp_path: Path) -> None:
    function = matmul(512, 512, 512, "float32")
    exact = _compiled(_written(function, H100, None, EXACT), "sm_90", tmp_path)
    rounded = _compiled(_written(function, H100, None, TF32), "sm_90", tmp_path)
    assert "mma" not in exact
    assert "tf32" in rounded


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("rows", "dtype"), [(1, "bfloat16"), (128, "bfloat16"), (2048, "bfloat16"), (2048, "float32")]
)
def test_no_plan_asks_for_more_shared_memory_than_a_block_has(rows: int, dtype: str) -> None:
    function = matmul(rows, 1024, 2048, dtype)
    for plan in product_plans(function, H100)[:6]:
        launches = (
            lower_for_gpu({"main": _written(function, H100, plan, EXACT)}, H100).functions["main"].launches
        )
        assert all(launch.shared_bytes <= H100.shared_bytes for launch in launches)
        if isinstance(plan, TilePlan):
            assert launches[0].shared_bytes == plan.shared_bytes(16 if dtype == "bfloat16" else 32)


def _written(function: tirx.PrimFunc, gpu: Any, plan: Plan | None, precision: Precision) -> tirx.PrimFunc:
    written = write_product(inline_blocks(s_tir.Schedule(function)), gpu, plan, precision)
    assert written is not None
    return written


def _compiled(function: tirx.PrimFunc, arch: str, folder: Path) -> str:
    """The PTX of a function whose registers all fit."""
    code = lower_for_gpu({"main": function}, gpu_of(arch))
    binary: GpuBinary = compile_cuda(code.source, [arch], folder)
    assert not any(kernel.spilled_bytes or kernel.stack_bytes for kernel in binary.usage)
    return binary.ptx.read_text()
