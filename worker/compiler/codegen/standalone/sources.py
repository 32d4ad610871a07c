"""The C that is the same for every model, and its compilation by zig, which needs no SDK."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from bessemer.contract.triple import (
    OLDEST_GLIBC,
    OLDEST_MACOS,
    System,
    architecture_of,
    environment_of,
    system_of,
)
from worker.compiler.codegen.link import run_zig

SOURCES = Path(str(files(__package__).joinpath("c")))

OBJECTS = Path(__file__).parent / "objects"
"""What ``prepare`` compiled, in one folder for each platform."""

PARAMETERS_SECTION = ".bessemer_parameters"
"""Where an ELF library holds its parameters."""

MIN_HUGE_BYTES = 32 << 20
"""Smaller parameters fit into caches, and their small pages into the processor's TLB."""

FREESTANDING = ("-ffreestanding", "-nostdlibinc")
"""Options for sources that include no header of libc: a worker's image has none (``ci/containers/slim``)."""

_LIBRARY_SOURCES = {
    System.LINUX: ("parameter.c", "mapping.c", "threads.c"),
    System.MACOS: ("threads.c",),
    System.WINDOWS: ("threads.c", "windows.c"),
}
_PROGRAM_SOURCES = {
    System.LINUX: ("run.c", "arrays.c", "start.c"),
    System.MACOS: ("run.c", "arrays.c"),
    System.WINDOWS: ("run.c", "arrays.c", "start_windows.c", "windows.c"),
}

GPU_SOURCES = ("threads.c", "model_cuda.c")
"""The sources of a library for a GPU besides its kernels and tables."""

CANDIDATE_SOURCES = ("threads.c", "candidate.c")
"""The sources of a search candidate's library besides its kernel, for Linux."""

CANDIDATE_PROGRAM_SOURCES = ("candidate_main.c", "start.c")

GPU_CANDIDATE_SOURCES = ("candidate_cuda.c", "start.c")
"""The sources of the program that runs all candidates of a search for GPUs, for Linux."""


def library_sources(triple: str, with_entries: bool) -> tuple[str, ...]:
    """The sources of a library besides its kernels and tables; on Linux, TVM's virtual machine uses some."""
    system = system_of(triple)
    assert system is not None
    conversions = ("half.c",) if architecture_of(triple) == "riscv64" else ()
    return (*_LIBRARY_SOURCES[system], *conversions, *(("model.c",) if with_entries else ()))


def program_sources(triple: str) -> tuple[str, ...]:
    """The sources of the program that runs a library."""
    system = system_of(triple)
    assert system is not None
    return _PROGRAM_SOURCES[system]


def zig_target(triple: str) -> str:
    """zig's name of a triple, with the oldest version of its system or C library that Bessemer supports.

    Objects for that version run on every newer one.
    """
    architecture = architecture_of(triple)
    match system_of(triple):
        case System.MACOS:
            return f"{architecture}-macos.{_dotted(OLDEST_MACOS)}"
        case System.WINDOWS:
            return f"{architecture}-windows-gnu"
        case _ if environment_of(triple) == "musl":
            return f"{architecture}-linux-musl"
        case _:
            return f"{architecture}-linux-gnu.{_dotted(OLDEST_GLIBC[architecture])}"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def prepared_folder(triple: str) -> Path:
    """The folder of a platform's prepared objects; it may not exist."""
    return OBJECTS / zig_target(triple)


def compile_source(source: Path, made: Path, triple: str, *options: str) -> None:
    """Compile a file of C or assembly for a target.

    Raises:
        LinkError: the compiler failed.
    """
    always = ("-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-fno-stack-protector", "-Wall", "-Werror")
    target = ("-target", zig_target(triple), f"-I{SOURCES}")
    run_zig("cc", "-c", *always, *options, *target, str(source), "-o", str(made))


def fixed_objects(names: Sequence[str], triple: str, folder: Path) -> tuple[Path, ...]:
    """The objects of some of the sources: those compiled in advance, else new ones in ``folder``.

    Raises:
        LinkError: the compiler failed.
    """
    return tuple(_fixed_object(name, triple, folder) for name in names)


def _fixed_object(name: str, triple: str, folder: Path) -> Path:
    prepared = prepared_folder(triple) / f"{name}.o"
    if prepared.exists():
        return prepared
    made = folder / f"{name}.o"
    compile_source(SOURCES / name, made, triple)
    return made
