"""The supervisor's handle on the zygote: starts it by exec, gives it orders, and ends what it forked."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

import worker
from bessemer.contract.problem import ErrorCode
from bessemer.contract.sandbox import SandboxMode
from worker.errors import JobError
from worker.groups import Group, GroupsFile, kill_group
from worker.messages import MAX_LINE_BYTES, MESSAGES, Message
from worker.order import ANSWERS, Exited, Ready, Started, StartJob
from worker.processes import private_bytes, read_process
from worker.sandbox.environment import ZYGOTE_ENVIRONMENT

IMPORT_SECONDS = 180.0
STOP_SECONDS = 35.0
MAX_MESSAGES_BYTES = 1 << 26
"""What a job may say in all: more is no honest job's."""

CHECKOUT = Path(worker.__path__[0]).resolve().parent

log = logging.getLogger(__name__)


class ZygoteLostError(Exception):
    """The zygote could not be started, or ended before it answered."""


class MisbehavedError(JobError):
    """A child said what is no message."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.CHILD_MISBEHAVED, detail)


@dataclass(frozen=True)
class Exit:
    """How a job's first process ended.

    Attributes:
        status: its exit status; 0 where a signal ended it.
        signal: the signal that ended it; 0 where it left by itself.
        zygote_lost: the zygote ended first, and the job with it: not the job's fault.
    """

    status: int
    signal: int
    zygote_lost: bool = False


@dataclass(frozen=True)
class Voice:
    """The reading end of a job's FIFO."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport


class RunningJob:
    """A job that the zygote has started. Leaving its context ends all its processes."""

    def __init__(
        self, group: Group, folder: Path, voice: Voice, groups: GroupsFile, baseline_bytes: int
    ) -> None:
        self.exited: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.folder = folder
        self.baseline_bytes = baseline_bytes
        self._group = group
        self._voice = voice
        self._groups = groups

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()
        self._voice.transport.close()

    @property
    def pid(self) -> int:
        """The first process, and the id of the job's group."""
        return self._group.id

    @property
    def uid(self) -> int | None:
        """The slot's user."""
        return self._group.uid

    def running(self) -> bool:
        """Whether the first process still runs."""
        return not self.exited.done()

    async def messages(self) -> AsyncIterator[Message]:
        """What the child says, until every process of the job has closed its end.

        Raises:
            MisbehavedError: a line is no message, is too long, or there are too many.
        """
        total = 0
        async for line in self._lines():
            total += len(line)
            if total > MAX_MESSAGES_BYTES:
                raise MisbehavedError(f"it said more than {MAX_MESSAGES_BYTES} bytes")
            try:
                yield MESSAGES.validate_json(line)
            except ValidationError as error:
                raise MisbehavedError(f"it said what is no message: {line[:200]!r}") from error

    async def kill(self) -> None:
        """Send SIGKILL to every process of the job until none is left, then forget the group."""
        if not await asyncio.to_thread(kill_group, self._group):
            log.error("processes of group %d would not die", self.pid)
        await asyncio.to_thread(self._groups.remove, self.pid)

    async def _lines(self) -> AsyncIterator[bytes]:
        while True:
            try:
                line = await self._voice.reader.readline()
            except ValueError as error:
                raise MisbehavedError(f"it said a line longer than {MAX_LINE_BYTES} bytes") from error
            if not line:
                return
            yield line


class Zygote:
    """Starts the zygote when it is needed, and again when it died."""

    def __init__(self, groups: GroupsFile) -> None:
        self.ready: Ready | None = None
        self._groups = groups
        self._process: asyncio.subprocess.Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self._starting: dict[str, asyncio.Future[Started]] = {}
        self._running: dict[str, RunningJob] = {}
        self._early: dict[str, Exited] = {}
        self._lock = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The zygote's process; None while none runs."""
        return self._process.pid if self._alive() and self._process else None

    async def ensure_running(self) -> Ready:
        """Start the zygote unless it runs, and wait until it has imported everything.

        Raises:
            ZygoteLostError: it ended or did not get ready in time.
        """
        async with self._lock:
            if not self._alive() or self.ready is None:
                self.ready = await self._start()
            return self.ready

    async def start_job(self, order: StartJob) -> RunningJob:
        """Have a child forked. The FIFO is made here and has no name any more afterwards.

        Raises:
            ZygoteLostError: the zygote ended meanwhile, or could not fork.
        """
        await self.ensure_running()
        fifo = order.messages
        os.mkfifo(fifo, 0o600)
        try:
            reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                started = await self._order(order)
            except BaseException:
                os.close(reading)
                raise
        finally:
            os.unlink(fifo)  # noqa: PTH108
        return await self._adopt(order, started, reading)

    async def stop(self) -> None:
        """Close the zygote's input: it ends every job, then itself."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._listener is not None:
            await self._listener

    def _alive(self) -> bool:
        return self._process is not None and self._process.returncode is None and not self._listener_done()

    def _listener_done(self) -> bool:
        return self._listener is None or self._listener.done()

    async def _start(self) -> Ready:
        if self._listener is not None:
            await self._listener
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "worker.zygote"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=ZYGOTE_ENVIRONMENT,
            cwd=CHECKOUT,
            start_new_session=True,
            close_fds=True,
        )
        self._process = process
        ready = await _first_answer(process)
        self._listener = asyncio.create_task(self._listen(process))
        log.info("zygote %d ready after %.1f s", process.pid, ready.seconds)
        return ready

    async def _order(self, order: StartJob) -> Started:
        process = self._process
        if process is None or process.stdin is None:
            raise ZygoteLostError("the zygote is gone")
        started: asyncio.Future[Started] = asyncio.get_running_loop().create_future()
        self._starting[order.job] = started
        try:
            process.stdin.write(order.model_dump_json().encode() + b"\n")
            await process.stdin.drain()
            return await started
        except ConnectionError as error:
            raise ZygoteLostError("the zygote is gone") from error
        finally:
            self._starting.pop(order.job, None)

    async def _adopt(self, order: StartJob, started: Started, reading: int) -> RunningJob:
        voice = await _connect(reading)
        uid = None if order.confinement.mode is SandboxMode.OFF else order.confinement.uid
        leader = read_process(started.pid)
        group = Group(started.pid, leader.start_ticks if leader else 0, uid)
        baseline = private_bytes(self._process.pid) if self._process else 0
        job = RunningJob(group, Path(order.folder), voice, self._groups, baseline)
        self._groups.add(group)
        self._running[order.job] = job
        early = self._early.pop(order.job, None)
        if early is not None:
            self._exit(early)
        elif not self._alive():
            await self._lose()
        return job

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            match ANSWERS.validate_json(line):
                case Started() as started:
                    self._resolve(started)
                case Exited() as exited:
                    self._exit(exited)
                case Ready():
                    pass
        await process.wait()
        log.log(
            logging.INFO if process.returncode == 0 else logging.ERROR, "zygote ended: %s", process.returncode
        )
        await self._lose()

    def _resolve(self, started: Started) -> None:
        waiting = self._starting.get(started.job)
        if waiting is not None and not waiting.done():
            waiting.set_result(started)

    def _exit(self, exited: Exited) -> None:
        waiting = self._starting.get(exited.job)
        job = self._running.pop(exited.job, None)
        if job is not None:
            job.exited.set_result(Exit(exited.status, exited.signal))
        elif waiting is not None and not waiting.done():
            waiting.set_exception(ZygoteLostError(f"no child: {os.strerror(exited.status)}"))
        else:
            self._early[exited.job] = exited

    async def _lose(self) -> None:
        """The zygote is gone: nobody waits for its jobs any more, and nobody else would end them."""
        for waiting in self._starting.values():
            if not waiting.done():
                waiting.set_exception(ZygoteLostError("the zygote ended"))
        lost, self._running = self._running, {}
        for job in lost.values():
            with contextlib.suppress(ProcessLookupError):
                await job.kill()
            if not job.exited.done():
                job.exited.set_result(Exit(status=0, signal=9, zygote_lost=True))


async def _first_answer(process: asyncio.subprocess.Process) -> Ready:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), IMPORT_SECONDS)
    except TimeoutError as error:
        process.kill()
        raise ZygoteLostError(f"the zygote was not ready within {IMPORT_SECONDS} s") from error
    if not line:
        raise ZygoteLostError(f"the zygote ended with status {await process.wait()} before it was ready")
    answer = ANSWERS.validate_json(line)
    if not isinstance(answer, Ready):
        raise ZygoteLostError(f"the zygote began with {answer.kind}")
    return answer


async def _connect(reading: int) -> Voice:
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", buffering=0)
    )
    return Voice(reader, transport)
