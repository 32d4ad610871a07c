from typing import Any

import numpy as np
import pytest

from bessemer.contract.options import Tolerance
from worker.compiler.checking.compare import compare

NAN, INF = float("nan"), float("inf")
EXACT = Tolerance(relative=0, absolute=0)
LOOSE = Tolerance(relative=0.1, absolute=0.01)


@pytest.mark.parametrize(
    ("actual", "reference", "dtype", "tolerance", "mismatches"),
    [
        ([1.0, 2.0], [1.0, 2.0], "float32", EXACT, 0),
        ([1.05, 2.0], [1.0, 2.0], "float32", LOOSE, 0),
        ([1.2, 2.0], [1.0, 2.0], "float32", LOOSE, 1),
        ([0.005], [0.0], "float64", LOOSE, 0),
        ([0.02], [0.0], "float64", LOOSE, 1),
        ([NAN], [NAN], "float32", EXACT, 0),
        ([NAN], [1.0], "float32", LOOSE, 1),
        ([1.0], [NAN], "float32", LOOSE, 1),
        ([NAN], [INF], "float32", LOOSE, 1),
        ([INF, -INF], [INF, -INF], "float16", LOOSE, 0),
        ([INF], [-INF], "float32", LOOSE, 1),
        ([INF], [1.0], "float32", LOOSE, 1),
        ([1.0], [INF], "float32", LOOSE, 1),
        ([3, 4], [3, 4], "int64", EXACT, 0),
        ([3, 5], [3, 4], "int8", EXACT, 1),
        ([2**62 + 1], [2**62], "int64", EXACT, 1),
        ([0], [255], "uint8", EXACT, 1),
        ([-(2**63)], [2**63 - 1], "int64", EXACT, 1),
        ([True, False], [True, False], "bool", EXACT, 0),
        ([True, True], [True, False], "bool", EXACT, 1),
        ([], [], "float32", EXACT, 0),
    ],
)
def test_elements_outside_their_bound_are_mismatches(
    actual: list[Any], reference: list[Any], dtype: str, tolerance: Tolerance, mismatches: int
) -> None:
    found = compare("y", np.array(actual, dtype), np.array(reference, dtype), tolerance)

    assert found.mismatches == mismatches
    assert found.elements == len(reference)
    assert found.dtype == dtype


def test_the_worst_element_is_the_furthest_outside_its_own_bound() -> None:
    actual = np.array([[100.0, 1.0], [0.5, 8.0]])
    reference = np.array([[101.0, 1.0], [0.0, 8.0]])

    found = compare("y", actual, reference, LOOSE)

    assert found.worst_index == (1, 0)
    assert (found.worst_value, found.worst_reference) == (0.5, 0.0)
    assert found.max_absolute_error == 1.0
    assert found.max_relative_error == pytest.approx(1 / 101)


def test_a_nan_where_a_number_belongs_is_the_worst_element() -> None:
    found = compare("y", np.array([9.0, NAN]), np.array([1.0, 1.0]), LOOSE)

    assert found.worst_index == (1,)
    assert found.max_absolute_error == INF


def test_equal_infinities_are_not_the_worst_element() -> None:
    found = compare("y", np.array([INF, 1.0]), np.array([INF, 1.0]), EXACT)

    assert found.worst_index == (1,)
    assert found.max_absolute_error == 0


@pytest.mark.parametrize("values", [[], [NAN, INF]])
def test_without_a_finite_element_no_element_is_worst(values: list[float]) -> None:
    found = compare("y", np.array(values), np.array(values), EXACT)

    assert found.worst_index == ()
    assert (found.worst_value, found.worst_reference) == (0.0, 0.0)


def test_a_scalar_is_compared() -> None:
    found = compare("y", np.array(2.0), np.array(1.0), EXACT)

    assert found.shape == ()
    assert found.mismatches == 1
    assert found.worst_value == 2.0


@pytest.mark.parametrize(
    ("actual", "kind"),
    [
        (np.zeros((2, 3), "float32"), r"float32\[2,3\]"),
        (np.zeros((3, 2), "float64"), r"float64\[3,2\]"),
    ],
)
def test_another_shape_or_dtype_is_refused_with_both_named(actual: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"'y' is {kind}, the model's is float32\[3,2\]"):
        compare("y", actual, np.zeros((3, 2), "float32"), EXACT)
