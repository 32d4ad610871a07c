"""The inputs of a request are matched with a model's arguments."""

import pytest
from tensor_samples import tensor

from bessemer.contract.problem import ErrorCode
from bessemer.contract.tensor import TensorSpec
from worker.compiler.frontend.dynamic_shapes import AffineSize, SymbolicAxis
from worker.compiler.frontend.loaded_model import Argument
from worker.compiler.frontend.signature import match_inputs
from worker.errors import JobError

X = tensor("x=1x3")
Y = tensor("y=4:int64")


def named(*names: str) -> tuple[Argument, ...]:
    return tuple(Argument(name) for name in names)


def test_inputs_come_in_the_order_of_the_arguments() -> None:
    assert match_inputs((Y, X), named("x", "y")) == (X, Y)


def test_a_model_with_known_inputs_needs_none() -> None:
    assert match_inputs((), (Argument("x", X), Argument("y", Y))) == (X, Y)


def test_a_model_with_unknown_inputs_needs_them() -> None:
    with pytest.raises(JobError) as caught:
        match_inputs((), named("x", "y"))
    assert caught.value.code is ErrorCode.INPUTS_MISSING
    assert "x, y" in caught.value.detail


def test_an_argument_with_a_default_may_be_left_out() -> None:
    assert match_inputs((X,), (Argument("x"), Argument("y", required=False))) == (X,)
    assert match_inputs((Y,), (Argument("x", required=False), Argument("y"))) == (Y,)


def test_a_dynamic_axis_takes_another_size() -> None:
    wide = tensor("x=7x3")
    assert match_inputs((wide,), (Argument("x", X, frozenset({0})),)) == (wide,)


@pytest.mark.parametrize(
    ("requested", "arguments", "message"),
    [
        ((X, Y), named("x"), "no input 'y'"),
        ((X,), named("x", "y"), "'y' is missing"),
        ((Y,), named("x"), "no input 'y'; forward's input 'x' is missing"),
        ((tensor("x=1x4"),), (Argument("x", X),), "wrong size in axis 1"),
        ((tensor("x=3"),), (Argument("x", X),), "has rank 2, not 1"),
        ((tensor("x=1x3:int64"),), (Argument("x", X),), "is float32, not int64"),
    ],
)
def test_mismatched_inputs_are_listed_with_the_expected_ones(
    requested: tuple[TensorSpec, ...], arguments: tuple[Argument, ...], message: str
) -> None:
    with pytest.raises(JobError) as caught:
        match_inputs(requested, arguments)
    assert caught.value.code is ErrorCode.INPUTS_MISMATCH
    assert message in caught.value.detail
    assert "expected" in caught.value.detail
    assert "given" in caught.value.detail


@pytest.mark.parametrize(
    ("axis", "size", "message"),
    [
        (SymbolicAxis(0, AffineSize("s"), 1, 64), 65, "65 in axis 0, which accepts 1 to 64"),
        (SymbolicAxis(0, AffineSize("s"), 2, None), 1, "1 in axis 0, which accepts 2 or more"),
        (SymbolicAxis(0, AffineSize("s", 2, 1), 1, 8), 4, "4 in axis 0, which accepts 3 to 17 in steps of 2"),
    ],
)
def test_a_size_beyond_the_range_of_the_file_is_refused_with_the_range(
    axis: SymbolicAxis, size: int, message: str
) -> None:
    argument = Argument("x", X, frozenset({0}), symbolic_axes=(axis,))
    with pytest.raises(JobError) as caught:
        match_inputs((tensor(f"x={size}x3"),), (argument,))
    assert caught.value.code is ErrorCode.INPUTS_MISMATCH
    assert message in caught.value.detail
