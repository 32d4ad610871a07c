"""Specs of tensors: a name, a shape and a dtype."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticKnownError

from bessemer.contract.base import Document, GrowingEnum

MAX_RANK = 8
MAX_DIMENSION = 1 << 31
MAX_INPUTS = 256
SCALAR = "scalar"
"""The command line's shape for rank 0."""


class DType(GrowingEnum):
    """The element types of inputs and outputs."""

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
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"

    @property
    def is_float(self) -> bool:
        """Whether the type holds floating-point numbers."""
        return "float" in self.value

    @property
    def is_integer(self) -> bool:
        """Whether the type holds integers."""
        return "int" in self.value

    @property
    def is_complex(self) -> bool:
        """Whether the type holds complex numbers."""
        return self in _PARTS

    @property
    def part(self) -> "DType":
        """The type of the real and the imaginary part of complex numbers; the type itself of others."""
        return _PARTS.get(self, self)

    @property
    def complex_of_parts(self) -> "DType":
        """The complex type whose parts are of this type. Raises ``KeyError`` for other types."""
        return {part: whole for whole, part in _PARTS.items()}[self]

    @property
    def size_bytes(self) -> int:
        """The size of an element."""
        bits = re.search(r"\d+$", self.value)
        return int(bits[0]) // 8 if bits else 1


OTHER_DTYPES = {
    "half": DType.FLOAT16,
    "float": DType.FLOAT32,
    "double": DType.FLOAT64,
    "char": DType.INT8,
    "byte": DType.UINT8,
    "short": DType.INT16,
    "int": DType.INT64,
    "long": DType.INT64,
    "complex": DType.COMPLEX64,
}
"""Names of Python and torch for element types. A Python `int` is int64 in a tensor."""

_PARTS = {DType.COMPLEX64: DType.FLOAT32, DType.COMPLEX128: DType.FLOAT64}

MAX_TENSOR_NAME = 128
TENSOR_NAME_PATTERN = rf"^[A-Za-z_][A-Za-z0-9_.]{{0,{MAX_TENSOR_NAME - 1}}}$"
DIMENSION_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"

TensorName = Annotated[str, StringConstraints(pattern=TENSOR_NAME_PATTERN)]
Size = Annotated[int, Field(strict=True, ge=1, le=MAX_DIMENSION)]
KnownSize = Annotated[int, Field(strict=True, ge=0, le=MAX_DIMENSION)]
DimensionName = Annotated[str, StringConstraints(pattern=DIMENSION_NAME_PATTERN)]

TENSOR_NAME = re.compile(TENSOR_NAME_PATTERN, re.ASCII)
_NAME = re.compile(DIMENSION_NAME_PATTERN, re.ASCII)
_NAME_WORDS = "a dimension's name: up to 64 letters, digits and '_', not starting with a digit"
# a size; a name without an x; or any name in brackets
_ENTRY = re.compile(r"(?P<size>[0-9]+)|(?P<name>[A-Za-wyz_][A-Za-wyz0-9_]*)|\[(?P<bracketed>[^\]]*)\]")


def _size_or_name(value: Any, validate: ValidatorFunctionWrapHandler) -> int | str:
    """Validate a size or a name, and report only the error of the one that was meant."""
    if isinstance(value, str):
        if not _NAME.fullmatch(value):
            raise ValueError(f"expected a size, or {_NAME_WORDS}")
        return value
    try:
        return validate(value)  # type: ignore[no-any-return]
    except ValidationError as error:
        first = error.errors()[0]
        raise PydanticKnownError(first["type"], first.get("ctx")) from error  # type: ignore[arg-type]


class InputSpec(Document):
    """A requested input. If a size is a name, the library accepts every size in its range."""

    name: TensorName = Field(description="The model's own name for the argument or output.")
    shape: tuple[Annotated[Size | DimensionName, WrapValidator(_size_or_name)], ...] = Field(
        max_length=MAX_RANK,
        description="The sizes. A name stands for a dimension with a range in `dimensions`.",
        examples=[[1, 3, 224, 224], ["batch", 3, 224, 224]],
    )
    dtype: DType | None = Field(
        default=None,
        exclude_if=lambda dtype: dtype is None,
        description="The element type. Null or missing: the file's dtype, or float32 if the file declares "
        "none.",
        examples=["float32"],
    )

    @property
    def named_axes(self) -> dict[int, str]:
        """The names of dimensions, by axis."""
        return {axis: size for axis, size in enumerate(self.shape) if isinstance(size, str)}

    def at(self, sizes: Mapping[str, int]) -> "TensorSpec":
        """The tensor with these sizes of its dimensions."""
        shape = tuple(sizes[size] if isinstance(size, str) else size for size in self.shape)
        return TensorSpec(name=self.name, shape=shape, dtype=self.dtype or DType.FLOAT32)

    def __str__(self) -> str:
        """The command line's form, which ``parse_input_spec`` parses."""
        return shown_tensor(self.name, self.shape, self.dtype)


class TensorSpec(InputSpec):
    """An input or output: its name, shape and element type."""

    shape: tuple[KnownSize, ...] = Field(
        max_length=MAX_RANK,
        description="The sizes; empty for a scalar. Only a size that depends on data can be 0.",
    )
    dtype: DType = Field(default=DType.FLOAT32, description="The element type.")


def shown_tensor(name: str, shape: Iterable[int | str], dtype: str | None) -> str:
    """The command line's form of a tensor, such as ``x=4x784:float32``."""
    end = "" if dtype is None else f":{dtype}"
    return f"{name}={'x'.join(map(_entry, shape)) or SCALAR}{end}"


def parse_input_spec(text: str) -> InputSpec:
    """Parse the command line's form of an input, ``name=1x3x224x224:float32``.

    The dtype defaults to the file's, or float32; ``name=scalar:int64`` has rank 0. A size can be a name, as
    in ``x=batchx3x224x224``; brackets enclose a name that contains an ``x``: ``x=[pixels]x3``.

    Raises:
        ValueError: the text has another form.
    """
    name, equals, rest = text.partition("=")
    shape_text, _, dtype = rest.partition(":")
    if not equals or not shape_text:
        raise ValueError(f"'{text}' is not of the form NAME=1x3x224x224:float32")
    shape = [] if shape_text == SCALAR else _parse_shape(shape_text)
    return InputSpec.model_validate({"name": name, "shape": shape, "dtype": dtype or None})


def _parse_shape(text: str) -> list[int | str]:
    """The entries of a shape, separated by ``x``."""
    entries: list[int | str] = []
    place = 0
    while match := _ENTRY.match(text, place):
        entries.append(int(match["size"]) if match["size"] else match["name"] or match["bracketed"])
        place = match.end() + 1
        if place > len(text):
            return entries
        if text[place - 1] != "x":
            break
    hint = (
        "; put a name that contains an x in brackets, as in [index]x3"
        if re.search(r"[A-Za-z_]", text)
        else ""
    )
    raise ValueError(f"'{text}' is not a shape such as 1x3x224x224 or batchx3x224x224{hint}")


def _entry(size: int | str) -> str:
    ambiguous = isinstance(size, str) and ("x" in size or size == SCALAR)
    return f"[{size}]" if ambiguous else str(size)
