"""The ways to describe a model's inputs."""

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from bessemer.client.containers import unfold
from bessemer.client.inputs import named_specs, ranges_of, spec_of, validated
from bessemer.contract.base import Document
from bessemer.contract.dynamic import DimensionRange
from bessemer.contract.options import BenchmarkOptions, Options, TuneOptions
from bessemer.contract.request import CompilationRequest, Submission
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
        (np.zeros((1, 784), np.float32), InputSpec(name="x", shape=(1, 784), dtype=DType.FLOAT32)),
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
    assert str(caught.value).startswith(f"input 'user' is {value!r}; expected ('batch', 784), ")


def test_inputs_in_order_need_names() -> None:
    assert named_specs([X, "y=2:int8"])[1] == InputSpec(name="y", shape=(2,), dtype=DType.INT8)
    assert named_specs([(1, 784)], names=["x"]) == (X,)
    with pytest.raises(InvalidArgumentError, match="has no name"):
        named_specs([(1, 784)])


@dataclass
class Batch:
    image: object
    masks: object
    scale: float = 1.0


CONTAINERS: dict[str, tuple[object, list[str]]] = {
    "shapes in a list": ([(3, 8), ("rows", 4)], ["x.0=3x8", "x.1=rowsx4"]),
    "a shape, not a list": ([3, "rows"], ["x=3xrows"]),
    "a dictionary": ({"a b": "2:int8", "c": {"d": [X, None]}}, ["x.a_b=2:int8", "x.c.d.0=1x784"]),
    "a dataclass": (Batch((2,), (np.zeros(3), 5), 2.0), ["x.image=2", "x.masks.0=3:float64"]),
    "a named tuple": (namedtuple("Pair", "left right")((2,), True), ["x.left=2"]),
}


@pytest.mark.parametrize(("value", "named"), CONTAINERS.values(), ids=CONTAINERS)
def test_inputs_in_containers_have_dotted_names(value: object, named: list[str]) -> None:
    assert list(map(str, named_specs({"x": value}))) == named
    assert list(map(str, named_specs((value,), ("x",)))) == named


def test_dotted_names_unfold_into_containers() -> None:
    given = {"images.1": 1, "x": 2, "batch.masks.0": 3, "images.0": 4, "batch.image": 5}
    assert unfold(given) == {"images": [4, 1], "x": 2, "batch": {"masks": [3], "image": 5}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"images.0": 1, "images.2": 2}, "'images.1' is missing"),
        ({"images.00": 1}, "'images.0' is missing"),
        ({"batch": 1, "batch.image": 2}, "'batch' is given as a whole and in parts"),
    ],
)
def test_dotted_names_that_contradict_are_refused(given: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        unfold(given)


def test_ranges_are_read_from_pairs_and_texts() -> None:
    unbound = DimensionRange(minimum=2)
    given = {"a": (1, 64), "b": "1..64@8", "c": (2, None), "d": "2..", "e": unbound, "f": np.array([1, 8])}
    ranges = ranges_of(given)  # type: ignore[arg-type]
    assert list(map(str, ranges.values())) == ["1..64", "1..64@8", "2..", "2..", "2..", "1..8"]


@pytest.mark.parametrize("value", [(4, 4), (0, 4), "1-64", "4", (1,), 3])
def test_an_invalid_range_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="dimension 'batch'"):
        ranges_of({"batch": value})


@pytest.mark.parametrize("value", [(2, 128, 64), (1,), 3, (1.5, 8), {"maximum": 8, "minimum": 1}])
def test_a_range_of_another_form_is_refused_with_the_accepted_forms(value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ranges_of({"seq": value})
    assert str(caught.value).startswith(f"dimension 'seq' is {value!r}; expected (1, 64), (1, None) ")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tune": {"trails": 3}}, "tune.trails: unknown field; did you mean 'trials'?"),
        ({"zzzzzz": 1}, "zzzzzz: unknown field"),
    ],
)
@pytest.mark.parametrize("kind", [CompilationRequest, Submission])
def test_an_unknown_field_comes_with_the_nearest_one(
    kind: type[Document], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        validated(kind, {"model": "0" * 64, "target": {"preset": "host"}, **fields})
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (TuneOptions, {"trails": 3}, "TuneOptions: trails: unknown field; did you mean 'trials'?"),
        (TuneOptions, {"trials": "3"}, "TuneOptions: trials: expected a whole number"),
        (TuneOptions, {"force": True}, "TuneOptions: `force` needs `spaces`"),
        (BenchmarkOptions, {"seconds": 0}, "BenchmarkOptions: seconds: expected more than 0"),
    ],
)
def test_a_misspelled_option_in_python_is_refused_in_one_line(
    kind: type[Options], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        kind(**fields)
    assert str(refusal.value) == message
