"""Which results of a candidate for a GPU pass for those of the default schedule."""

from __future__ import annotations

import numpy as np
import pytest

from worker.candidates.gpu_timing import contents, difference
from worker.candidates.requests import TensorArgument


@pytest.mark.parametrize(
    ("ours", "wanted", "dtype", "found"),
    [
        ([1.0, 2.0], [1.0, 2.0001], "float32", None),
        ([1.0, 2.0], [1.0, 2.1], "float32", "1 of 2 elements, the first 2 instead of 2.1"),
        ([1.0, 0.0005], [1.0, 0.0], "float32", None),
        ([1.0, 2.0], [1.0, 2.01], "float16", None),
        ([1.0, 5.0], [1.0, np.nan], "float32", None),
        ([np.inf, 1.0], [np.inf, 1.0], "float32", None),
        ([1.0, 1.0], [np.inf, 1.0], "float32", "1 of 2 elements, the first 1 instead of inf"),
        ([np.nan, 1.0], [1.0, 1.0], "float32", "1 of 2 elements, the first nan instead of 1"),
        ([1, 2], [1, 3], "int32", "1 of 2 elements"),
        ([1, 2], [1, 2], "int32", None),
    ],
)
def test_results_differ_if_rounding_cannot_explain_it(
    ours: list[float], wanted: list[float], dtype: str, found: str | None
) -> None:
    assert difference(np.array(ours, dtype), np.array(wanted, dtype), dtype) == found


def test_arguments_are_equal_for_all_candidates_and_differ_from_each_other() -> None:
    argument = TensorArgument("bfloat16", (3, 5))
    first, again, other = contents(argument, 0), contents(argument, 0), contents(argument, 1)
    assert first.shape == (3, 5)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not contents(TensorArgument("int64", (4,)), 0).any()
