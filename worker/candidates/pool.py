"""A pool of forked processes that run pickled functions, several at a time, each within a limit.

A pass of TVM or LLVM cannot be interrupted. A call that takes too long ends with its process: the pool kills
it at its limit of wall clock, the kernel at its limit of processor time. Other calls are not affected.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from bessemer.contract.problem import ErrorCode
from bessemer.contract.records import NOT_COMPILED
from worker.candidates.process import ForkedProcess, fork_process, receive_value, send_value, wait_any
from worker.candidates.requests import (
    NO_TIME,
    BuildBatch,
    BuildOutcome,
    CompileBatch,
    CompileFunctions,
    CompileOutcome,
    CompileProgress,
)
from worker.errors import describe_end, failure_of, met_a_full_disk, ran_out_of_memory, short_message


@dataclass(frozen=True)
class Call:
    """A pickled function to call; ``processor_seconds`` is its limit of processor time, 0 for none."""

    payload: bytes
    arguments: tuple[str, ...] = ()
    processor_seconds: float = 0.0


@dataclass(frozen=True)
class CallEnd:
    """How a call ended: it returned, it raised, or its process ended.

    Attributes:
        failure: what it raised, as the pool describes exceptions.
        signal: the signal that ended its process; 0 if the process exited, None if it still runs.
        is_late: the pool killed the process at the limit of wall clock.
        is_over: the time of the whole batch was over.
    """

    failure: Any = None
    signal: int | None = None
    is_late: bool = False
    is_over: bool = False


RETURNED = CallEnd()


@dataclass(frozen=True)
class _Running:
    process: ForkedProcess
    deadline: float


class Pool:
    """The processes of one batch of calls.

    Args:
        calls: what to run.
        workers: how many processes run at a time.
        parent: a descriptor that ends when the job child is gone.
        describe: makes the ``failure`` of an exception, in the process that raised it.
        wall_seconds: the limit of wall clock of each call.
        reuse: whether a process runs another call after one that ended well.
        left_seconds: the limit of wall clock of all calls together.
    """

    def __init__(
        self,
        calls: tuple[Call, ...],
        workers: int,
        parent: int,
        describe: Callable[[Exception], Any],
        wall_seconds: float = inf,
        reuse: bool = False,
        left_seconds: float = inf,
    ) -> None:
        self.ends: dict[int, CallEnd] = {}
        self._calls = calls
        self._workers = workers
        self._parent = parent
        self._describe = describe
        self._wall_seconds = wall_seconds
        self._reuse = reuse
        self._over = time.monotonic() + left_seconds
        self._waiting = deque(range(len(calls)))
        self._idle: list[ForkedProcess] = []
        self._running: dict[int, _Running] = {}

    @property
    def running(self) -> tuple[int, ...]:
        """The indices of the calls that run, oldest first."""
        return tuple(self._running)

    def run(self, on_change: Callable[[], None] = lambda: None) -> tuple[CallEnd, ...]:
        """Run every call, and return their ends in the same order.

        Args:
            on_change: called whenever calls have started or ended.

        Raises:
            EOFError: the job child is gone.
        """
        try:
            self._start()
            while self._running:
                on_change()
                self._await()
                self._kill_late()
                self._start()
            on_change()
        finally:
            for process in (*self._idle, *(running.process for running in self._running.values())):
                process.kill()
        return tuple(self.ends[index] for index in range(len(self._calls)))

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._workers:
            process = self._idle.pop() if self._idle else fork_process(partial(_serve, self._describe))
            index = self._waiting.popleft()
            self._running[index] = _Running(process, time.monotonic() + self._wall_seconds)
            with contextlib.suppress(BrokenPipeError):  # the end of its answers shows how it died
                process.send(self._calls[index])

    def _await(self) -> None:
        first = min(self._over, *(running.deadline for running in self._running.values()))
        seconds = None if first == inf else first - time.monotonic()
        readers = {running.process.reader: index for index, running in self._running.items()}
        for reader in wait_any((*readers, self._parent), seconds):
            if reader == self._parent:
                raise EOFError("the job child is gone")
            self._take(readers[reader])

    def _take(self, index: int) -> None:
        process = self._running.pop(index).process
        try:
            self.ends[index] = CallEnd(process.receive())
        except EOFError:
            self.ends[index] = CallEnd(signal=process.close())
            return
        if self._reuse:
            self._idle.append(process)
        else:
            process.kill()

    def _kill_late(self) -> None:
        now = time.monotonic()
        is_over = self._over <= now
        for index, running in tuple(self._running.items()):
            if is_over or running.deadline <= now:
                del self._running[index]
                is_late = running.deadline <= now
                killed_by = running.process.kill()
                self.ends[index] = CallEnd(signal=killed_by, is_late=is_late, is_over=not is_late)
        while is_over and self._waiting:
            self.ends[self._waiting.popleft()] = CallEnd(is_over=True)


def _serve(describe: Callable[[Exception], Any], reader: int, writer: int) -> None:
    while True:
        call: Call = receive_value(reader)
        signal.setitimer(signal.ITIMER_PROF, call.processor_seconds)
        failure = None
        try:
            pickle.loads(call.payload)(*call.arguments)
        except Exception as error:
            failure = describe(error)
        signal.setitimer(signal.ITIMER_PROF, 0)
        send_value(writer, failure)


def build_batch(batch: BuildBatch, parent: int) -> tuple[BuildOutcome, ...]:
    """Build every candidate in processes that build others, too; see ``Pool`` for ``parent`` and the errors.

    A builder runs no candidate, only passes and code generation. A new one for each would take longer.
    """
    calls = tuple(Call(candidate.payload, (candidate.library,)) for candidate in batch.candidates)
    pool = Pool(
        calls,
        batch.workers,
        parent,
        _build_failure,
        batch.timeout_seconds,
        reuse=True,
        left_seconds=batch.left_seconds,
    )
    ends = pool.run()
    errors = [_build_error(end, batch.timeout_seconds) for end in ends]
    libraries = [candidate.library for candidate in batch.candidates]
    for library, error in zip(libraries, errors, strict=True):
        if error:
            Path(library).unlink(missing_ok=True)
    return tuple(
        BuildOutcome(library=None if error else library, error=error)
        for library, error in zip(libraries, errors, strict=True)
    )


def _build_failure(error: Exception) -> str:
    """Why a build failed; a compiler that refuses a candidate would refuse it again."""
    reason = short_message(error)
    is_refusal = not (isinstance(error, OSError) or ran_out_of_memory(error) or met_a_full_disk(error))
    return NOT_COMPILED + reason if is_refusal else reason


def _build_error(end: CallEnd, timeout_seconds: float) -> str | None:
    if end.is_over:
        return NO_TIME
    if end.is_late:
        return f"the build took longer than {timeout_seconds:g} s"
    if end.signal is not None:
        return f"the builder {describe_end(end.signal)}"
    return end.failure


def compile_batch(
    batch: CompileBatch, parent: int, on_progress: Callable[[CompileProgress], None]
) -> tuple[CompileOutcome, ...]:
    """Compile every group; see ``Pool`` for ``parent`` and the errors.

    Args:
        batch: the groups.
        parent: a descriptor that ends when the job child is gone.
        on_progress: called with the batch's progress whenever it changes.
    """
    calls = tuple(Call(group.payload, processor_seconds=group.seconds) for group in batch.groups)
    pool = Pool(calls, batch.workers, parent, compile_failure, reuse=True)

    def report() -> None:
        done = sum(len(batch.groups[index].names) for index, end in pool.ends.items() if end == RETURNED)
        on_progress(
            CompileProgress(done, tuple(name for index in pool.running for name in batch.groups[index].names))
        )

    return tuple(map(_compile_outcome, pool.run(report)))


def compile_failure(error: Exception) -> tuple[ErrorCode, str]:
    """The code and the detail of an exception in a compiler."""
    failed = failure_of(ErrorCode.BUILD_FAILED, error)
    return failed.code, failed.detail


def compile_group(group: CompileFunctions) -> CompileOutcome:
    """Compile a group in this process, without a limit."""
    try:
        pickle.loads(group.payload)()
    except Exception as error:
        return CompileOutcome(compile_failure(error))
    return CompileOutcome()


def _compile_outcome(end: CallEnd) -> CompileOutcome:
    if end.signal is None:
        return CompileOutcome(end.failure)
    if end.signal == signal.SIGPROF:
        return CompileOutcome(is_late=True)
    code = ErrorCode.CHILD_KILLED if end.signal == signal.SIGKILL else ErrorCode.BUILD_FAILED
    return CompileOutcome((code, f"the compiler {describe_end(end.signal)}"))
