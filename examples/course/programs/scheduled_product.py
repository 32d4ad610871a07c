"""A matrix product that its author has scheduled: rows in parallel, and eight columns at a time."""

import numpy as np
import tvm
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def product(
    A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")
) -> None:
    for i in T.parallel(128):
        for j0, k in T.grid(16, 128):
            for j1 in T.vectorized(8):
                with T.sblock("C"):
                    vi = T.axis.spatial(128, i)
                    vj = T.axis.spatial(128, j0 * 8 + j1)
                    vk = T.axis.reduce(128, k)
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.matmul(a, b)
