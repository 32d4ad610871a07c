"""Stubs that stand for C libraries while linking.

A library or program that is linked to a stub takes libc from the machine where it starts, of whatever
version: its references have no versions.
"""

from __future__ import annotations

from pathlib import Path

from worker.compiler.codegen.link import run_zig
from worker.compiler.codegen.standalone.sources import compile_source, prepared_folder
from worker.compiler.platforms import Libc

_LIBC_NAMES = (
    "__libc_start_main bcmp calloc clock_gettime exit fclose ferror fopen fprintf fputc fputs fread free "
    "fseek ftell fwrite ldexp malloc memcmp memcpy memset posix_memalign printf putchar puts "
    "qsort realloc rewind snprintf stderr stdout strchr strcmp strcpy strlen strncmp "
    "strrchr strstr strtod strtol"
)


def stubs_of(libc: Libc, triple: str, folder: Path) -> tuple[Path, ...]:
    """A library of the name of each of libc's, the last with the names that ``run`` uses.

    They are those that were made in advance, else new ones in ``folder``.

    Raises:
        LinkError: the compiler or the linker failed.
    """
    prepared = _paths(libc, prepared_folder(triple))
    if all(path.exists() for path in prepared):
        return prepared
    source = folder / "stubs.c"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in _LIBC_NAMES.split()))
    compile_source(source, folder / "stubs.o", triple, "-fno-builtin", "-w", "-fvisibility=default")
    (folder / "empty.c").write_text("")
    compile_source(folder / "empty.c", folder / "empty.o", triple)
    made = _paths(libc, folder)
    for name, path in zip(libc.libraries, made, strict=True):
        content = "stubs.o" if name == libc.libraries[-1] else "empty.o"
        run_zig("ld.lld", "-shared", "-soname", name, "-o", str(path), str(folder / content))
    return made


def _paths(libc: Libc, folder: Path) -> tuple[Path, ...]:
    return tuple(folder / f"stub_{name}" for name in libc.libraries)
