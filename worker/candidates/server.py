"""The candidate server: forked before anything ran in parallel, it forks all that builds or runs code.

It runs neither torch nor a kernel itself, and never opens a candidate. It serves one request at a time, with
several builders at once but one measuring process. A candidate that crashes, hangs or exits fails; a library
that does not answer in time is killed. When the job child closes its end of the pipe, the server exits, and
the kernel kills what it forked.

The server stops a process that runs a library or the original model between two commands: idle threads of TVM
and libgomp spin for a while and would take a core from the side that is timed next.
"""

from __future__ import annotations

import gc
import itertools
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from worker.candidates.client import DEFAULT_TIMEOUTS, CandidateClient, Timeouts
from worker.candidates.library import Answer, Raised, library_work, served_work
from worker.candidates.measuring import measure_batch
from worker.candidates.pool import build_batch, compile_batch
from worker.candidates.process import ForkedProcess, Work, fork_process, receive_value, send_value
from worker.candidates.requests import (
    AwaitOriginal,
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
from worker.errors import describe_end
from worker.measure.turns import ANY_TIME, Turns


def fork_server(
    scratch: Path, timeouts: Timeouts = DEFAULT_TIMEOUTS, turns: Turns = ANY_TIME
) -> CandidateClient:
    """Fork the candidate server.

    Args:
        scratch: a folder for temporary files.
        timeouts: how long libraries may take to answer.
        turns: when this job may measure.

    Returns:
        The client. Closing it ends the server and everything that it forked.
    """

    def work(reader: int, writer: int) -> None:
        tempfile.tempdir = str(scratch)
        os.environ["TMPDIR"] = str(scratch)
        gc.freeze()
        Server().serve(reader, writer)

    return CandidateClient(fork_process(work), timeouts, turns)


class Server:
    """Serves requests until the pipe closes."""

    def __init__(self) -> None:
        self._libraries: dict[int, ForkedProcess] = {}
        self._handles = itertools.count(1)

    def serve(self, reader: int, writer: int) -> None:
        """Answer requests until the job child closes its end of the pipe."""
        try:
            while True:
                send_value(writer, self._answer(receive_value(reader), reader, writer))
        finally:
            for handle in tuple(self._libraries):
                self._close(handle)

    def _answer(self, request: Request, reader: int, writer: int) -> Any:
        match request:
            case CompileBatch():
                return compile_batch(request, reader, partial(send_value, writer))
            case BuildBatch():
                return build_batch(request, reader)
            case MeasureBatch():
                return measure_batch(request, reader)
            case OpenLibrary(path, threads, seconds, parameters):
                started = self._start(library_work(Path(path), threads, parameters))
                return self._wait_loaded(started.handle, seconds)
            case OpenOriginal(payload):
                return self._start(served_work(payload))
            case AwaitOriginal(handle, seconds):
                return self._wait_loaded(handle, seconds)
            case CallLibrary():
                return self._call(request)
            case CloseLibrary(handle):
                return self._close(handle)

    def _start(self, work: Work) -> Opened:
        handle = next(self._handles)
        self._libraries[handle] = fork_process(work)
        return Opened(handle)

    def _wait_loaded(self, handle: int, seconds: float) -> Opened | Crashed:
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
            return self._reap(handle)
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
            return self._reap(handle)

    def _reap(self, handle: int) -> Crashed:
        number = self._libraries.pop(handle).close()
        return Crashed(number, f"the process {describe_end(number)}")

    def _close(self, handle: int) -> None:
        process = self._libraries.pop(handle, None)
        if process is not None:
            process.kill()
