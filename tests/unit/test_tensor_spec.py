"""Tensors as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bessemer.contract.tensor import MAX_DIMENSION, MAX_RANK, DType, TensorSpec, parse_tensor_spec

SPECS = st.builds(
    TensorSpec,
    name=st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,20}", fullmatch=True),
    shape=st.lists(st.integers(1, MAX_DIMENSION), max_size=MAX_RANK).map(tuple),
    dtype=st.sampled_from(DType),
)


@given(SPECS)
def test_a_spec_is_read_back_from_its_text(spec: TensorSpec) -> None:
    assert parse_tensor_spec(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "full"), [("x=1x784", "x=1x784:float32"), ("n=scalar:int64", "n=scalar:int64")]
)
def test_the_text_names_every_part(text: str, full: str) -> None:
    assert str(parse_tensor_spec(text)) == full
