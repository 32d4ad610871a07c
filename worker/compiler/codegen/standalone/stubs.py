"""Stubs that stand in for C libraries at link time.

A library or program that is linked to a stub uses the libc of the machine where it starts. Any version will
do, since its references have no versions.
"""

from __future__ import annotations

from pathlib import Path

from worker.compiler.codegen.link import run_zig
from worker.compiler.codegen.standalone.sources import compile_source, prepared_folder
from worker.compiler.platforms import Libc

_LIBC_NAMES = (
    "__errno_location __libc_start_main bcmp calloc clock_gettime exit fclose ferror fopen fprintf fputc "
    "fputs fread free fseek ftell fwrite ldexp malloc memcmp memcpy memset posix_memalign printf putchar "
    "puts qsort realloc rewind snprintf stderr stdout strchr strcmp strcpy strerror strlen strncmp "
    "strrchr strstr strtod strtol"
)


_LOADER, _LOADER_NAMES = "libdl.so.2", "dlopen dlsym"
"""glibc's library with ``dlopen`` before 2.34. Libraries for GPUs open the driver with it."""


def loader_stub(libc: Libc, triple: str, folder: Path) -> Path:
    """A stub for the library that has ``dlopen``, to be linked only where it is used.

    Raises:
        LinkError: the compiler or the linker failed.
    """
    name = _LOADER if "libc.so.6" in libc.libraries else libc.libraries[-1]
    prepared = prepared_folder(triple) / f"loader_{name}"
    if prepared.exists():
        return prepared
    made = folder / prepared.name
    _write_stub(made, name, _LOADER_NAMES, triple, folder)
    return made


def _write_stub(made: Path, name: str, functions: str, triple: str, folder: Path) -> None:
    source = folder / f"{made.name}.c"
    source.write_text("".join(f"void {function}(void) {{}}\n" for function in functions.split()))
    compiled = source.with_suffix(".o")
    compile_source(source, compiled, triple, "-fno-builtin", "-w", "-fvisibility=default")
    run_zig("ld.lld", "-shared", "-soname", name, "-o", str(made), str(compiled))


def stubs_of(libc: Libc, triple: str, folder: Path) -> tuple[Path, ...]:
    """A stub for each of libc's libraries; the last one has the functions that ``run`` uses.

    Stubs that were not made in advance are made in ``folder``.

    Raises:
        LinkError: the compiler or the linker failed.
    """
    prepared = _paths(libc, prepared_folder(triple))
    if all(path.exists() for path in prepared):
        return prepared
    made = _paths(libc, folder)
    for name, path in zip(libc.libraries, made, strict=True):
        _write_stub(path, name, _LIBC_NAMES if name == libc.libraries[-1] else "", triple, folder)
    return made


def _paths(libc: Libc, folder: Path) -> tuple[Path, ...]:
    return tuple(folder / f"stub_{name}" for name in libc.libraries)
