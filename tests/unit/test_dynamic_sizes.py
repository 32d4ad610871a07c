"""Dynamic sizes: samples for verification, and sizes that the runner accepts."""

from typing import Any

import pytest
from tensor_samples import tensor

from bessemer.bundle.run import BundleError, InputError, Sizes, Spec
from bessemer.contract.dynamic import (
    DynamicAxis,
    DynamicDimension,
    DynamicShapes,
    shown_shape,
    shown_sizes,
    specs_at,
)
from worker.compiler.frontend.dynamic_shapes import choose_samples

BATCH = DynamicDimension(name="x_0", minimum=1, maximum=64)
LENGTH = DynamicDimension(name="x_1", minimum=2)
SHAPES = DynamicShapes(
    dimensions=(BATCH, LENGTH),
    inputs=(
        DynamicAxis(tensor="x", axis=0, dimension="x_0"),
        DynamicAxis(tensor="x", axis=1, dimension="x_1"),
        DynamicAxis(tensor="y", axis=0, dimension="x_1", factor=2, offset=1),
    ),
    outputs=(
        DynamicAxis(tensor="output", axis=0, dimension="x_1", offset=-1),
        DynamicAxis(tensor="output", axis=1),
    ),
)
X, Y = tensor("x=4x8x3"), tensor("y=17")


@pytest.mark.parametrize(
    ("example", "chosen"),
    [
        ({"x_0": 4, "x_1": 8}, [(1, 2), (3, 5), (11, 21)]),
        ({"x_0": 1, "x_1": 2}, [(5, 9)]),
        ({"x_0": 64, "x_1": 2}, [(1, 2), (33, 2), (64, 9)]),
    ],
)
def test_samples_are_the_smallest_an_odd_and_a_larger_size(
    example: dict[str, int], chosen: list[tuple[int, int]]
) -> None:
    samples = choose_samples((BATCH, LENGTH), example)
    assert [(sizes["x_0"], sizes["x_1"]) for sizes in samples] == chosen


def test_shapes_follow_their_dimensions() -> None:
    assert SHAPES.sizes((X, Y)) == {"x_0": 4, "x_1": 8}
    moved = specs_at((X, Y), SHAPES.inputs, {"x_0": 1, "x_1": 3})
    assert [spec.shape for spec in moved] == [(1, 3, 3), (7,)]


def test_dynamic_sizes_are_shown_as_formulas() -> None:
    assert shown_shape(X, SHAPES.inputs) == "x=[x_0]x[x_1]x3:float32"
    assert shown_shape(Y, SHAPES.inputs) == "y=[2*x_1+1]:float32"
    assert list(map(str, SHAPES.dimensions)) == ["x_0 from 1 to 64", "x_1 from 2 on"]
    assert shown_sizes(SHAPES.sizes((X, Y))) == "at x_0=4, x_1=8"


def chosen(x: tuple[int, ...], y: tuple[int, ...]) -> dict[str, int]:
    sizes = Sizes(SHAPES.model_dump(mode="json"))
    return sizes.choose([(Spec("x", X.shape, "float32"), x), (Spec("y", Y.shape, "float32"), y)])


def test_the_runner_takes_any_size_in_the_range() -> None:
    assert chosen((64, 2, 3), (5,)) == {"x_0": 64, "x_1": 2}
    assert chosen((1, 5000, 3), (10001,)) == {"x_0": 1, "x_1": 5000}


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ((65, 8, 3), (17,), "x_0 from 1 to 64"),
        ((4, 1, 3), (3,), "x_1 from 2 on"),
        ((4, 8, 4), (17,), r"expected x=\[x_0\]x\[x_1\]x3"),
        ((4, 8), (17,), "has the shape"),
        ((4, 8, 3), (18,), "x_1 from 2 on"),
        ((4, 8, 3), (19,), "earlier inputs set x_1 to 8"),
    ],
)
def test_the_runner_refuses_other_sizes_and_names_the_accepted_ones(
    x: tuple[int, ...], y: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        chosen(x, y)


@pytest.mark.parametrize(("shape", "suits"), [((7, 99), True), ((8, 99), False), ((7,), False)])
def test_output_sizes_follow_from_the_inputs(shape: tuple[int, ...], suits: bool) -> None:
    sizes: Any = Sizes(SHAPES.model_dump(mode="json"))
    assert sizes.suits(Spec("output", (7, 3), "float32"), shape, {"x_0": 4, "x_1": 8}) is suits


def test_a_factor_of_zero_is_a_damaged_manifest() -> None:
    entry = {"tensor": "x", "axis": 0, "dimension": "n", "factor": 0, "offset": 0}
    with pytest.raises(BundleError, match="factor of a dynamic size is 0"):
        Sizes({"inputs": [entry]})
