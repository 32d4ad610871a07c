"""All spaces and intrinsics by hand: the built-in ones, then those that installed packages add.

Both are entry points of ``GROUP`` whose objects are tuples of ``Space`` and ``Intrinsic``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from tvm.s_tir import TensorIntrin

from worker.compiler.extensions import ExtensionError, built_in, collect
from worker.compiler.spaces.space import OWN_SPACES, Intrinsic, Space

GROUP = "bessemer.schedule_spaces"

BUILT_IN = built_in(
    GROUP, "worker.compiler.spaces.*:SPACES", ("course_matmul", "micro_kernel", "dot_products")
)


@dataclass(frozen=True)
class SpaceBook:
    """Spaces and intrinsics by name."""

    spaces: dict[str, Space]
    intrinsics: dict[str, Intrinsic]


@lru_cache(maxsize=1)
def space_book() -> SpaceBook:
    """The spaces in force; their intrinsics are registered with TVM.

    Raises:
        ExtensionError: an entry point gives no spaces, or two give one of the same name.
    """
    book = make_space_book([*BUILT_IN, *entry_points(group=GROUP)])
    register_intrinsics(book)
    return book


def make_space_book(points: Iterable[EntryPoint]) -> SpaceBook:
    """The spaces and intrinsics of entry points; see ``space_book``."""
    kinds: tuple[type[Space | Intrinsic], ...] = (Space, Intrinsic)
    found = collect(points, kinds, lambda entry: entry.name)
    taken = found.keys() & OWN_SPACES
    if taken:
        raise ExtensionError(f"{GROUP}: {', '.join(sorted(taken))} is a name of Bessemer's own")
    entries = {name: entry for name, (entry, _) in found.items()}
    return SpaceBook(
        spaces={name: entry for name, entry in entries.items() if isinstance(entry, Space)},
        intrinsics={name: entry for name, entry in entries.items() if isinstance(entry, Intrinsic)},
    )


def register_intrinsics(book: SpaceBook) -> None:
    """Make TVM know the intrinsics of a book, in this process and in those that it forks."""
    for intrinsic in book.intrinsics.values():
        TensorIntrin.register(intrinsic.name, intrinsic.description, intrinsic.implementation, override=True)
