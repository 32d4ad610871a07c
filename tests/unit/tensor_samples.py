"""Tensors by their text."""

from bessemer.contract.tensor import TensorSpec, parse_input_spec


def tensor(text: str) -> TensorSpec:
    """``x=1x3:int64``: every size is a number."""
    return parse_input_spec(text).at({})
