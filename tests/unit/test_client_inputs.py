"""The ways to say what a model takes."""

from typing import Any

import numpy as np
import pytest

from bessemer.client.inputs import named_specs, spec_of
from bessemer.contract.tensor import DType, TensorSpec
from bessemer.errors import InvalidArgumentError

X = TensorSpec(name="x", shape=(1, 784))


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        (TensorSpec(name="other", shape=(1, 784)), X),
        ((1, 784), X),
        ([1, 784], X),
        ("1x784", X),
        ("1x784:int64", TensorSpec(name="x", shape=(1, 784), dtype=DType.INT64)),
        (np.zeros((1, 784), np.float32), X),
        (np.zeros((), np.bool_), TensorSpec(name="x", shape=(), dtype=DType.BOOL)),
        ((), TensorSpec(name="x", shape=())),
    ],
)
def test_a_value_says_shape_and_dtype(value: Any, spec: TensorSpec) -> None:
    assert spec_of("x", value) == spec


@pytest.mark.parametrize("value", [None, 3, "1xa", (0,), (1.5,), np.zeros(1, np.complex64), "1:float31"])
def test_a_value_that_says_neither_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="'x'"):
        spec_of("x", value)


def test_inputs_in_order_need_names() -> None:
    assert named_specs([X, "y=2:int8"])[1] == TensorSpec(name="y", shape=(2,), dtype=DType.INT8)
    assert named_specs([(1, 784)], names=["x"]) == (X,)
    with pytest.raises(InvalidArgumentError, match="has no name"):
        named_specs([(1, 784)])
