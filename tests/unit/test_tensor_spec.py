"""Tensors as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bessemer.contract.tensor import (
    MAX_DIMENSION,
    MAX_RANK,
    DType,
    InputSpec,
    parse_input_spec,
)

DIMENSIONS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
SPECS = st.builds(
    InputSpec,
    name=st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,20}", fullmatch=True),
    shape=st.lists(st.integers(1, MAX_DIMENSION) | DIMENSIONS, max_size=MAX_RANK).map(tuple),
    dtype=st.sampled_from([None, *DType]),
)


@given(SPECS)
def test_a_spec_is_read_back_from_its_text(spec: InputSpec) -> None:
    assert parse_input_spec(str(spec)) == spec


@pytest.mark.parametrize(("text", "dtype"), [("x=1x784", None), ("n=scalar:int64", DType.INT64)])
def test_the_text_names_every_given_part(text: str, dtype: DType | None) -> None:
    assert parse_input_spec(text).dtype is dtype
    assert str(parse_input_spec(text)) == text


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("x=batchx3x224x224", ("batch", 3, 224, 224)),
        ("x=batchxlength", ("batch", "length")),
        ("x=2x[index]x[x_0]", (2, "index", "x_0")),
        ("x=[scalar]", ("scalar",)),
    ],
)
def test_a_size_may_be_a_name(text: str, shape: tuple[int | str, ...]) -> None:
    assert parse_input_spec(text).shape == shape
    assert str(parse_input_spec(text)) == text


@pytest.mark.parametrize("text", ["x=1x", "x=indexx3", "x=1-3", "x=3batch", "x=[]x3", "x=[1-]", "x=x"])
def test_an_invalid_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a shape|expected a size"):
        parse_input_spec(text)


def test_a_spec_of_names_has_a_shape_at_given_sizes() -> None:
    spec = parse_input_spec("x=batchx3xbatch:int8")
    assert str(spec.at({"batch": 5})) == "x=5x3x5:int8"
    assert spec.named_axes == {0: "batch", 2: "batch"}
