"""All spaces and intrinsics by hand: the built-in ones, then those that installed packages add.

Both are entry points of ``GROUP`` whose objects are tuples of ``Space`` and ``Intrinsic``. The built-in ones
are named here: the worker runs from a checkout, which is no installed package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from tvm.s_tir import TensorIntrin

from worker.spaces.space import Intrinsic, Space
from worker.tuning.assignment import OWN_SPACES

GROUP = "bessemer.schedule_spaces"

BUILT_IN: tuple[EntryPoint, ...] = tuple(
    EntryPoint(name=name, value=f"worker.spaces.{name}:SPACES", group=GROUP)
    for name in ("course_matmul", "micro_kernel", "dot_products")
)


class SpaceError(Exception):
    """An entry point gives no spaces, or two give one of the same name."""


@dataclass(frozen=True)
class SpaceBook:
    """Spaces and intrinsics by name, and the entry point that each comes from."""

    spaces: dict[str, Space]
    intrinsics: dict[str, Intrinsic]
    sources: dict[str, str]


@lru_cache(maxsize=1)
def space_book() -> SpaceBook:
    """The spaces in force; their intrinsics are registered with TVM.

    Raises:
        SpaceError: an entry point gives no spaces, or two give one of the same name.
    """
    book = make_space_book([*BUILT_IN, *entry_points(group=GROUP)])
    register_intrinsics(book)
    return book


def make_space_book(points: Iterable[EntryPoint]) -> SpaceBook:
    """The spaces and intrinsics of entry points; see ``space_book``."""
    found: dict[str, Space | Intrinsic] = {}
    sources = dict.fromkeys(OWN_SPACES, "Bessemer itself")
    for point, entry in _entries(points):
        if entry.name in sources:
            raise SpaceError(f"two spaces are named {entry.name}: of {sources[entry.name]} and {point.value}")
        found[entry.name] = entry
        sources[entry.name] = point.value
    return SpaceBook(
        spaces={name: entry for name, entry in found.items() if isinstance(entry, Space)},
        intrinsics={name: entry for name, entry in found.items() if isinstance(entry, Intrinsic)},
        sources=sources,
    )


def register_intrinsics(book: SpaceBook) -> None:
    """Make TVM know the intrinsics of a book, in this process and in those that it forks."""
    for intrinsic in book.intrinsics.values():
        TensorIntrin.register(intrinsic.name, intrinsic.description, intrinsic.implementation, override=True)


def _entries(points: Iterable[EntryPoint]) -> Iterator[tuple[EntryPoint, Space | Intrinsic]]:
    for point in points:
        for entry in _load(point):
            yield point, entry


def _load(point: EntryPoint) -> tuple[Space | Intrinsic, ...]:
    try:
        entries = point.load()
    except Exception as error:
        raise SpaceError(
            f"{point.value} of {GROUP} does not load: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(entries, tuple) or not all(isinstance(entry, Space | Intrinsic) for entry in entries):
        raise SpaceError(f"{point.value} of {GROUP} is no tuple of spaces and intrinsics")
    return entries
