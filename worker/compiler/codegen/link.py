"""Links objects with zig's ``ld.lld``, which needs no compiler on the machine and knows all triples.

Emits one shared library that finds its dependencies in the folder ``lib`` beside it.
"""

import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from signal import SIGKILL

from bessemer.contract.problem import ErrorCode
from worker.errors import JobError, signal_name
from worker.sandbox.libc import die_with_parent

SEARCH_PATH = "$ORIGIN/lib"
"""Where a linked library finds the libraries that it needs."""


class LinkError(Exception):
    """The linker failed; the message is the linker's."""


def linker_path() -> Path:
    """The zig executable of the environment."""
    return Path(str(files("ziglang").joinpath("zig")))


def link_shared(output: str | Path, objects: list[str], libraries: Sequence[str] = ()) -> None:
    """Link objects to a shared library; usable as ``fcompile`` of ``export_library``.

    Args:
        output: the library to write.
        objects: paths of the object files.
        libraries: shared libraries that it needs; it finds them in the folder ``lib`` beside it.

    Raises:
        LinkError: the linker failed.
        JobError: ``child-killed``: another process killed the linker, or the kernel ran out of memory.
    """
    search = ["-rpath", SEARCH_PATH] if libraries else []
    run_zig("ld.lld", "-shared", "-o", str(output), *objects, *libraries, *search)


link_shared.object_format = "o"  # type: ignore[attr-defined]


def run_zig(tool: str, *arguments: str) -> None:
    """Run one of zig's tools, such as ``ld.lld`` or ``cc``.

    Raises:
        LinkError: the tool failed.
        JobError: ``child-killed``: another process killed it, or the kernel ran out of memory.
    """
    signal_or_status, message = _run([str(linker_path()), tool, *arguments])
    if signal_or_status == -SIGKILL:
        raise JobError(ErrorCode.CHILD_KILLED, f"zig {tool} was killed by {signal_name(SIGKILL)}")
    if signal_or_status != 0:
        raise LinkError(message.strip() or f"zig {tool} ended with status {signal_or_status}")


def _run(arguments: list[str]) -> tuple[int, str]:
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent(parent)
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            os.execv(arguments[0], arguments)
        finally:
            os._exit(127)
    os.close(writer)
    message = _read_all(reader)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), message


def _read_all(reader: int) -> str:
    with os.fdopen(reader, "rb") as stream:
        return stream.read().decode(errors="replace")
