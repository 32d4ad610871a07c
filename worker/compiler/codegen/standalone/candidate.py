"""Links the candidates of a search as programs that devices run: no TVM, no Python, only libc.

Emits, in a folder for each candidate::

    candidate.so    the kernel, its threads, and what times it
    candidate       the program, the same for all candidates

For a GPU, one program runs all candidates, whose machine code is beside their launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tvm

from worker.compiler.codegen.generate import write_object
from worker.compiler.codegen.standalone.sources import (
    CANDIDATE_PROGRAM_SOURCES,
    CANDIDATE_SOURCES,
    GPU_CANDIDATE_SOURCES,
    fixed_objects,
)
from worker.compiler.codegen.standalone.systems import link_library, link_lone_program, link_program

CANDIDATE_LIBRARY = "candidate.so"
CANDIDATE_PROGRAM = "candidate"


@dataclass(frozen=True)
class CandidateParts:
    """The objects that all candidates of a search share: of their libraries, and of their program."""

    triple: str
    library: tuple[Path, ...]
    program: tuple[Path, ...]


def candidate_parts(triple: str, folder: Path) -> CandidateParts:
    """Compile what candidates share, unless that was done in advance.

    Args:
        triple: the target's, for Linux.
        folder: for objects.

    Raises:
        LinkError: the compiler failed.
    """
    return CandidateParts(
        triple,
        fixed_objects(CANDIDATE_SOURCES, triple, folder),
        fixed_objects(CANDIDATE_PROGRAM_SOURCES, triple, folder),
    )


def write_candidate(
    module: tvm.IRModule, target: tvm.target.Target, parts: CandidateParts, library: Path
) -> None:
    """Compile the function ``main`` of a scheduled module, and link its library.

    Args:
        module: the module.
        target: the processor.
        parts: what candidates share.
        library: the file to write, in a folder of its own.

    Raises:
        LinkError: the linker failed.
    """
    kernel = library.with_suffix(".o")
    write_object(module, target, kernel)
    link_library(library, (kernel, *parts.library), parts.triple, library.parent)
    kernel.unlink()


def write_candidate_program(library: Path, parts: CandidateParts) -> Path:
    """Link the program that runs the candidate in the same folder.

    Raises:
        LinkError: the linker failed.
    """
    program = library.with_name(CANDIDATE_PROGRAM)
    link_program(program, parts.program, library, parts.triple, library.parent)
    return program


def write_gpu_candidate_program(program: Path, triple: str) -> None:
    """Link the program that runs the candidates of a search for GPUs.

    Raises:
        LinkError: the compiler or the linker failed.
    """
    objects = fixed_objects(GPU_CANDIDATE_SOURCES, triple, program.parent)
    link_lone_program(program, objects, triple, program.parent)
