"""The objects to link into a library that calls kernels, and the shared libraries beside it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from bessemer.bundle.manifest import LIBRARIES_FOLDER
from worker.compiler.kernels.kernel import Kernel, SharedLibrary
from worker.compiler.kernels.registry import kernel_book


def kernels_among(names: Iterable[str]) -> tuple[Kernel, ...]:
    """The kernels among the names of called functions."""
    called = set(names)
    return tuple(kernel for symbol, kernel in kernel_book().kernels.items() if symbol in called)


def objects_of(kernels: Iterable[Kernel], architecture: str) -> tuple[Path, ...]:
    """The objects to link, each once."""
    return tuple(dict.fromkeys(kernel.object_for(architecture) for kernel in kernels))


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
