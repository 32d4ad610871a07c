"""Writes ``run``, the program of a bundle that runs its library without Python and TVM."""

from __future__ import annotations

from pathlib import Path

from worker.compiler.codegen.standalone.sources import fixed_objects, program_sources
from worker.compiler.codegen.standalone.systems import link_program


def write_runner(library: Path, triple: str, folder: Path, output: Path) -> None:
    """Link the program that runs a library from the same folder.

    Args:
        library: the model's, with a C interface.
        triple: the target's.
        folder: for objects.
        output: the program to write.

    Raises:
        LinkError: the compiler or the linker failed.
    """
    link_program(output, fixed_objects(program_sources(triple), triple, folder), library, triple, folder)
