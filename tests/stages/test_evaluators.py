"""Calls on constants that numpy computes, beside what TVM computes."""

from collections.abc import Callable

import ml_dtypes  # noqa: F401 - gives NumPy bfloat16
import numpy as np
import pytest
import tvm
from tvm import relax

from worker.compiler.rewrites.fold import evaluate_constants, fold_constants

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
NUMBERS = np.arange(6, dtype=np.int64).reshape(2, 3)

Make = Callable[[], relax.Expr]


def const(values: object, dtype: str | None = None) -> relax.Expr:
    array = np.asarray(values, dtype)
    return relax.const(array, str(array.dtype))


COMPUTED: dict[str, Make] = {
    "rows of a table": lambda: relax.op.take(const(TABLE), const([3, 0, 3]), axis=0),
    "elements along an axis": lambda: relax.op.gather_elements(const(TABLE), const([[1], [0], [2], [0]]), 1),
    "a slice that ends before the last": lambda: relax.op.strided_slice(const(TABLE), (0,), (-3,), (-1,)),
    "a slice with a step": lambda: relax.op.strided_slice(const(TABLE), (0, 1), (0, 1), (4, 9), (2, 1)),
    "a tensor with a part replaced": lambda: relax.op.slice_scatter(
        const(TABLE), const(np.ones((4, 2), np.float32)), 1, 3, 1, axis=1
    ),
    "a small tensor of one value": lambda: relax.op.full((2, 3), const(7, "int64"), "int64"),
    "a choice": lambda: relax.op.where(const(NUMBERS > 2), const(NUMBERS), const(0, "int64")),
    "a quotient of integers": lambda: relax.op.divide(const(NUMBERS), const(2, "int64")),
    "a quotient of floats": lambda: relax.op.divide(const(TABLE), const(3, "float32")),
    "a remainder": lambda: relax.op.mod(const(NUMBERS), const(4, "int64")),
    "comparisons": lambda: relax.op.logical_and(
        relax.op.less(const(NUMBERS), const(4, "int64")),
        relax.op.logical_not(relax.op.equal(const(NUMBERS), const(1, "int64"))),
    ),
    "a sum of scalars": lambda: relax.op.add(const(1.5, "float32"), const(2, "float32")),
    "a comparison of scalars": lambda: relax.op.equal(const(1, "int64"), const(2, "int64")),
    "an element of a vector": lambda: relax.op.take(const(TABLE[0]), const(1, "int64"), axis=0),
    "a transposed matrix": lambda: relax.op.permute_dims(const(TABLE)),
    "a transposed matrix of bfloat16": lambda: relax.op.permute_dims(const(TABLE / 7, "bfloat16")),
    "a sum in bfloat16": lambda: relax.op.add(const(TABLE / 7, "bfloat16"), const(0.3, "bfloat16")),
    "bfloat16 widened": lambda: relax.op.astype(const(TABLE / 7, "bfloat16"), "float32"),
    "float16 widened": lambda: relax.op.astype(const(TABLE / 7, "float16"), "float32"),
}


LEFT_TO_TVM: dict[str, Make] = {
    "a number that is rounded": lambda: relax.op.astype(const(TABLE / 7), "bfloat16"),
    "a quotient of bfloat16": lambda: relax.op.divide(const(TABLE, "bfloat16"), const(3, "bfloat16")),
    "an index out of bounds": lambda: relax.op.take(const(TABLE), const([4]), axis=0),
    "a quotient of negative integers": lambda: relax.op.divide(const(-NUMBERS), const(2, "int64")),
    "a division by zero": lambda: relax.op.divide(const(TABLE), const(0, "float32")),
    "a large tensor of one value": lambda: relax.op.full((1 << 9, 1 << 9), const(0, "float32"), "float32"),
}


def module_of(make: Make) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(make()))
        builder.emit_func_output(result)
    return builder.get()


def computed(module: tvm.IRModule) -> np.ndarray | None:
    """The constant that ``main`` returns; None if it calls an operator."""
    body = module["main"].body
    bound = {binding.var: binding.value for block in body.blocks for binding in block.bindings}
    result = bound.get(body.body, body.body)
    return result.value.numpy() if isinstance(result, tvm.ir.GenericConst) else None


@pytest.mark.parametrize("make", COMPUTED.values(), ids=COMPUTED)
def test_numpy_computes_what_tvm_computes(make: Make) -> None:
    module = module_of(make)

    ours, theirs = computed(evaluate_constants(module)), computed(fold_constants(module))

    assert ours is not None and theirs is not None
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("make", LEFT_TO_TVM.values(), ids=LEFT_TO_TVM)
def test_calls_that_may_differ_are_left_to_tvm(make: Make) -> None:
    assert computed(evaluate_constants(module_of(make))) is None
