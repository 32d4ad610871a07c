"""Links ``run``, the program of a bundle that runs its library, without a libc for the target.

The program has its own first instructions (``start.c``) and takes everything else from the libc that is there
when it starts.
"""

from __future__ import annotations

from pathlib import Path

from worker.compiler.codegen.link import run_zig
from worker.compiler.codegen.standalone.sources import fixed_objects
from worker.compiler.codegen.standalone.stubs import stubs_of
from worker.compiler.platforms import libc_of

_SOURCES = ("run.c", "arrays.c", "start.c")


def write_runner(library: Path, triple: str, folder: Path, output: Path) -> None:
    """Link the program that runs a library from the same folder.

    Args:
        library: the model's, with a C interface.
        triple: the target's, for which ``libc_of`` is not None.
        folder: for objects.
        output: the program to write.

    Raises:
        LinkError: the compiler or the linker failed.
    """
    libc = libc_of(triple)
    assert libc is not None
    options = ("-pie", "--dynamic-linker", libc.loader, "-rpath", "$ORIGIN", "--no-as-needed")
    linked = map(str, (*fixed_objects(_SOURCES, triple, folder), *stubs_of(libc, triple, folder)))
    beside = (f"-L{library.parent}", f"-l:{library.name}", "--allow-shlib-undefined")
    run_zig("ld.lld", *options, "-o", str(output), *linked, *beside)
    output.chmod(0o755)
