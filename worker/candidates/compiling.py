"""Compilers: forked processes that compile one group of functions after another and can be ended at any time.

A pass of TVM or LLVM cannot be interrupted. A group that takes more processor time than it may is ended by
the kernel, together with its process; the next group gets a new one.
"""

from __future__ import annotations

import pickle
import signal
from collections import deque
from collections.abc import Callable

from bessemer.contract.problem import ErrorCode
from worker.candidates import wire
from worker.candidates.process import ForkedProcess, fork_process, wait_any
from worker.candidates.requests import CompileBatch, CompileFunctions, CompileOutcome, CompileProgress
from worker.errors import failure_of
from worker.signals import signal_name


def compile_batch(
    batch: CompileBatch, parent: int, on_progress: Callable[[CompileProgress], None]
) -> tuple[CompileOutcome, ...]:
    """Compile every group, ``batch.workers`` at a time.

    Args:
        batch: the groups.
        parent: the descriptor that ends when the job child is gone.
        on_progress: called with the batch's progress whenever it changes.

    Returns:
        One outcome per group, in their order.

    Raises:
        EOFError: the job child is gone.
    """
    compilers = Compilers(batch, parent, on_progress)
    try:
        return compilers.run()
    finally:
        compilers.close()


def compile_functions(reader: int, writer: int) -> None:
    """Compile groups in this process until the pipe closes."""
    while True:
        group: CompileFunctions = wire.receive(reader)
        signal.setitimer(signal.ITIMER_PROF, group.seconds)
        failure = write_functions(group)
        signal.setitimer(signal.ITIMER_PROF, 0)
        wire.send(writer, CompileOutcome(failure))


def write_functions(group: CompileFunctions) -> tuple[ErrorCode, str] | None:
    """Write the object of a group, and return the failure if there is one."""
    try:
        pickle.loads(group.payload)()
    except Exception as error:
        failed = failure_of(ErrorCode.BUILD_FAILED, error)
        return failed.code, failed.detail
    return None


class Compilers:
    """The processes that compile one batch."""

    def __init__(
        self, batch: CompileBatch, parent: int, on_progress: Callable[[CompileProgress], None]
    ) -> None:
        self._batch = batch
        self._parent = parent
        self._on_progress = on_progress
        self._waiting = deque(range(len(batch.groups)))
        self._outcomes: dict[int, CompileOutcome] = {}
        self._idle: list[ForkedProcess] = []
        self._running: dict[int, ForkedProcess] = {}

    def run(self) -> tuple[CompileOutcome, ...]:
        """Hand out groups until each has its outcome."""
        self._hand_out()
        while self._running:
            self._on_progress(self._progress())
            self._await()
            self._hand_out()
        self._on_progress(self._progress())
        return tuple(self._outcomes[index] for index in range(len(self._batch.groups)))

    def close(self) -> None:
        """End the processes."""
        for process in (*self._idle, *self._running.values()):
            process.kill()

    def _progress(self) -> CompileProgress:
        groups = self._batch.groups
        running = tuple(name for index in self._running for name in groups[index].names)
        compiled = [index for index, outcome in self._outcomes.items() if outcome == CompileOutcome()]
        done = sum(len(groups[index].names) for index in compiled)
        return CompileProgress(done, running)

    def _hand_out(self) -> None:
        while self._waiting and len(self._running) < self._batch.workers:
            process = self._idle.pop() if self._idle else fork_process(compile_functions)
            index = self._waiting.popleft()
            self._running[index] = process
            process.send(self._batch.groups[index])

    def _await(self) -> None:
        readers = {process.reader: index for index, process in self._running.items()}
        for reader in wait_any((*readers, self._parent), None):
            if reader == self._parent:
                raise EOFError("the job child is gone")
            self._take(readers[reader])

    def _take(self, index: int) -> None:
        process = self._running.pop(index)
        try:
            self._outcomes[index] = process.receive()
            self._idle.append(process)
        except EOFError:
            self._outcomes[index] = _ended(process.close())


def _ended(number: int) -> CompileOutcome:
    """The outcome of a compiler that ended without an answer."""
    if number == signal.SIGPROF:
        return CompileOutcome(is_late=True)
    code = ErrorCode.CHILD_KILLED if number == signal.SIGKILL else ErrorCode.BUILD_FAILED
    how = f"was ended by {signal_name(number)}" if number else "ended by itself"
    return CompileOutcome((code, f"the compiler {how}"))
