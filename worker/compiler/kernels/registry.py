"""The kernels in force, built-in ones and those of installed packages, and the files to link for them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

from bessemer.bundle.manifest import LIBRARIES_FOLDER
from worker.compiler.extensions import ExtensionPoint, cached_book, in_modules
from worker.compiler.kernels import built_in
from worker.compiler.kernels.kernel import Kernel, SharedLibrary

POINT = ExtensionPoint(
    group="bessemer.kernels",
    attribute="KERNELS",
    kinds=(Kernel,),
    name_of=lambda kernel: kernel.symbol,
    built_in=in_modules(built_in, "KERNELS"),
)


@dataclass(frozen=True)
class KernelBook:
    """Kernels by symbol, those with the longest chains first."""

    kernels: dict[str, Kernel]

    @property
    def linked(self) -> frozenset[str]:
        """The symbols that objects define, which are linked into a library."""
        return frozenset(symbol for symbol, kernel in self.kernels.items() if kernel.objects is not None)

    def names(self, operator: str) -> tuple[str, ...]:
        """The libraries that have an operator."""
        found = (kernel.name for kernel in self.kernels.values() if kernel.operator == operator)
        return tuple(dict.fromkeys(found))

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators that some library has."""
        return tuple(sorted({kernel.operator for kernel in self.kernels.values()}))


@cached_book
def kernel_book() -> KernelBook:
    """The kernels in force.

    Raises:
        ExtensionError: an entry point does not give kernels, or two packages give the same symbol.
    """
    return make_kernel_book(POINT.installed())


def make_kernel_book(installed: Iterable[EntryPoint]) -> KernelBook:
    """The built-in kernels and those of entry points; see ``kernel_book``."""
    found = POINT.in_force(installed)
    return KernelBook(dict(sorted(found.items(), key=lambda item: -len(item[1].chain))))


def kernels_among(names: Iterable[str]) -> tuple[Kernel, ...]:
    """The kernels among the names of called functions."""
    called = set(names)
    return tuple(kernel for symbol, kernel in kernel_book().kernels.items() if symbol in called)


def objects_of(kernels: Iterable[Kernel], architecture: str) -> tuple[Path, ...]:
    """The objects to link, each once."""
    found = (kernel.object_for(architecture) for kernel in kernels)
    return tuple(dict.fromkeys(path for path in found if path is not None))


def libraries_of(kernels: Iterable[Kernel]) -> tuple[SharedLibrary, ...]:
    """The shared libraries that the objects need, each once."""
    return tuple(dict.fromkeys(library for kernel in kernels for library in kernel.libraries))


def bundle_paths(libraries: Iterable[SharedLibrary]) -> dict[str, Path]:
    """The shared libraries by their paths in a bundle, where the linked library finds them."""
    return {f"{LIBRARIES_FOLDER}/{library.path.name}": library.path for library in libraries}


def place_beside(folder: Path, libraries: Iterable[SharedLibrary]) -> None:
    """Copy shared libraries to where a linked library in ``folder`` finds them."""
    for path, source in bundle_paths(libraries).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
