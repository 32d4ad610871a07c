"""Child processes that start and stop together."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Self

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.05
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class ChildProcesses:
    """Child processes that stop together: ``with ChildProcesses() as children``.

    The first SIGINT, SIGTERM or SIGHUP sets ``stopping``; a second one kills the children. Each child has its
    own session, so a terminal's Ctrl-C does not reach it directly. If this process dies, so do the children.
    """

    stop_seconds: float = 30.0
    stopping: bool = False
    _killing: bool = False
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _handlers: dict[signal.Signals, Any] = field(default_factory=dict)

    def __enter__(self) -> Self:
        for number in STOP_SIGNALS:
            self._handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def start(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        output: int | None = None,
    ) -> None:
        """Start a child, which ``ended`` reports by its name.

        ``output`` is the descriptor of its standard output; by default, this process's standard error.
        """
        self._children[name] = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if output is None else output,
            start_new_session=True,
            preexec_fn=_die_with_parent(os.getpid()),
        )

    def ended(self) -> tuple[str, int] | None:
        """The name and exit status of a child that has ended, if any."""
        for name, child in self._children.items():
            status = child.poll()
            if status is not None:
                return name, status
        return None

    def wait_until(self, condition: Callable[[], bool]) -> bool:
        """Wait for a condition; False if a child ended or a signal arrived first."""
        while not self.stopping and self.ended() is None:
            if condition():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._killing = self.stopping
        self.stopping = True

    def _stop(self) -> None:
        for child in self._children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self.stop_seconds
        while any(child.poll() is None for child in self._children.values()):
            if self._killing or time.monotonic() > deadline:
                self._kill()
            time.sleep(POLL_SECONDS)

    def _kill(self) -> None:
        for child in self._children.values():
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def _die_with_parent(parent: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return prepare
