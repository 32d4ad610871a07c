"""Compiles what all libraries of a platform share: ``python -m worker.compiler.codegen.standalone.prepare``.

It runs when an environment or an image is built, so that a job compiles its own tables only.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bessemer.contract.triple import System, system_of
from worker.compiler.codegen.standalone.sources import (
    CANDIDATE_PROGRAM_SOURCES,
    CANDIDATE_SOURCES,
    GPU_CANDIDATE_SOURCES,
    GPU_SOURCES,
    OBJECTS,
    fixed_objects,
    library_sources,
    prepared_folder,
    program_sources,
)
from worker.compiler.codegen.standalone.stubs import loader_stub, stubs_of
from worker.compiler.codegen.standalone.systems import import_libraries
from worker.compiler.platforms import known_triples, libc_of


def prepare(triple: str) -> Path:
    """Compile everything for a platform and return its folder.

    Raises:
        LinkError: the compiler or the linker failed.
    """
    folder = prepared_folder(triple)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    libc = libc_of(triple)
    candidate = () if libc is None else (*CANDIDATE_SOURCES, *CANDIDATE_PROGRAM_SOURCES)
    gpu = () if libc is None else (*GPU_SOURCES, *GPU_CANDIDATE_SOURCES)
    names = {*library_sources(triple, True), *program_sources(triple), *candidate, *gpu}
    fixed_objects(sorted(names), triple, folder)
    if libc is not None:
        stubs_of(libc, triple, folder)
        loader_stub(libc, triple, folder)
    if system_of(triple) is System.WINDOWS:
        import_libraries(folder)
    return folder


if __name__ == "__main__":
    for one in known_triples():
        print(f"compiled {prepare(one).relative_to(OBJECTS)}", file=sys.stderr)  # noqa: T201
