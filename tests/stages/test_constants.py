"""Constants made of arrays."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from worker.compiler.layout.constants import array_of, constant_of

MATRIX = np.arange(24).reshape(4, 6) % 5

VIEWS: dict[str, Callable[[Any], Any]] = {
    "a matrix": lambda a: a,
    "a transposed matrix": lambda a: a.T,
    "rows in reverse": lambda a: a[::-1],
    "every other column": lambda a: a[:, ::2],
    "a repeated row": lambda a: np.broadcast_to(a[:1], (4, 6)),
    "no element": lambda a: a[0, 0:0],
    "an array without dimensions": lambda a: np.array(a[0, 1]),
    "a scalar": lambda a: a[0, 1],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint16", "uint32", "int64", "bool"])
def test_a_constant_has_the_elements_of_any_array(dtype: str, view: str) -> None:
    matrix = MATRIX.astype(dtype)
    matrix.flags.writeable = False
    values = VIEWS[view](matrix)

    made = array_of(constant_of(values))

    assert made.dtype == values.dtype
    assert np.array_equal(made, values)


def test_a_constant_may_have_a_type_that_numpy_lacks() -> None:
    values = MATRIX.astype(ml_dtypes.bfloat16)

    assert np.array_equal(array_of(constant_of(values)), values)
