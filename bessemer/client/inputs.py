"""Parse the accepted forms of inputs and dimensions."""

import operator
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import ValidationError

from bessemer.client.containers import inputs_in, is_array
from bessemer.contract.base import Document
from bessemer.contract.dynamic import DimensionRange, parse_dimension
from bessemer.contract.error_words import validation_message
from bessemer.contract.tensor import InputSpec, parse_input_spec
from bessemer.errors import InvalidArgumentError

D = TypeVar("D", bound=Document)

InputValue = Any
"""A spec, ``"1x784:float32"``, a shape such as ``("batch", 784)``, or an array or tensor with that shape and
dtype. Without a dtype, it is the file's, or else float32."""

Inputs = Mapping[str, InputValue] | Sequence[Any]
"""Inputs by name, alone or in dictionaries, lists, tuples and dataclasses; or in order: ``TensorSpec``,
``"x=1x784:float32"``, example tensors or containers."""

Dimensions = Mapping[str, DimensionRange | tuple[int, int | None] | str]
"""Ranges by name: ``(1, 64)``, ``(1, None)`` (unbounded), ``"1..64@8"``, or a ``DimensionRange``."""

RANGE_FORMS = "(1, 64), (1, None) without a maximum, or '1..64@8' with the size to benchmark at"
FORMS = "('batch', 784), 'batchx784:int64', an array or a tensor"

NO_DIMENSIONS: Dimensions = MappingProxyType({})


def ranges_of(dimensions: Dimensions) -> dict[str, DimensionRange]:
    """The ranges of dimensions, by name. Raises ``InvalidArgumentError`` for a malformed range."""
    return {name: _range_of(name, value) for name, value in dimensions.items()}


def _range_of(name: str, value: DimensionRange | tuple[int, int | None] | str) -> DimensionRange:
    if isinstance(value, DimensionRange):
        return value
    try:
        if isinstance(value, str):
            return parse_dimension(f"{name}={value}")[1]
        minimum, maximum = _pair(value)
        return DimensionRange(
            minimum=_integer(minimum), maximum=None if maximum is None else _integer(maximum)
        )
    except ValidationError as error:
        raise InvalidArgumentError(f"dimension '{name}': {validation_message(error)}") from error
    except TypeError as error:
        raise InvalidArgumentError(
            f"dimension '{name}' is {reprlib.repr(value)}; expected {RANGE_FORMS}"
        ) from error
    except ValueError as error:
        raise InvalidArgumentError(f"dimension '{name}': {error}") from error


def _pair(value: Any) -> tuple[Any, Any]:
    """The ends of a range. Raises ``TypeError`` unless there are two."""
    if isinstance(value, Mapping) or len(value) != 2:
        raise TypeError("not a pair")
    minimum, maximum = value
    return minimum, maximum


def _integer(size: Any) -> Any:
    """Convert integers of other libraries, such as NumPy; leave names alone."""
    return size if isinstance(size, str | int) else operator.index(size)


def spec_of(name: str, value: InputValue) -> InputSpec:
    """The spec of one input. Raises ``InvalidArgumentError`` unless it has a valid shape and dtype."""
    try:
        if isinstance(value, InputSpec):
            return value.model_copy(update={"name": name})
        if isinstance(value, str):
            return parse_input_spec(f"{name}={value}")
        if is_array(value):
            dtype = str(value.dtype).removeprefix("torch.")
            return InputSpec.model_validate({"name": name, "shape": tuple(value.shape), "dtype": dtype})
        return InputSpec.model_validate({"name": name, "shape": tuple(map(_integer, value))})
    except ValidationError as error:
        raise InvalidArgumentError(f"input '{name}': {validation_message(error)}") from error
    except TypeError as error:
        raise InvalidArgumentError(f"input '{name}' is {reprlib.repr(value)}; expected {FORMS}") from error
    except ValueError as error:
        raise InvalidArgumentError(f"input '{name}': {error}") from error


def named_specs(inputs: Inputs, names: Sequence[str] = ()) -> tuple[InputSpec, ...]:
    """The specs of all inputs, in their order; ``names`` are for inputs without a name.

    Those in containers have dotted names: ``images.0``.

    Raises:
        InvalidArgumentError: an input has no name, or is malformed.
    """
    if isinstance(inputs, Mapping):
        parts = (part for name, value in inputs.items() for part in inputs_in(name, value))
        return tuple(spec_of(name, value) for name, value in parts)
    return tuple(spec for index, value in enumerate(inputs) for spec in _unnamed(index, value, names))


def validated(kind: type[D], fields: object) -> D:
    """A document with these fields, or this document. Raises ``InvalidArgumentError`` if one is not valid."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise InvalidArgumentError(validation_message(error, kind)) from error


def _unnamed(index: int, value: InputValue, names: Sequence[str]) -> Iterator[InputSpec]:
    if isinstance(value, InputSpec):
        yield value
    elif isinstance(value, str) and "=" in value:
        name, _, text = value.partition("=")
        yield spec_of(name, text)
    elif index < len(names):
        yield from (spec_of(*part) for part in inputs_in(names[index], value))
    else:
        raise InvalidArgumentError(f"input {index} has no name; pass a mapping such as {{'x': (1, 784)}}")
