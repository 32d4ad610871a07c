"""Containers of inputs: dictionaries, lists, tuples, named tuples and dataclasses of them."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bessemer.contract.tensor import InputSpec

_UNSAFE = re.compile(r"[^A-Za-z0-9_.]")


def is_array(value: Any) -> bool:
    """Whether the value has a shape and a dtype, as arrays and tensors do."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, InputSpec)


def is_container(value: Any) -> bool:
    """Whether a value contains inputs. A list or a tuple of sizes and names is the shape of one input."""
    if isinstance(value, list | tuple):
        return _is_named_tuple(value) or any(_is_part(item) for item in value)
    return isinstance(value, Mapping) or _is_object(value)


def _is_part(item: Any) -> bool:
    is_input = item is None or isinstance(item, InputSpec | list | tuple)
    return is_input or is_array(item) or is_container(item)


def _is_object(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def replace_inputs(name: str, value: Any, replace: Callable[[str, Any], Any]) -> Any:
    """The same containers with other inputs; numbers, booleans and None in a container stay as they are.

    Args:
        name: the name of the argument.
        value: an input, or a container.
        replace: takes the name of an input, such as ``batch.images.0``, and the input.
    """
    if not is_container(value):
        return replace(name, value)

    def item(place: object, part: Any) -> Any:
        if part is None or isinstance(part, bool | int | float):
            return part
        return replace_inputs(f"{name}.{_UNSAFE.sub('_', str(place))}", part, replace)

    if isinstance(value, Mapping):
        return {key: item(key, part) for key, part in value.items()}
    if _is_named_tuple(value):
        return type(value)(*(item(place, part) for place, part in value._asdict().items()))
    if isinstance(value, list | tuple):
        return type(value)(item(place, part) for place, part in enumerate(value))
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    return dataclasses.replace(value, **{place: item(place, part) for place, part in fields.items()})


def inputs_in(name: str, value: Any) -> list[tuple[str, Any]]:
    """Each input in a value, with its name."""
    found: list[tuple[str, Any]] = []
    replace_inputs(name, value, lambda place, part: found.append((place, part)))
    return found


def dataclasses_in(value: Any) -> Iterator[type]:
    """The dataclasses of the objects in a value."""
    if _is_object(value):
        yield type(value)
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if is_container(value):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from dataclasses_in(part)


def unfold(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as containers: ``{"images.0": x}`` is ``{"images": [x]}``.

    If all names below one are numbers, they are the places of a list, else the keys of a dictionary.
    """
    found: dict[str, Any] = {}
    below: dict[str, dict[str, Any]] = {}
    for name, value in inputs.items():
        first, dot, rest = name.partition(".")
        if dot:
            found.setdefault(first, None)
            below.setdefault(first, {})[rest] = value
        else:
            found[name] = value
    for first, parts in below.items():
        values = unfold(parts)
        is_list = all(map(str.isdecimal, values))
        found[first] = [values[place] for place in sorted(values, key=int)] if is_list else values
    return found
