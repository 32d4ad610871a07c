"""Forked processes that die with their parent, and pickled values over pipes between them.

All processes of a job trust each other, so they may unpickle what they receive. Inside the sandbox only
``os.fork`` and ``os.pipe`` work: no semaphores, no sockets, no new process groups.
"""

import os
import pickle
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from worker.sandbox.libc import close_descriptors, die_with_parent

_GRACE_SECONDS = 3.0
_WAIT_STEP_SECONDS = 0.0005
_LENGTH = struct.Struct("<Q")
_CHUNK_BYTES = 1 << 20
_SPIN_COUNT = 2500
"""How often an idle worker thread of TVM looks for work before it sleeps: about 2 ms instead of 250.

It bridges the gaps inside a model, and frees the core for the side that is timed next.
"""

Work = Callable[[int, int], None]
"""What a process runs, given the descriptors to read from and to write to."""


@dataclass(frozen=True)
class ForkedProcess:
    """A running process. Write to it through ``writer``, read from it through ``reader``."""

    pid: int
    writer: int
    reader: int

    def send(self, value: Any) -> None:
        """Send a value. Raises BrokenPipeError if the process has ended."""
        send_value(self.writer, value)

    def receive(self) -> Any:
        """Receive a value. Raises EOFError if the process has ended."""
        return receive_value(self.reader)

    def pause(self) -> None:
        """Stop the process until it is resumed or killed. Returns when all its threads have stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Continue the stopped process."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_readable(self, seconds: float | None) -> bool:
        """Whether a value or the end of the pipe arrives within ``seconds``; None waits without limit."""
        return bool(wait_any((self.reader,), seconds))

    def close(self) -> int:
        """Close the pipes, wait until the process ends, and return the signal that ended it (0: none).

        A process that does not exit within ``_GRACE_SECONDS`` is killed. That counts as 0, too.
        """
        os.close(self.writer)
        os.close(self.reader)
        status = _wait_or_kill(self.pid)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

    def ended_by(self) -> int:
        """Wait until the process ends and return the signal that ended it (0: none), without closing it."""
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        return 0 if ended.si_code == os.CLD_EXITED else ended.si_status

    def kill(self) -> int:
        """Kill the process, then ``close`` it."""
        os.kill(self.pid, signal.SIGKILL)
        return self.close()


def wait_any(descriptors: tuple[int, ...], seconds: float | None) -> tuple[int, ...]:
    """The descriptors that become readable or end within ``seconds``; None waits without limit."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    milliseconds = None if seconds is None else max(0, int(seconds * 1000) + 1)
    return tuple(descriptor for descriptor, _ in poll.poll(milliseconds))


def fork_process(work: Work) -> ForkedProcess:
    """Fork a process that runs ``work`` and exits. It dies with its parent and inherits only two pipes."""
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


def run_module(name: str, reader: int, writer: int) -> None:
    """Become a new interpreter that runs a module, with the descriptors as its arguments.

    It imports what this one would, and nothing from the current folder.
    """
    for descriptor in (reader, writer):
        os.set_inheritable(descriptor, True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", name, str(reader), str(writer)]
    os.execve(sys.executable, command, environment)


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
        die_with_parent(parent)
        close_descriptors((reader, writer))
        work(reader, writer)
        status = 0
    except (EOFError, BrokenPipeError):
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def send_value(descriptor: int, value: Any) -> None:
    """Write one value.

    Raises:
        BrokenPipeError: the reader has ended.
    """
    payload = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    _write(descriptor, _LENGTH.pack(len(payload)))
    _write(descriptor, payload)


def receive_value(descriptor: int) -> Any:
    """Wait for one value and read it.

    Raises:
        EOFError: the writer has ended.
    """
    (length,) = _LENGTH.unpack(_read(descriptor, _LENGTH.size))
    return pickle.loads(_read(descriptor, length))


def _write(descriptor: int, payload: bytes) -> None:
    view = memoryview(payload)
    while view:
        written = os.write(descriptor, view[:_CHUNK_BYTES])
        view = view[written:]


def _read(descriptor: int, length: int) -> bytearray:
    buffer = bytearray()
    while len(buffer) < length:
        chunk = os.read(descriptor, min(length - len(buffer), _CHUNK_BYTES))
        if not chunk:
            raise EOFError("the process at the other end has ended")
        buffer += chunk
    return buffer


def use_threads(threads: int) -> None:
    """Set how many threads TVM uses in this process; by default it takes half the cores on x86.

    Has no effect after the first parallel region.
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    os.environ["TVM_THREAD_POOL_SPIN_COUNT"] = str(_SPIN_COUNT)
