"""Whether a library loads from a bundle: it may need the bundle's libraries and the C library only."""

from collections.abc import Iterable
from pathlib import Path

from worker.compiler.codegen.link import SEARCH_PATH
from worker.package.elf import Dependencies, read_dependencies

RUNTIME = frozenset({"libtvm_ffi.so", "libtvm_runtime.so", "libtvm_runtime_extra.so"})
SYSTEM = frozenset({"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"})


def check_linkage(library: Path, shipped: Iterable[str] = ()) -> None:
    """Refuse a library that could not be loaded on another machine.

    Args:
        library: what is to be shipped.
        shipped: the names of the libraries that its bundle has besides TVM's.

    Raises:
        ValueError: it needs other libraries, or would look for the bundle's in the wrong place.
    """
    refusal = linkage_refusal(read_dependencies(library), frozenset(shipped))
    if refusal:
        raise ValueError(f"the library cannot be shipped: {refusal}")


def linkage_refusal(dependencies: Dependencies, shipped: frozenset[str] = frozenset()) -> str | None:
    """Why a library with these dependencies cannot be shipped; None where it can."""
    brought = RUNTIME | shipped
    strangers = sorted(set(dependencies.needed) - brought - SYSTEM)
    if strangers:
        return f"it needs {', '.join(strangers)}"
    if brought.intersection(dependencies.needed) and dependencies.search_path != SEARCH_PATH:
        return f"it looks for the runtime in {dependencies.search_path!r}, not in {SEARCH_PATH!r}"
    return None
