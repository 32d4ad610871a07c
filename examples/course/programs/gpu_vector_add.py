"""A sum of vectors whose loops its author has bound to the blocks and threads of a GPU."""

import numpy as np
import tvm
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def vector_add(
    A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float32"), C: T.Buffer((4096,), "float32")
) -> None:
    for block in T.thread_binding(32, thread="blockIdx.x"):
        for thread in T.thread_binding(128, thread="threadIdx.x"):
            with T.sblock("C"):
                i = T.axis.spatial(4096, block * 128 + thread)
                C[i] = A[i] + B[i]


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a + b
