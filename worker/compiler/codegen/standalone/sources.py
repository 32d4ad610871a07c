"""The C that is the same for every model, and its compilation by zig, which needs no libc for the target."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from worker.compiler.codegen.link import run_zig

SOURCES = Path(str(files(__package__).joinpath("c")))

OBJECTS = Path(__file__).parent / "objects"
"""What ``prepare`` compiled, in one folder for each platform."""


def zig_target(triple: str) -> str:
    """zig's name of a triple: without the vendor."""
    parts = triple.split("-")
    return "-".join((parts[0], *parts[2:])) if len(parts) == 4 else triple


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
