"""Extension points: what installed packages and a job's uploaded files add to the compiler.

One rule settles collisions at every point. An uploaded file's extension replaces an installed or built-in one
of the same name, and an installed package's replaces a built-in one. Two files or two packages that give the
same name are refused, since their order would be arbitrary.

The worker runs from a checkout, not from an installed package, so each point names its built-in extensions.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import _lru_cache_wrapper, lru_cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

from bessemer.contract.base import Digest

Kind = TypeVar("Kind")
Made = TypeVar("Made")


class ExtensionError(Exception):
    """An extension fails to load or is the wrong kind of object, or two have the same name."""


class Extension(NamedTuple, Generic[Kind]):
    """An object and its source: an uploaded file, or an entry point's value, ``package.module:RULES``."""

    item: Kind
    source: str


class UploadedModule(NamedTuple):
    """An uploaded file that this process has run; ``name`` is the file's."""

    name: str
    module: ModuleType
    digest: Digest = ""


_uploaded: list[UploadedModule] = []
_books: list[Callable[[], None]] = []


def cached_book(make: Callable[[], Made]) -> _lru_cache_wrapper[Made]:
    """Cache what a point's extensions make, until ``use_uploads`` adds to them."""
    cached = lru_cache(maxsize=1)(make)
    _books.append(cached.cache_clear)
    return cached


def uploaded_modules() -> tuple[UploadedModule, ...]:
    """The uploaded files in force."""
    return tuple(_uploaded)


def use_uploads(modules: Iterable[UploadedModule]) -> None:
    """Let the extensions of uploaded files take effect in this process and its children."""
    _uploaded[:] = modules
    for clear in _books:
        clear()


def place_in_uploads(error: BaseException) -> str:
    """Where an uploaded file raised, or called what raised: ``my_fuse.py, line 7``; empty if none did.

    Of an exception and its causes, the first counts.
    """
    names = {str(uploaded.module.__file__): uploaded.name for uploaded in _uploaded}
    place, seen = "", set[int]()
    link: BaseException | None = error if names else None
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        frames = [frame for frame in traceback.extract_tb(link.__traceback__) if frame.filename in names]
        if frames:
            place = f"{names[frames[-1].filename]}, line {frames[-1].lineno}"
        link = link.__cause__ or link.__context__
    return place


@dataclass(frozen=True)
class ExtensionPoint(Generic[Kind]):
    """One kind of extension.

    Attributes:
        group: the entry-point group of installed packages.
        attribute: the name in an uploaded file. Like an entry point, it gives a tuple of objects.
        kinds: the types that the objects may have.
        name_of: returns the name under which an object can be replaced.
        built_in: values of entry points for the built-in objects, in order.
        form: how errors describe what gives the objects; by default, a tuple of the kinds.
        read: makes the tuple of objects from another form.
    """

    group: str
    attribute: str
    kinds: tuple[type[Kind], ...]
    name_of: Callable[[Kind], str]
    built_in: tuple[str, ...]
    form: str = ""
    read: Callable[[Any], Any] = lambda value: value

    def installed(self) -> tuple[EntryPoint, ...]:
        """The entry points of installed packages."""
        return tuple(entry_points(group=self.group))

    def chains(self, installed: Iterable[EntryPoint]) -> dict[str, tuple[Extension[Kind], ...]]:
        """All extensions by name: each before the one that it replaces.

        Names come in order: those of uploaded files, of installed packages, then the built-in ones.

        Raises:
            ExtensionError: an extension fails to load or is the wrong kind of object, or two files or two
                packages give the same name; the message names both.
        """
        own = [EntryPoint(name=value, value=value, group=self.group) for value in self.built_in]
        chains: dict[str, tuple[Extension[Kind], ...]] = {}
        for given in (self._uploads(), map(self._load, installed), map(self._load, own)):
            for name, found in self._collect(given).items():
                chains[name] = (*chains.get(name, ()), found)
        return chains

    def in_force(self, installed: Iterable[EntryPoint]) -> dict[str, Kind]:
        """The objects by name, without replaced ones; see ``chains``."""
        return {name: chain[0].item for name, chain in self.chains(installed).items()}

    def names_in(self, uploaded: UploadedModule) -> tuple[str, ...]:
        """The names of what an uploaded file defines. Raises ``ExtensionError`` as ``chains`` does."""
        return tuple(map(self.name_of, self._items_of(uploaded)))

    def _uploads(self) -> Iterable[tuple[str, tuple[Kind, ...]]]:
        return ((uploaded.name, self._items_of(uploaded)) for uploaded in _uploaded)

    def _items_of(self, uploaded: UploadedModule) -> tuple[Kind, ...]:
        value = getattr(uploaded.module, self.attribute, None)
        return () if value is None else self._checked(value, f"{uploaded.name}: {self.attribute}")

    def _collect(self, given: Iterable[tuple[str, tuple[Kind, ...]]]) -> dict[str, Extension[Kind]]:
        found: dict[str, Extension[Kind]] = {}
        for source, items in given:
            for item in items:
                name = self.name_of(item)
                if name in found:
                    sources = f"{found[name].source} and in {source}"
                    raise ExtensionError(f"{self.group}: '{name}' is in {sources}")
                found[name] = Extension(item, source)
        return found

    def _load(self, point: EntryPoint) -> tuple[str, tuple[Kind, ...]]:
        try:
            items = point.load()
        except Exception as error:
            detail = f"{point.value} of {self.group} does not load: {type(error).__name__}: {error}"
            raise ExtensionError(detail) from error
        return point.value, self._checked(items, f"{point.value} of {self.group}")

    def _checked(self, value: Any, source: str) -> tuple[Kind, ...]:
        items = self.read(value)
        if not isinstance(items, tuple) or not all(isinstance(item, self.kinds) for item in items):
            names = " or ".join(f"{kind.__module__}.{kind.__name__}" for kind in self.kinds)
            raise ExtensionError(f"{source} is not {self.form or f'a tuple of {names}'}")
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
