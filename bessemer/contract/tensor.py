"""Tensors as the contract names them: a name, a shape, a dtype."""

import re
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from bessemer.contract.base import Document

MAX_RANK = 8
MAX_DIMENSION = 1 << 31
MAX_INPUTS = 256


class DType(StrEnum):
    """The element types that an input or an output may have."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    BOOL = "bool"

    @property
    def is_float(self) -> bool:
        """Whether the type holds floating-point numbers."""
        return "float" in self.value

    @property
    def size_bytes(self) -> int:
        """Of one element."""
        bits = re.search(r"\d+$", self.value)
        return int(bits[0]) // 8 if bits else 1


TensorName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,127}$")]
Dimension = Annotated[int, Field(ge=1, le=MAX_DIMENSION)]


class TensorSpec(Document):
    """One input or output: its name, its shape (elements per dimension) and its element type."""

    name: TensorName
    shape: tuple[Dimension, ...] = Field(max_length=MAX_RANK)
    dtype: DType = DType.FLOAT32

    def __str__(self) -> str:
        """The command line's form, which ``parse_tensor_spec`` reads."""
        return f"{self.name}={'x'.join(map(str, self.shape)) or 'scalar'}:{self.dtype}"


def parse_tensor_spec(text: str) -> TensorSpec:
    """Read the command line's form ``name=1x3x224x224:float32``.

    The dtype defaults to float32; ``name=scalar:int64`` names a tensor of rank 0.

    Raises:
        ValueError: the text is not of that form; the message says what was expected.
    """
    name, equals, rest = text.partition("=")
    shape_text, _, dtype = rest.partition(":")
    if not equals or not shape_text:
        raise ValueError(f"'{text}' is not of the form NAME=1x3x224x224:float32")
    sizes = [] if shape_text == "scalar" else shape_text.split("x")
    if not all(size.isdigit() for size in sizes):
        raise ValueError(f"'{shape_text}' is not a shape such as 1x3x224x224")
    return TensorSpec.model_validate({"name": name, "shape": sizes, "dtype": dtype or "float32"})
