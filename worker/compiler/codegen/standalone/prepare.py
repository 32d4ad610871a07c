"""Compiles what all libraries of a platform share: ``python -m worker.compiler.codegen.standalone.prepare``.

It runs when an environment or an image is built, so that a job compiles its own tables only.
"""

from __future__ import annotations

import sys
from pathlib import Path

from worker.compiler.codegen.standalone.sources import OBJECTS, SOURCES, fixed_objects, prepared_folder
from worker.compiler.codegen.standalone.stubs import stubs_of
from worker.compiler.platforms import libc_of, linux_triples


def prepare(triple: str) -> Path:
    """Compile everything for a platform and return its folder.

    Raises:
        LinkError: the compiler or the linker failed.
    """
    libc = libc_of(triple)
    assert libc is not None
    folder = prepared_folder(triple)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    fixed_objects(sorted(path.name for path in SOURCES.glob("*.c")), triple, folder)
    stubs_of(libc, triple, folder)
    return folder


if __name__ == "__main__":
    for one in linux_triples():
        print(f"compiled {prepare(one).relative_to(OBJECTS)}", file=sys.stderr)  # noqa: T201
