"""The ways to describe a model's inputs."""

from typing import Any

import numpy as np
import pytest

from bessemer.client.inputs import named_specs, ranges_of, spec_of
from bessemer.contract.dynamic import DimensionRange
from bessemer.contract.tensor import DType, InputSpec, TensorSpec
from bessemer.errors import InvalidArgumentError

X = InputSpec(name="x", shape=(1, 784))


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        (InputSpec(name="other", shape=(1, 784)), X),
        ((1, 784), X),
        ([1, 784], X),
        ("1x784", X),
        ("1x784:int64", InputSpec(name="x", shape=(1, 784), dtype=DType.INT64)),
        (np.zeros((1, 784), np.float32), X),
        (np.zeros((), np.bool_), InputSpec(name="x", shape=(), dtype=DType.BOOL)),
        ((), InputSpec(name="x", shape=())),
        (np.zeros(2, np.complex64), InputSpec(name="x", shape=(2,), dtype=DType.COMPLEX64)),
        (TensorSpec(name="other", shape=(1, 784)), TensorSpec(name="x", shape=(1, 784))),
        (("batch", 784), InputSpec(name="x", shape=("batch", 784))),
        ((np.int64(1), np.int32(784)), X),
        ("batchx784", InputSpec(name="x", shape=("batch", 784))),
    ],
)
def test_a_value_provides_shape_and_dtype(value: Any, spec: InputSpec) -> None:
    assert spec_of("x", value) == spec


@pytest.mark.parametrize(
    "value", [None, 3, "1x-", (0,), ("a b",), (1.5,), (True,), np.zeros(1, np.uint32), "1:float31"]
)
def test_a_value_without_shape_and_dtype_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="'x'"):
        spec_of("x", value)


@pytest.mark.parametrize("value", [(("batch",), "int64"), None, (1.5, 2)])
def test_a_value_of_another_form_is_refused_with_the_accepted_forms(value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        spec_of("user", value)
    assert str(caught.value).startswith(f"input 'user' is {value!r}; expected ('batch', 784) of float32, ")


def test_inputs_in_order_need_names() -> None:
    assert named_specs([X, "y=2:int8"])[1] == InputSpec(name="y", shape=(2,), dtype=DType.INT8)
    assert named_specs([(1, 784)], names=["x"]) == (X,)
    with pytest.raises(InvalidArgumentError, match="has no name"):
        named_specs([(1, 784)])


def test_ranges_are_read_from_pairs_and_texts() -> None:
    unbound = DimensionRange(minimum=2)
    given = {"a": (1, 64), "b": "1..64@8", "c": (2, None), "d": "2..", "e": unbound, "f": np.array([1, 8])}
    ranges = ranges_of(given)  # type: ignore[arg-type]
    assert list(map(str, ranges.values())) == ["1..64", "1..64@8", "2..", "2..", "2..", "1..8"]


@pytest.mark.parametrize("value", [(4, 4), (0, 4), "1-64", "4", (1,), 3])
def test_an_invalid_range_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="dimension 'batch'"):
        ranges_of({"batch": value})
