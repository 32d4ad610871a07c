import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.console.treemap import Rectangle, squarify

BOX = Rectangle(10, 20, 600, 400)
weights = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=60)
plain_weights = st.lists(st.floats(min_value=1e-6, max_value=1e6), min_size=1, max_size=60)


def test_the_example_of_the_paper_is_laid_out_as_in_the_paper() -> None:
    """Figure 4 of Bruls, Huizing and van Wijk: areas 6, 6, 4, 3, 2, 2, 1 in a rectangle of 6 by 4."""
    found = squarify([6, 6, 4, 3, 2, 2, 1], Rectangle(0, 0, 6, 4))

    assert [tuple(round(value, 3) for value in each) for each in found[:4]] == [
        (0, 0, 3, 2),
        (0, 2, 3, 2),
        (3, 0, 1.714, 2.333),
        (4.714, 0, 1.286, 2.333),
    ]


@given(plain_weights)
def test_areas_are_in_proportion_and_fill_the_box(given_weights: list[float]) -> None:
    found = squarify(given_weights, BOX)

    total = math.fsum(given_weights)
    assert math.fsum(each.area for each in found) == pytest.approx(BOX.area, rel=1e-6)
    for weight, each in zip(given_weights, found, strict=True):
        assert each.area == pytest.approx(BOX.area * weight / total, rel=1e-4, abs=1e-6)


@given(plain_weights)
def test_rectangles_stay_inside_and_do_not_overlap(given_weights: list[float]) -> None:
    found = squarify(given_weights, BOX)

    for index, each in enumerate(found):
        assert each.x >= BOX.x - 1e-6
        assert each.y >= BOX.y - 1e-6
        assert each.x + each.width <= BOX.x + BOX.width + 1e-6
        assert each.y + each.height <= BOX.y + BOX.height + 1e-6
        assert all(_overlap(each, other) <= 1e-3 for other in found[:index])


@given(weights)
def test_any_numbers_get_rectangles(given_weights: list[float]) -> None:
    found = squarify(given_weights, BOX)

    assert len(found) == len(given_weights)
    assert all(math.isfinite(value) and value >= 0 for each in found for value in each)
    assert all(
        each.area == 0
        for weight, each in zip(given_weights, found, strict=True)
        if not (math.isfinite(weight) and weight > 0)
    )


@pytest.mark.parametrize("box", [Rectangle(0, 0, 0, 5), Rectangle(0, 0, 5, 0)])
def test_a_box_without_area_holds_nothing(box: Rectangle) -> None:
    assert all(each.area == 0 for each in squarify([1, 2], box))


def test_similar_weights_make_rectangles_near_squares() -> None:
    found = squarify([1.0] * 12, BOX)

    assert max(max(each.width / each.height, each.height / each.width) for each in found) < 1.6


def _overlap(one: Rectangle, other: Rectangle) -> float:
    width = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
    height = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    return max(width, 0.0) * max(height, 0.0)
