"""Runs programs that are not this one: zig's tools, and compiled models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from signal import SIGKILL

from bessemer.contract.problem import ErrorCode
from worker.errors import JobError, signal_name
from worker.sandbox.libc import die_with_parent


class ProgramFailedError(Exception):
    """A program ended with another status than 0; the message is its own."""


def execute(arguments: Sequence[str], name: str) -> str:
    """Run a program to its end and return what it printed.

    Args:
        arguments: the path of the program, and its arguments.
        name: what messages call it.

    Raises:
        ProgramFailedError: it failed, or a signal killed it.
        JobError: ``child-killed``: another process killed it, or the kernel ran out of memory.
    """
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent(parent)
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            os.execv(arguments[0], list(arguments))
        finally:
            os._exit(127)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        text = stream.read().decode(errors="replace")
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -SIGKILL:
        raise JobError(ErrorCode.CHILD_KILLED, f"{name} was killed by {signal_name(SIGKILL)}")
    if code < 0:
        raise ProgramFailedError(f"{name} was killed by {signal_name(-code)}")
    if code > 0:
        raise ProgramFailedError(text.strip() or f"{name} ended with status {code}")
    return text
