"""Stubs that stand for C libraries while linking.

A library or program that is linked to a stub takes libc from the machine where it starts, of whatever
version: its references have no versions.
"""

from __future__ import annotations

from pathlib import Path

from worker.compiler.codegen.link import run_zig
from worker.compiler.codegen.standalone.emit import compile_source
from worker.compiler.platforms import Libc

_LIBC_NAMES = (
    "__libc_start_main bcmp calloc clock_gettime exit fclose ferror fopen fprintf fputc fputs fread free "
    "fseek ftell fwrite ldexp malloc memcmp memcpy memset open_memstream posix_memalign printf putchar puts "
    "qsort rewind snprintf stderr stdout strchr strcmp strlen strncmp strrchr strstr strtod strtol"
)


def write_stubs(libc: Libc, triple: str, folder: Path) -> tuple[Path, ...]:
    """Write a library of the name of each of libc's, the last with the names that ``run`` uses.

    Raises:
        LinkError: the compiler or the linker failed.
    """
    source = folder / "stubs.c"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in _LIBC_NAMES.split()))
    compile_source(source, folder / "stubs.o", triple, "-fno-builtin", "-w", "-fvisibility=default")
    (folder / "empty.c").write_text("")
    compile_source(folder / "empty.c", folder / "empty.o", triple)
    made = tuple(folder / f"stub_{name}" for name in libc.libraries)
    for name, path in zip(libc.libraries, made, strict=True):
        content = "stubs.o" if name == libc.libraries[-1] else "empty.o"
        run_zig("ld.lld", "-shared", "-soname", name, "-o", str(path), str(folder / content))
    return made
