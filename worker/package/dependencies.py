"""Whether a library loads from a bundle: it may need only the bundle's libraries and the C library."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

from worker.compiler.codegen.link import SEARCH_PATH

RUNTIME = frozenset({"libtvm_ffi.so", "libtvm_runtime.so", "libtvm_runtime_extra.so"})
SYSTEM = frozenset(
    {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "libc.so"}
)


@dataclass(frozen=True)
class Dependencies:
    """The libraries that a library needs, and the path where it searches for them."""

    needed: tuple[str, ...]
    search_path: str | None


def check_linkage(library: Path, shipped: Iterable[str] = ()) -> None:
    """Refuse a library that could not be loaded on another machine.

    Args:
        library: the library to ship.
        shipped: the names of the libraries in its bundle besides TVM's.

    Raises:
        ValueError: it needs other libraries, or would look for the bundle's libraries in the wrong place.
    """
    refusal = linkage_refusal(read_dependencies(library), frozenset(shipped))
    if refusal:
        raise ValueError(f"the library cannot be shipped: {refusal}")


def linkage_refusal(dependencies: Dependencies, shipped: frozenset[str] = frozenset()) -> str | None:
    """Why a library with these dependencies cannot be shipped; None if it can."""
    bundled = RUNTIME | shipped
    missing = sorted(set(dependencies.needed) - bundled - SYSTEM)
    if missing:
        return f"it needs {', '.join(missing)}"
    if bundled.intersection(dependencies.needed) and dependencies.search_path != SEARCH_PATH:
        return f"it looks for the runtime in {dependencies.search_path!r}, not in {SEARCH_PATH!r}"
    return None


def read_dependencies(path: Path) -> Dependencies:
    """Read ``DT_NEEDED`` and ``DT_RUNPATH`` (or ``DT_RPATH``) of a shared library.

    Raises:
        ValueError: the file is not a shared 64-bit little-endian ELF file, or is damaged.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        try:
            elf = ELFFile(file)
            if elf.elfclass != 64 or not elf.little_endian:
                raise ValueError("not a 64-bit little-endian ELF file")
            dynamic = [segment for segment in elf.iter_segments() if isinstance(segment, DynamicSegment)]
            if not dynamic:
                raise ValueError("not a shared ELF file: it has no dynamic segment")
            tags = [tag for segment in dynamic for tag in segment.iter_tags()]
        except ELFError as error:
            raise ValueError(f"not an ELF file, or damaged: {error}") from error
    search = [getattr(tag, name) for tag in tags for name in ("rpath", "runpath") if hasattr(tag, name)]
    needed = tuple(tag.needed for tag in tags if hasattr(tag, "needed"))
    return Dependencies(needed, search[-1] if search else None)
