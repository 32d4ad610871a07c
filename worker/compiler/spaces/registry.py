"""The search spaces and tensor intrinsics in force: built-in ones and those of installed packages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from tvm.s_tir import TensorIntrin

from worker.compiler.extensions import ExtensionError, ExtensionPoint, cached_book, in_modules
from worker.compiler.spaces import built_in
from worker.compiler.spaces.space import RESERVED, Intrinsic, Space

POINT: ExtensionPoint[Space | Intrinsic] = ExtensionPoint(
    group="bessemer.schedule_spaces",
    attribute="SPACES",
    kinds=(Space, Intrinsic),
    name_of=lambda entry: entry.name,
    built_in=in_modules(built_in, "SPACES"),
)


@dataclass(frozen=True)
class SpaceBook:
    """Spaces and intrinsics by name."""

    spaces: dict[str, Space]
    intrinsics: dict[str, Intrinsic]


@cached_book
def space_book() -> SpaceBook:
    """The spaces in force; their intrinsics are registered with TVM.

    Raises:
        ExtensionError: an entry point does not give spaces, two packages give one of the same name, or one
            takes a reserved name.
    """
    book = make_space_book(POINT.installed())
    register_intrinsics(book)
    return book


def make_space_book(installed: Iterable[EntryPoint]) -> SpaceBook:
    """The built-in spaces and intrinsics and those of entry points; see ``space_book``."""
    found = POINT.in_force(installed)
    reserved = found.keys() & set(RESERVED)
    if reserved:
        raise ExtensionError(f"{POINT.group}: {', '.join(sorted(reserved))} is a reserved name")
    return SpaceBook(
        spaces={name: entry for name, entry in found.items() if isinstance(entry, Space)},
        intrinsics={name: entry for name, entry in found.items() if isinstance(entry, Intrinsic)},
    )


def register_intrinsics(book: SpaceBook) -> None:
    """Register a book's intrinsics with TVM, for this process and the processes that it forks."""
    for intrinsic in book.intrinsics.values():
        TensorIntrin.register(intrinsic.name, intrinsic.description, intrinsic.implementation, override=True)
