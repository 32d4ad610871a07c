"""Forked processes that die with their parent and talk over two pipes.

Inside the sandbox only ``os.fork`` and ``os.pipe`` work: no semaphores, no sockets, no new process groups.
"""

import ctypes
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from worker.candidates import wire

_PR_SET_PDEATHSIG = 1
_FIRST_DESCRIPTOR = 3
_GRACE_SECONDS = 3.0
_WAIT_STEP_SECONDS = 0.0005
_LIBC = ctypes.CDLL(None, use_errno=True)

Work = Callable[[int, int], None]
"""What a process does: given the descriptor that it reads from and the one that it writes to."""


@dataclass(frozen=True)
class ForkedProcess:
    """A running process: ``writer`` leads to it, ``reader`` comes from it."""

    pid: int
    writer: int
    reader: int

    def send(self, value: Any) -> None:
        """Send a value; raises BrokenPipeError where the process is gone."""
        wire.send(self.writer, value)

    def receive(self) -> Any:
        """Receive a value; raises EOFError where the process is gone."""
        return wire.receive(self.reader)

    def pause(self) -> None:
        """Stop the process until it is resumed or killed; returns when all its threads stand still."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let the process run on."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_readable(self, seconds: float | None) -> bool:
        """Whether something (a value or the end) comes within ``seconds``; None waits for ever."""
        return bool(wait_any((self.reader,), seconds))

    def close(self) -> int:
        """Close the pipes, wait for the process's end and return the signal that ended it (0: none).

        A process that does not end by itself within ``_GRACE_SECONDS`` is killed; that is no signal's end.
        """
        os.close(self.writer)
        os.close(self.reader)
        status = _wait_or_kill(self.pid)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

    def ended_by(self) -> int:
        """The signal that ended the process (0: none), which is still to be closed. Waits for its end."""
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        return 0 if ended.si_code == os.CLD_EXITED else ended.si_status

    def kill(self) -> int:
        """End the process at once; as ``close`` otherwise."""
        os.kill(self.pid, signal.SIGKILL)
        return self.close()


def wait_any(descriptors: tuple[int, ...], seconds: float | None) -> tuple[int, ...]:
    """The descriptors that can be read, or have ended, within ``seconds``; None waits for ever."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    milliseconds = None if seconds is None else max(0, int(seconds * 1000) + 1)
    return tuple(descriptor for descriptor, _ in poll.poll(milliseconds))


def fork_process(work: Work) -> ForkedProcess:
    """Fork a process that runs ``work`` and exits; it dies with its parent and inherits two pipes only."""
    child_reads, parent_writes = os.pipe()
    parent_reads, child_writes = os.pipe()
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _run_forked(work, parent, child_reads, child_writes)
    os.close(child_reads)
    os.close(child_writes)
    return ForkedProcess(pid=pid, writer=parent_writes, reader=parent_reads)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` ends; descendants do not inherit that."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _wait_or_kill(pid: int) -> int:
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(_WAIT_STEP_SECONDS)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 0


def _run_forked(work: Work, parent: int, reader: int, writer: int) -> None:
    status = 1
    try:
        die_with(parent)
        _close_others(reader, writer)
        work(reader, writer)
        status = 0
    except (EOFError, BrokenPipeError):
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _close_others(*kept: int) -> None:
    start = _FIRST_DESCRIPTOR
    for descriptor in sorted(kept):
        os.closerange(start, descriptor)
        start = descriptor + 1
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))
