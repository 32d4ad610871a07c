"""What extends the compiler: objects of entry points, by name, each with the point that it comes from.

The built-in ones are named in the code, each where its group is: the worker runs from a checkout, which is no
installed package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint
from typing import TypeVar

Kind = TypeVar("Kind")


class ExtensionError(Exception):
    """An entry point does not give what its group is for, or two give it under the same name."""


def built_in(group: str, value: str, names: Iterable[str]) -> tuple[EntryPoint, ...]:
    """Entry points of our own; each one's name takes the place of ``*`` in the value."""
    return tuple(EntryPoint(name=name, value=value.replace("*", name), group=group) for name in names)


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
