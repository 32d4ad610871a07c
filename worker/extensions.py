"""What installed packages add: objects of entry points, by name, each with the point that it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint
from typing import TypeVar

Kind = TypeVar("Kind")


class ExtensionError(Exception):
    """An entry point does not give what its group is for, or two give it under the same name."""


def collect(
    points: Iterable[EntryPoint], kinds: tuple[type[Kind], ...], name_of: Callable[[Kind], str]
) -> dict[str, tuple[Kind, str]]:
    """The objects of entry points by name, each with its entry point's value.

    Args:
        points: each stands for a tuple of objects.
        kinds: what the objects may be.
        name_of: an object's name.

    Raises:
        ExtensionError: an entry point does not load or gives something else, or a name comes twice.
    """
    found: dict[str, tuple[Kind, str]] = {}
    for point in points:
        for item in _load(point, kinds):
            name = name_of(item)
            if name in found:
                raise ExtensionError(f"{point.group}: '{name}' is in {found[name][1]} and in {point.value}")
            found[name] = (item, point.value)
    return found


def _load(point: EntryPoint, kinds: tuple[type[Kind], ...]) -> tuple[Kind, ...]:
    try:
        items = point.load()
    except Exception as error:
        raise ExtensionError(
            f"{point.value} of {point.group} does not load: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(items, tuple) or not all(isinstance(item, kinds) for item in items):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ExtensionError(f"{point.value} of {point.group} is no tuple of {names}")
    return items
