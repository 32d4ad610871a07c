"""Tensor cores, by their definition: the reference executor multiplies matrices that lie in registers."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from tests.gpu.kernel import run_function
from tests.gpu.memory import numpy_dtype
from tests.gpu.run import assert_close

# C[16, 8] = A[16, k] * B[8, k]', rows of 16 bytes loaded by ldmatrix, C stored as the PTX ISA lays it out.
MMA = '''
@T.prim_func(s_tir=True, private=True)
def multiply(
    a: T.Buffer(({a_size},), "{dtype}"), b: T.Buffer(({b_size},), "{dtype}"), c: T.Buffer((128,), "{sums}")
):
    block = T.launch_thread("blockIdx.x", 1)
    left = T.alloc_buffer(({a_size},), "{dtype}", scope="shared")
    right = T.alloc_buffer(({b_size},), "{dtype}", scope="shared")
    x = T.alloc_buffer(({a_size} // 32,), "{dtype}", scope="local")
    y = T.alloc_buffer(({b_size} // 32,), "{dtype}", scope="local")
    z = T.alloc_buffer((4,), "{sums}", scope="local")
    lane = T.launch_thread("threadIdx.x", 32)
    for i in range({a_size} // 32):
        left[i * 32 + lane] = a[i * 32 + lane]
    for i in range({b_size} // 32):
        right[i * 32 + lane] = b[i * 32 + lane]
    for i in range(4):
        z[i] = T.Cast("{sums}", 0)
    T.tvm_storage_sync("shared")
    T.evaluate(T.ptx_legacy.ldmatrix(
        False, {chunks} * 2, ".b16", x.data, 0,
        left.data, lane % 16 * {k} + lane // 16 % {chunks} * {chunk}, dtype="{dtype}"))
    T.evaluate(T.ptx_legacy.ldmatrix(
        False, {chunks}, ".b16", y.data, 0,
        right.data, lane % 8 * {k} + lane // 8 % {chunks} * {chunk}, dtype="{dtype}"))
    T.evaluate(T.ptx_legacy.mma(
        "m16n8k{k}", "row", "col", "{name}", "{name}", "{sums_name}",
        x.data, 0, y.data, 0, z.data, 0, False, dtype="{sums}"))
    for i in range(4):
        c[(lane // 4 + i // 2 * 8) * 8 + lane % 4 * 2 + i % 2] = z[i]
'''

NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "tf32", "int8": "int8"}


@pytest.mark.parametrize(
    ("dtype", "k", "sums", "tolerance"),
    [
        ("float16", 16, "float32", 1e-6),
        ("float16", 8, "float32", 1e-6),
        ("float16", 16, "float16", 1e-3),
        ("bfloat16", 16, "float32", 1e-6),
        ("bfloat16", 8, "float32", 1e-6),
        ("float32", 8, "float32", 2e-3),
        ("int8", 32, "int32", 0),
    ],
)
def test_mma_multiplies(dtype: str, k: int, sums: str, tolerance: float) -> None:
    chunk = 16 // numpy_dtype(dtype).itemsize
    source = MMA.format(
        a_size=16 * k,
        b_size=8 * k,
        dtype=dtype,
        sums=sums,
        k=k,
        chunk=chunk,
        chunks=k // chunk,
        name=NAMES[dtype],
        sums_name={"float32": "fp32", "float16": "fp16", "int32": "int32"}[sums],
    )
    generator = np.random.default_rng(0)
    a, b = (
        (10 * generator.standard_normal((rows, k))).astype(numpy_dtype(dtype)) for rows in (16, 8)
    )
    c = np.zeros((16, 8), sums)
    run_function(_kernel(source), [a.reshape(-1), b.reshape(-1), c.reshape(-1)], 2)
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    assert_close(c, expected.astype(sums), tolerance)


def test_tf32_ignores_the_last_bits() -> None:
    from tests.gpu.tensor_cores import to_tf32

    values = np.array([1 + 2**-10, 1 + 2**-11, -3 - 2**-20], np.float32)
    np.testing.assert_array_equal(to_tf32(values), np.array([1 + 2**-10, 1, -3], np.float32))


WMMA = '''
@T.prim_func(s_tir=True, private=True)
def multiply(a: T.Buffer((256,), "float16"), b: T.Buffer((256,), "float16"), c: T.Buffer((512,), "float32")):
    block = T.launch_thread("blockIdx.x", 2)
    x = T.alloc_buffer((256,), "float16", scope="wmma.matrix_a")
    y = T.alloc_buffer((256,), "float16", scope="wmma.matrix_b")
    z = T.alloc_buffer((256,), "float32", scope="wmma.accumulator")
    lane = T.launch_thread("threadIdx.x", 32)
    T.evaluate(T.tvm_fill_fragment(z.data, 16, 16, 16, 0, T.float32(1), dtype="handle"))
    T.evaluate(T.tvm_load_matrix_sync(x.data, 16, 16, 16, 0, T.tvm_access_ptr(
        T.type_annotation("float16"), a.data, 0, 256, 1, dtype="handle"), 16, "row_major", dtype="handle"))
    T.evaluate(T.tvm_load_matrix_sync(y.data, 16, 16, 16, 0, T.tvm_access_ptr(
        T.type_annotation("float16"), b.data, 0, 256, 1, dtype="handle"), 16, "{order}", dtype="handle"))
    T.evaluate(T.tvm_mma_sync(z.data, 0, x.data, 0, y.data, 0, z.data, 0, dtype="handle"))
    T.evaluate(T.tvm_store_matrix_sync(z.data, 16, 16, 16, 0, T.tvm_access_ptr(
        T.type_annotation("float32"), c.data, block * 256, 256, 2, dtype="handle"), 16, "row_major", dtype="handle"))
'''


@pytest.mark.parametrize("order", ["row_major", "col_major"])
def test_wmma_multiplies(order: str) -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((16, 16)).astype(np.float16) for _ in range(2))
    c = np.zeros((2, 16, 16), np.float32)
    run_function(_kernel(WMMA.format(order=order)), [a.reshape(-1), b.reshape(-1), c.reshape(-1)], 2)
    right = b if order == "row_major" else b.T
    expected = 1 + a.astype(np.float32) @ right.astype(np.float32)
    assert_close(c, np.stack([expected, expected]), 1e-6)


LDMATRIX = '''
@T.prim_func(s_tir=True, private=True)
def load(x: T.Buffer((256,), "float16"), y: T.Buffer((256,), "float16")):
    block = T.launch_thread("blockIdx.x", 1)
    shared = T.alloc_buffer((256,), "float16", scope="shared")
    registers = T.alloc_buffer((8,), "float16", scope="local")
    lane = T.launch_thread("threadIdx.x", 32)
    for i in range(8):
        shared[lane * 8 + i] = x[lane * 8 + i]
    T.tvm_storage_sync("shared")
    T.evaluate(T.ptx_legacy.ldmatrix(
        {transposed}, {count}, ".b16", registers.data, 0, shared.data, lane % ({count} * 8) * 8, dtype="float16"))
    for i in range(8):
        y[lane * 8 + i] = T.float16(0)
    for i in range({count} * 2):
        y[lane * 8 + i] = registers[i]
'''


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_gives_each_lane_a_pair_of_each_matrix(count: int, transposed: bool) -> None:
    x, y = np.arange(256, dtype=np.float16), np.zeros(256, np.float16)
    run_function(_kernel(LDMATRIX.format(count=count, transposed=transposed)), [x, y], 1)
    matrices = x.reshape(4, 8, 8)
    for lane, matrix, pair in np.ndindex(32, count, 2):
        row, column = lane // 4, lane % 4 * 2 + pair
        wanted = matrices[matrix, column, row] if transposed else matrices[matrix, row, column]
        assert y.reshape(32, 8)[lane, matrix * 2 + pair] == wanted


def _kernel(source: str) -> object:
    return tvm.script.from_source(source, extra_vars={"T": T})
