"""The zygote: imports torch and TVM once, then forks a child for every job (``python -m worker.job.zygote``).

The supervisor starts it by exec with an empty environment. It has one thread, runs no parallel region,
and holds two pipes: orders on standard input, answers on standard output. When its input ends, it kills every
job.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bessemer.contract.capability import Capability
from bessemer.contract.offers import Offers
from worker.job.compiler_digest import compiler_digest
from worker.job.folder import JobFolder
from worker.job.warmup import import_everything
from worker.measure.machine import versions
from worker.protocol.order import MAX_ORDER_BYTES, ORDERS, Answer, Exited, Ready, Started, StartJob
from worker.protocol.sender import JobPipes
from worker.sandbox.libc import Prctl, prctl

_READ_BYTES = 1 << 16
_KILL_STEP_SECONDS = 0.005
_KILL_DEADLINE_SECONDS = 30.0


@dataclass(frozen=True)
class Pipes:
    """The zygote's descriptors."""

    orders: int
    answers: int
    wakeups: int


class Zygote:
    """Forks and reaps."""

    def __init__(self, pipes: Pipes, mcpu: str) -> None:
        self._pipes = pipes
        self._mcpu = mcpu
        self._jobs: dict[int, str] = {}
        self._unread = b""

    def serve(self) -> None:
        """Carry out orders until the input ends, then kill every job."""
        ready = select.poll()
        ready.register(self._pipes.orders, select.POLLIN)
        ready.register(self._pipes.wakeups, select.POLLIN)
        while True:
            events = {descriptor for descriptor, _ in ready.poll()}
            if self._pipes.wakeups in events:
                os.read(self._pipes.wakeups, _READ_BYTES)
                self._reap()
            if self._pipes.orders in events and not self._take_orders():
                break
        self._end_all()

    def _take_orders(self) -> bool:
        chunk = os.read(self._pipes.orders, _READ_BYTES)
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            self._start(ORDERS.validate_json(line))
        if len(self._unread) > MAX_ORDER_BYTES:
            raise ValueError(f"an order is longer than {MAX_ORDER_BYTES} bytes")
        return bool(chunk)

    def _start(self, order: StartJob) -> None:
        started = time.monotonic()
        try:
            with _opened_pipes(JobFolder(Path(order.folder))) as pipes:
                pid = os.fork()
                if pid == 0:
                    self._become_child(order, pipes, started)
        except OSError as error:
            self._answer(_not_started(order.job, error))
            return
        self._jobs[pid] = order.job
        self._answer(Started(job=order.job, pid=pid))

    def _become_child(self, order: StartJob, pipes: JobPipes, started: float) -> None:
        try:
            from worker.job import child

            child.main(order, pipes, self._mcpu, started)
        finally:
            os._exit(1)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            job = self._jobs.pop(pid, None)
            if job is not None:
                self._answer(_exited(job, status))

    def _answer(self, answer: Answer) -> None:
        line = answer.model_dump_json().encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._pipes.answers, line) :]
        except BrokenPipeError:
            return

    def _end_all(self) -> None:
        deadline = time.monotonic() + _KILL_DEADLINE_SECONDS
        groups = set(self._jobs)
        while groups and time.monotonic() < deadline:
            groups = {group for group in groups if _kill_group(group)}
            self._reap()
            time.sleep(_KILL_STEP_SECONDS)


@contextmanager
def _opened_pipes(folder: JobFolder) -> Iterator[JobPipes]:
    """The job's ends of its FIFOs, whose other ends the supervisor has opened."""
    with ExitStack() as opened:
        ends: list[int] = []
        for path, mode in ((folder.messages, os.O_WRONLY), (folder.grants, os.O_RDONLY)):
            end = os.open(path, mode | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            opened.callback(os.close, end)
            os.set_blocking(end, True)
            ends.append(end)
        yield JobPipes(*ends)


def main() -> None:
    """Import everything, report that, and serve."""
    started = time.monotonic()
    pipes = _take_pipes()
    import_everything()
    prctl(Prctl.SET_CHILD_SUBREAPER, 1)
    _prepare_filters()
    mcpu, capability, offers = _host()
    zygote = Zygote(pipes, mcpu)
    seconds = time.monotonic() - started
    zygote._answer(
        Ready(
            seconds=seconds,
            mcpu=mcpu,
            versions=versions(),
            compiler=compiler_digest(),
            capability=capability,
            offers=offers,
        )
    )
    zygote.serve()


def _host() -> tuple[str, Capability, Offers]:
    from worker.compiler.target import host_mcpu
    from worker.job.compiler_warmup import capability
    from worker.job.extensions import offers

    return host_mcpu(), capability(), offers()


def _take_pipes() -> Pipes:
    """Move the pipe for answers away from descriptor 1, so that no library prints into it."""
    answers = os.dup(1)
    os.dup2(2, 1)
    wakeups, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return Pipes(orders=0, answers=answers, wakeups=wakeups)


def _prepare_filters() -> None:
    from worker.measure.gpus import gpus_here
    from worker.sandbox.seccomp import filter_program

    try:
        for gpus in {False, bool(gpus_here())}:
            filter_program(os.geteuid() != 0, gpus)
    except (RuntimeError, OSError) as error:
        # each child hits the same error and reports the layer as lost
        sys.stderr.write(f"seccomp: {error}\n")


def _kill_group(group: int) -> bool:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _not_started(job: str, error: OSError) -> Exited:
    return Exited(job=job, status=error.errno or 1, signal=0)


def _exited(job: str, status: int) -> Exited:
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return Exited(job=job, status=0 if number else os.WEXITSTATUS(status), signal=number)


if __name__ == "__main__":
    main()
