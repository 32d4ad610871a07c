"""Links objects with zig's ``ld.lld``, which supports all triples and needs no compiler on the machine.

Emits one shared library that finds its dependencies in the folder ``lib`` beside it.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from worker.candidates.execute import ProgramFailedError, execute

SEARCH_PATH = "$ORIGIN/lib"
"""Where a linked library finds the libraries that it needs."""


class LinkError(Exception):
    """The linker failed; the message is the linker's."""


def linker_path() -> Path:
    """The zig executable of the environment."""
    return Path(str(files("ziglang").joinpath("zig")))


def link_shared(
    output: str | Path, objects: list[str], libraries: Sequence[str] = (), soname: str | None = None
) -> None:
    """Link objects to a shared library; usable as ``fcompile`` of ``export_library``.

    Args:
        output: the library to write.
        objects: paths of the object files.
        libraries: shared libraries that it needs; it finds them in the folder ``lib`` beside it.
        soname: the name by which programs that link it look for it; otherwise it is the path that they link.

    Raises:
        LinkError: the linker failed.
        JobError: ``child-killed``: another process killed the linker, or the kernel ran out of memory.
    """
    search = ["-rpath", SEARCH_PATH] if libraries else []
    name = [] if soname is None else ["-soname", soname]
    run_zig("ld.lld", "-shared", "-o", str(output), *objects, *libraries, *search, *name)


link_shared.object_format = "o"  # type: ignore[attr-defined]


def archive_objects(output: Path, objects: Sequence[Path]) -> None:
    """Write a library for static linking. Equal objects give equal bytes.

    Raises:
        LinkError: the archiver failed.
        JobError: ``child-killed``.
    """
    run_zig("ar", "rcsD", str(output), *map(str, objects))


def run_zig(tool: str, *arguments: str) -> None:
    """Run one of zig's tools, such as ``ld.lld`` or ``cc``.

    Raises:
        LinkError: the tool failed.
        JobError: ``child-killed``: another process killed it, or the kernel ran out of memory.
    """
    try:
        execute((str(linker_path()), tool, *arguments), f"zig {tool}")
    except ProgramFailedError as error:
        raise LinkError(str(error)) from error
