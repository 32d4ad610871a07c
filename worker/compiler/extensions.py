"""Extension points: entry-point groups through which installed packages add to the compiler.

One rule settles collisions at every point. An installed package's extension replaces a built-in one of the
same name. Two packages that give the same name are refused, since their order would be arbitrary.

The worker runs from a checkout, not from an installed package, so each point names its built-in extensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from types import ModuleType
from typing import Generic, NamedTuple, TypeVar

Kind = TypeVar("Kind")


class ExtensionError(Exception):
    """An entry point fails to load or gives the wrong kind of object, or two give the same name."""


class Extension(NamedTuple, Generic[Kind]):
    """An object and the value of the entry point that gave it, such as ``package.module:RULES``."""

    item: Kind
    source: str


@dataclass(frozen=True)
class ExtensionPoint(Generic[Kind]):
    """One entry-point group. Every entry point gives a tuple of objects.

    Attributes:
        group: the name of the group.
        kinds: the types that the objects may have.
        name_of: returns the name under which an object can be replaced.
        built_in: values of entry points for the built-in objects, in order.
    """

    group: str
    kinds: tuple[type[Kind], ...]
    name_of: Callable[[Kind], str]
    built_in: tuple[str, ...]

    def installed(self) -> tuple[EntryPoint, ...]:
        """The entry points of installed packages."""
        return tuple(entry_points(group=self.group))

    def chains(self, installed: Iterable[EntryPoint]) -> dict[str, tuple[Extension[Kind], ...]]:
        """All extensions by name: an installed one before the built-in one that it replaces.

        Names come in order: those of installed packages, then the built-in ones.

        Raises:
            ExtensionError: an entry point fails to load or gives the wrong kind of object, or two packages
                give the same name; the message names both.
        """
        own = [EntryPoint(name=value, value=value, group=self.group) for value in self.built_in]
        chains: dict[str, tuple[Extension[Kind], ...]] = {}
        for points in (installed, own):
            for name, found in self._collect(points).items():
                chains[name] = (*chains.get(name, ()), found)
        return chains

    def in_force(self, installed: Iterable[EntryPoint]) -> dict[str, Kind]:
        """The objects by name, without those that an installed package replaces; see ``chains``."""
        return {name: chain[0].item for name, chain in self.chains(installed).items()}

    def _collect(self, points: Iterable[EntryPoint]) -> dict[str, Extension[Kind]]:
        found: dict[str, Extension[Kind]] = {}
        for point in points:
            for item in self._load(point):
                name = self.name_of(item)
                if name in found:
                    sources = f"{found[name].source} and in {point.value}"
                    raise ExtensionError(f"{self.group}: '{name}' is in {sources}")
                found[name] = Extension(item, point.value)
        return found

    def _load(self, point: EntryPoint) -> tuple[Kind, ...]:
        try:
            items = point.load()
        except Exception as error:
            detail = f"{point.value} of {self.group} does not load: {type(error).__name__}: {error}"
            raise ExtensionError(detail) from error
        if not isinstance(items, tuple) or not all(isinstance(item, self.kinds) for item in items):
            names = " or ".join(kind.__name__ for kind in self.kinds)
            raise ExtensionError(f"{point.value} of {self.group} is not a tuple of {names}")
        return items


def in_modules(folder: ModuleType, attribute: str, names: Iterable[str] | None = None) -> tuple[str, ...]:
    """The value of an entry point for an attribute of each module in a folder.

    Args:
        folder: the package that holds the modules.
        attribute: the attribute that holds a module's extensions.
        names: the modules in order; by default all in the folder, in alphabetical order.
    """
    chosen = (module.name for module in iter_modules(folder.__path__)) if names is None else names
    return tuple(f"{folder.__name__}.{name}:{attribute}" for name in chosen)
