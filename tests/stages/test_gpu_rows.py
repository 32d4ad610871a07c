"""Rows, elementwise functions and windows on GPUs: right results, one kernel, wide accesses, no spills."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_functions import (
    Build,
    Kind,
    assert_one_kernel,
    code_of,
    family_of,
    floats,
    halves,
    kernels_of,
    legalized,
    usage_of,
)
from tvm.relax import op

from tests.gpu.run import assert_computes
from worker.compiler.codegen.cuda.machine_code import toolkit

Case = tuple[Build, tuple[Kind, ...]]

ROWS: dict[str, Case] = {
    "softmax of odd rows": (op.nn.softmax, (floats(3, 37),)),
    "softmax of vectors": (op.nn.softmax, (floats(5, 64),)),
    "softmax of a part of a warp": (op.nn.softmax, (floats(13, 10),)),
    "softmax of several warps": (op.nn.softmax, (floats(2, 1500),)),
    "logarithm of softmax": (op.nn.log_softmax, (floats(3, 40),)),
    "layer norm": (
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
        (floats(3, 5, 96), floats(96), floats(96)),
    ),
    "layer norm of two dimensions": (
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-2, -1]),
        (floats(3, 5, 12), floats(5, 12), floats(5, 12)),
    ),
    "layer norm of halves": (
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
        (halves(5, 64), halves(64), halves(64)),
    ),
    "RMS norm": (lambda x, g: op.nn.rms_norm(x, g, axes=[-1]), (floats(3, 64), floats(64))),
    "sum of the last dimension": (lambda x: op.sum(x, axis=-1), (floats(5, 70),)),
    "mean of the last dimensions": (lambda x: op.mean(x, axis=[2, 3]), (floats(2, 6, 7, 7),)),
    "largest of the last dimension": (lambda x: op.max(x, axis=-1, keepdims=True), (floats(7, 130),)),
}

WINDOWS: dict[str, Case] = {
    "pooling with channels last": (
        lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1), layout="NHWC"),
        (floats(1, 9, 9, 8),),
    ),
    "pooling with channels first": (
        lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)),
        (floats(1, 3, 9, 9),),
    ),
    "average pooling": (
        lambda x: op.nn.avg_pool2d(x, (2, 2), (2, 2), layout="NHWC"),
        (floats(1, 6, 6, 12),),
    ),
    "global pooling with channels last": (lambda x: op.mean(x, axis=[1, 2]), (floats(2, 7, 7, 20),)),
    "sum of the first dimension": (lambda x: op.sum(x, axis=0), (floats(50, 33),)),
}

ELEMENTWISE: dict[str, Case] = {
    "sum of vectors": (op.add, (floats(5, 7, 12), floats(5, 7, 12))),
    "elements behind the last vector": (lambda x, y: op.nn.relu(op.add(x, y)), (floats(5, 7, 3),) * 2),
    "bias": (op.add, (floats(5, 12), floats(12))),
    "bias of odd rows": (op.add, (floats(5, 7), floats(7))),
    "column": (op.add, (floats(5, 12), floats(5, 1))),
    "gelu": (op.nn.gelu, (floats(4, 33),)),
    "halves": (lambda x: op.multiply(x, x), (halves(4, 40),)),
    "choice": (op.where, (((4, 40), "bool"), floats(4, 40), floats(4, 40))),
    "cast of wide integers": (lambda x: op.astype(x, "float32"), (((4, 40), "int64"),)),
    "slice": (lambda x: op.strided_slice(x, [1], [2], [7]), (floats(4, 9, 8),)),
    "padding": (lambda x: op.nn.pad(x, (0, 0, 1, 1, 1, 1, 0, 0)), (floats(1, 5, 5, 8),)),
    "join of channels": (lambda x, y: op.concat([x, y], axis=2), (floats(2, 3, 8), floats(2, 3, 12))),
    "join of odd parts": (lambda x, y: op.concat([x, y], axis=1), (floats(2, 3, 5), floats(2, 4, 5))),
    "transposition": (lambda x: op.permute_dims(x, (0, 2, 1)), (floats(2, 37, 45),)),
    "transposition and sum": (
        lambda x, y: op.add(op.permute_dims(x, (0, 2, 3, 1)), y),
        (floats(2, 20, 9, 9), floats(2, 9, 9, 20)),
    ),
}

FAMILIES = {"rows": ROWS, "windows": WINDOWS, "elementwise": ELEMENTWISE}
CASES = {name: (family, case) for family, cases in FAMILIES.items() for name, case in cases.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_computes_what_the_function_says(name: str) -> None:
    family, (build, kinds) = CASES[name]
    function = legalized(build, *kinds)

    assert family_of(function) == family
    assert_computes(function)


@pytest.mark.parametrize("name", CASES)
def test_a_function_is_one_kernel_without_intermediate_results_in_memory(name: str) -> None:
    _, (build, kinds) = CASES[name]

    assert_one_kernel(code_of(legalized(build, *kinds)))


def test_rows_are_gathered_in_vectors() -> None:
    function = legalized(lambda x, i: op.take(x, i, axis=0), floats(11, 24), ((1, 6), "int64"))

    assert family_of(function) == "elementwise"
    assert "float4" in kernels_of(code_of(function))


@pytest.mark.parametrize(
    ("name", "loads"),
    [("softmax of vectors", 1), ("layer norm", 3), ("RMS norm", 2), ("sum of vectors", 2), ("bias", 2)],
)
def test_memory_is_read_once_in_vectors_of_16_bytes(name: str, loads: int) -> None:
    _, (build, kinds) = CASES[name]
    kernels = kernels_of(code_of(legalized(build, *kinds)))

    read = [line for line in kernels.splitlines() if "= *(float4*)(x" in line]
    assert len(read) == loads
    assert "*(float4*)(T_" in kernels or "*(float4*)(compute" in kernels


@pytest.mark.sampled
@pytest.mark.skipif(toolkit() is None, reason="the CUDA compilers are not installed")
@pytest.mark.parametrize(
    ("build", "kinds"),
    [
        (op.nn.softmax, (floats(512, 32768),)),
        (
            lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
            (halves(512, 8192), halves(8192), halves(8192)),
        ),
        (lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1), layout="NHWC"), (floats(8, 112, 112, 64),)),
    ],
)
def test_registers_hold_a_row(build: Build, kinds: tuple[Kind, ...], tmp_path: Path) -> None:
    usage = usage_of(code_of(legalized(build, *kinds)), tmp_path)

    assert [(kernel.spilled_bytes, kernel.stack_bytes) for kernel in usage] == [(0, 0)]


MASK = ((64, 64), "bool")


@pytest.mark.parametrize(
    ("build", "kinds"),
    [
        pytest.param(
            lambda m, x, y: op.where(m, x, y), (MASK, halves(64, 64), halves(64, 64)), id="elements"
        ),
        pytest.param(lambda x, y: op.greater(x, y), (halves(64, 64), halves(64, 64)), id="result"),
    ],
)
def test_booleans_are_read_one_by_one(build: Build, kinds: tuple[Kind, ...]) -> None:
    """TVM reads vectors of booleans as 16-bit numbers: an address may be misaligned, and values wrong."""
    kernels = kernels_of(code_of(legalized(build, *kinds)))

    assert "bool*" in kernels
    assert "ushort" not in kernels
