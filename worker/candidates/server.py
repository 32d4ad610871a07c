"""The candidate server: forked before anything ran in parallel, it forks all that builds or runs code.

It runs neither torch nor a kernel itself, and never opens a candidate. It serves one request after the
other: several builders at once, one measuring process at a time. A candidate that crashes, hangs or exits is
a failed candidate; a library that does not answer in time is killed. When the job child's end of the pipe
closes, the server ends, and the kernel ends what it forked.

A process that runs a library or the original model is stopped between two commands: the idle threads of TVM
and libgomp look for work for a while, and would take a core from the side that is timed next.
"""

from __future__ import annotations

import gc
import itertools
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from worker.candidates import wire
from worker.candidates.building import build_batch
from worker.candidates.client import CandidateClient
from worker.candidates.compiling import compile_batch
from worker.candidates.library import Answer, Raised, library_work, served_work
from worker.candidates.measuring import measure_batch
from worker.candidates.process import ForkedProcess, Work, fork_process
from worker.candidates.requests import (
    BuildBatch,
    CallLibrary,
    CloseLibrary,
    CompileBatch,
    Crashed,
    MeasureBatch,
    Opened,
    OpenLibrary,
    OpenOriginal,
    Request,
)
from worker.candidates.timeouts import DEFAULT_TIMEOUTS, Timeouts
from worker.measure.turns import ANY_TIME, Turns
from worker.signals import signal_name


def fork_server(
    scratch: Path, timeouts: Timeouts = DEFAULT_TIMEOUTS, turns: Turns = ANY_TIME
) -> CandidateClient:
    """Fork the candidate server.

    Args:
        scratch: the folder where temporary files may be written.
        timeouts: how long libraries may take to answer.
        turns: when this job may measure.

    Returns:
        The client; closing it ends the server and everything that it forked.
    """

    def work(reader: int, writer: int) -> None:
        tempfile.tempdir = str(scratch)
        os.environ["TMPDIR"] = str(scratch)
        gc.freeze()
        Server().serve(reader, writer)

    return CandidateClient(fork_process(work), timeouts, turns)


class Server:
    """Serves requests until the pipe ends."""

    def __init__(self) -> None:
        self._libraries: dict[int, ForkedProcess] = {}
        self._handles = itertools.count(1)

    def serve(self, reader: int, writer: int) -> None:
        """Answer requests; returns when the job child has closed its end."""
        try:
            while True:
                wire.send(writer, self._answer(wire.receive(reader), reader, writer))
        finally:
            for handle in tuple(self._libraries):
                self._close(handle)

    def _answer(self, request: Request, reader: int, writer: int) -> Any:
        match request:
            case CompileBatch():
                return compile_batch(request, reader, partial(wire.send, writer))
            case BuildBatch():
                return build_batch(request, reader)
            case MeasureBatch():
                return measure_batch(request, reader)
            case OpenLibrary(path, threads, seconds, parameters):
                return self._open(library_work(Path(path), threads, parameters), seconds)
            case OpenOriginal(payload, seconds):
                return self._open(served_work(payload), seconds)
            case CallLibrary():
                return self._call(request)
            case CloseLibrary(handle):
                return self._close(handle)

    def _open(self, work: Work, seconds: float) -> Opened | Crashed:
        handle = next(self._handles)
        self._libraries[handle] = fork_process(work)
        loaded = self._receive(handle, seconds)
        match loaded:
            case Answer():
                return Opened(handle)
            case Raised(detail):
                self._close(handle)
                return Crashed(0, detail)
        return loaded

    def _call(self, request: CallLibrary) -> Answer | Raised | Crashed:
        handle = request.handle
        if handle not in self._libraries:
            return Crashed(0, "the process is gone")
        process = self._libraries[handle]
        process.resume()
        try:
            process.send(request.command)
        except BrokenPipeError:
            return self._bury(handle)
        answer = self._receive(handle, request.seconds)
        if handle in self._libraries:
            process.pause()
        return answer

    def _receive(self, handle: int, seconds: float) -> Answer | Raised | Crashed:
        process = self._libraries[handle]
        if not process.wait_readable(seconds):
            self._close(handle)
            return Crashed(0, f"no answer within {seconds:g} s")
        try:
            return process.receive()
        except EOFError:
            return self._bury(handle)

    def _bury(self, handle: int) -> Crashed:
        number = self._libraries.pop(handle).close()
        return Crashed(number, f"the process {describe_end(number)}")

    def _close(self, handle: int) -> None:
        process = self._libraries.pop(handle, None)
        if process is not None:
            process.kill()


def describe_end(number: int) -> str:
    """Words for the end of a process: the signal's name, or that it left by itself."""
    return f"was ended by {signal_name(number)}" if number else "ended by itself"
