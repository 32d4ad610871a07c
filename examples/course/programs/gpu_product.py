"""A matrix product built with ``te``, without a schedule: a search writes its loops."""

import numpy as np
import tvm
from tvm import te

SIZE = 1024

a = te.placeholder((SIZE, SIZE), "float32", name="a")
b = te.placeholder((SIZE, SIZE), "float32", name="b")
k = te.reduce_axis((0, SIZE), name="k")
c = te.compute((SIZE, SIZE), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
Module = tvm.IRModule({"product": te.create_prim_func([a, b, c])})


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b
