import numpy as np
import pytest

from bessemer.contract.options import Tolerance
from worker.compiler.checking.compare import highest_ceiling, is_as_exact, own_rounding, scale_of, widen

NAN, INF = float("nan"), float("inf")
FLOAT32 = Tolerance(relative=1e-4, absolute=1e-5)
MASK = -3.4e38


@pytest.mark.parametrize(
    ("reference", "exact", "rounding"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.00005], [1.0], 0.0),
        ([3e-5], [0.0], 3e-5),
        ([1.0003], [1.0], 2e-4),
        ([MASK, 3e-5], [MASK * (1 + 1e-7), 0.0], 3e-5),
        ([NAN, INF, -INF], [NAN, INF, -INF], 0.0),
        ([NAN], [1.0], INF),
        ([1.0], [NAN], INF),
        ([INF], [1.0], INF),
        ([], [], 0.0),
    ],
)
def test_errors_within_the_relative_tolerance_do_not_count_as_rounding(
    reference: list[float], exact: list[float], rounding: float
) -> None:
    found = own_rounding(np.array(reference, "float32"), np.array(exact), FLOAT32)

    assert found == pytest.approx(rounding, rel=1e-2)


def test_an_element_that_happens_to_be_exact_does_not_hide_the_rounding_of_others_near_zero() -> None:
    exact = np.arange(1.0, 41.0)
    reference = exact + np.where(np.arange(40) == 3, 3e-4, 0.0)
    assert own_rounding(reference, exact, FLOAT32) == pytest.approx(3e-4)


def test_the_errors_of_large_elements_do_not_hide_those_of_small_ones() -> None:
    exact = np.concatenate([np.full(4, 1e-3), np.full(36, 1e6)])
    reference = exact * (1 + 1e-6)
    assert own_rounding(reference, exact, FLOAT32) == pytest.approx(1e-9, rel=1e-3)


@pytest.mark.parametrize(
    ("rounding", "scale", "absolute"),
    [
        pytest.param(0.0, 1.0, 1e-5, id="a reference that is exact widens nothing"),
        pytest.param(2e-6, 1.0, 1e-5, id="nor does one that is nearer than the tolerance"),
        pytest.param(3e-5, 1.0, 12e-5, id="four times its rounding"),
        pytest.param(3e-2, 100.0, 1e-5, id="an error beyond rounding widens nothing"),
        pytest.param(2e-2, 100.0, 8e-2, id="how much that is depends on the largest element"),
        pytest.param(INF, 1.0, 1e-5, id="nor does a reference that is not finite where float64's is"),
    ],
)
def test_the_absolute_part_is_as_wide_as_the_reference_is_rounded(
    rounding: float, scale: float, absolute: float
) -> None:
    widened = widen(FLOAT32, rounding, scale)

    assert widened.relative == FLOAT32.relative
    assert widened.absolute == pytest.approx(absolute)


@pytest.mark.parametrize(
    ("dtype", "rounding", "absolute"),
    [
        ("float16", 0.02, 0.08),
        ("float16", 0.03, 1e-2),
        ("bfloat16", 0.02, 0.08),
        ("bfloat16", 0.19, 0.76),
        ("bfloat16", 0.21, 1e-2),
    ],
)
def test_narrow_types_are_widened_by_ten_distances_of_the_largest_number_at_most(
    dtype: str, rounding: float, absolute: float
) -> None:
    widened = widen(Tolerance(relative=4e-2, absolute=1e-2), rounding, 10.0, highest_ceiling(dtype))
    assert widened.absolute == absolute


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        pytest.param([1.1, 2.0], [1.0, 2.1], True, id="errors of the same size elsewhere"),
        pytest.param([1.1, 2.3], [1.0, 2.1], False, id="errors three times as large"),
        pytest.param([1.0, 2.0], [1.0, 2.0], True, id="no errors"),
        pytest.param([1.1, 2.0], [1.0, 2.0], False, id="errors where the model has none"),
        pytest.param([NAN, 2.0], [1.0, 2.1], False, id="no number"),
    ],
)
def test_an_output_is_as_exact_as_its_reference_if_their_errors_are_alike(
    output: list[float], reference: list[float], expected: bool
) -> None:
    assert is_as_exact(np.array(output), np.array(reference), np.array([1.0, 2.0])) is expected


@pytest.mark.parametrize(
    ("elements", "scale"), [([1.0, -3.0], 3.0), ([INF, NAN, 2.0], 2.0), ([NAN], 0.0), ([], 0.0)]
)
def test_the_scale_is_the_largest_finite_magnitude(elements: list[float], scale: float) -> None:
    assert scale_of(np.array(elements)) == scale
