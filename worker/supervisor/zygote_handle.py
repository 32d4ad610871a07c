"""The supervisor's handle on the zygote: starts it by exec, sends it orders, and kills what it forked."""

import asyncio
import contextlib
import itertools
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TypeVar

import worker
from bessemer.contract.sandbox import SandboxMode
from worker.errors import ZygoteLostError
from worker.job.folder import JobFolder
from worker.protocol.order import ANSWERS, Answer, Confinement, Exited, Ready, Started, StartJob
from worker.sandbox.environment import ZYGOTE_ENVIRONMENT
from worker.supervisor.groups import Group, GroupsFile
from worker.supervisor.processes import private_bytes, read_process
from worker.supervisor.running_job import Exit, JobLink, RunningJob, end_group, open_pipe

IMPORT_SECONDS = 180.0
STOP_SECONDS = 35.0
ANSWER_SECONDS = 30.0
"""A zygote forks, and reports the end of a child, within milliseconds."""

SAMPLE_SECONDS = 1.0
CHECKOUT = Path(worker.__path__[0]).resolve().parent

log = logging.getLogger(__name__)

Value = TypeVar("Value", Group, Exit)


@dataclass(frozen=True)
class Child:
    """A job that was ordered, with the zygote's answers as they arrive.

    Attributes:
        uid: the slot's user; None if the job runs as the supervisor's user.
        started: its process group. Raises ZygoteLostError if the job will never start.
        exited: how its first process ended; always after ``started``.
    """

    uid: int | None
    started: asyncio.Future[Group]
    exited: asyncio.Future[Exit]


class ZygoteHandle:
    """Starts the zygote when it is needed, and again after it died.

    Attributes:
        ready: its first answer.
        answer_seconds: how long it may take to answer; after that, it counts as frozen and is killed.
    """

    def __init__(self, groups: GroupsFile, on_restart: Callable[[], None] = lambda: None) -> None:
        self.ready: Ready | None = None
        self.answer_seconds = ANSWER_SECONDS
        self._groups = groups
        self._on_restart = on_restart
        self._process: asyncio.subprocess.Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._children: dict[str, Child] = {}
        self._disposals: dict[asyncio.Task[None], int | None] = {}
        self._exit_waits: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The zygote's process id; None while it does not run."""
        return self._process.pid if self._alive() and self._process else None

    async def ensure_running(self) -> Ready:
        """Start the zygote unless it runs, and wait until it has imported everything.

        Raises:
            ZygoteLostError: the zygote ended, or was not ready in time.
        """
        async with self._lock:
            if not self._alive() or self.ready is None:
                self.ready = await self._start()
            return self.ready

    async def start_job(self, order: StartJob) -> RunningJob:
        """Have the zygote fork a child. Its FIFOs are created here, and lose their names before this returns.

        If this raises or is cancelled, the child is killed, even if the zygote forks it later.

        Raises:
            ZygoteLostError: the zygote ended, froze, or could not fork.
        """
        await self.ensure_running()
        await self._disposed(order.confinement)
        folder = JobFolder(Path(order.folder))
        with ExitStack() as undo:
            with _fifos(folder) as (messages, grants):
                undo.callback(messages.close)
                undo.callback(grants.close)
                child = self._order(order)
                undo.callback(self._dispose, child)
                group = await self._answered(child.started)
            await asyncio.to_thread(self._groups.add, group)
            pipe = await open_pipe(messages)
            undo.pop_all()
        self._await_exit(group, child)
        baseline = private_bytes(f"/proc/{self._process.pid}") if self._process else 0
        return RunningJob(group, child.exited, folder.path, JobLink(pipe, grants), self._groups, baseline)

    async def stop(self) -> None:
        """Close the zygote's input. It then kills every job and exits."""
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
        await asyncio.gather(*self._disposals)

    def _alive(self) -> bool:
        return self._process is not None and self._process.returncode is None and not self._listener_done()

    def _listener_done(self) -> bool:
        return self._listener is None or self._listener.done()

    async def _start(self) -> Ready:
        if self._listener is not None:
            await self._listener
        if self._process is not None:
            self._on_restart()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "worker.job.zygote"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=ZYGOTE_ENVIRONMENT,
            cwd=CHECKOUT,
            start_new_session=True,
            close_fds=True,
        )
        self._process = process
        try:
            ready = await _first_answer(process)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise
        self._listener = asyncio.create_task(self._listen(process))
        log.info("zygote %d ready after %.1f s", process.pid, ready.seconds)
        return ready

    def _order(self, order: StartJob) -> Child:
        """Send an order. If the zygote is lost before it answers, the child's ``started`` raises."""
        if not self._alive() or self._process is None or self._process.stdin is None:
            raise ZygoteLostError("the zygote has ended")
        # a unique name for each order: an answer to an earlier attempt must not be taken for this one's
        named = order.model_copy(update={"job": f"{order.job}#{next(self._numbers)}"})
        child = self._children[named.job] = _child(order.confinement)
        self._process.stdin.write(named.model_dump_json().encode() + b"\n")
        return child

    def _dispose(self, child: Child) -> None:
        """Kill what the zygote has forked, or will fork, for an abandoned order."""

        async def dispose() -> None:
            with contextlib.suppress(ZygoteLostError):
                await end_group(await self._answered(child.started), self._groups)

        disposal = asyncio.create_task(dispose())
        self._disposals[disposal] = child.uid
        disposal.add_done_callback(self._disposals.pop)

    def _await_exit(self, group: Group, child: Child) -> None:
        """Make sure that the zygote reports the end of a child."""

        async def wait() -> None:
            while not child.exited.done() and _runs(group):
                await asyncio.wait({child.exited}, timeout=SAMPLE_SECONDS)
            await self._answered(child.exited)

        waiting = asyncio.create_task(wait())
        self._exit_waits.add(waiting)
        waiting.add_done_callback(self._exit_waits.discard)

    async def _answered(self, answer: asyncio.Future[Value]) -> Value:
        """Wait for an answer. A frozen zygote is killed, which resolves every pending answer."""
        for _ in range(2):  # in halves: if this event loop was blocked, the answer is already in the pipe
            await asyncio.wait({answer}, timeout=self.answer_seconds / 2)
        if not answer.done() and self._process is not None:
            log.error("zygote %d did not answer within %g s: killed", self._process.pid, self.answer_seconds)
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.wait({answer})
        return answer.result()

    async def _disposed(self, confinement: Confinement) -> None:
        """Wait for the disposals that would kill every process of the slot's user."""
        uid = _uid(confinement)
        same = [disposal for disposal, other in self._disposals.items() if uid is not None and other == uid]
        if same:
            await asyncio.wait(same)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                self._handle_answer(ANSWERS.validate_json(line))
        except ValueError:
            log.exception("the zygote sent a malformed answer")
            process.kill()
        await process.wait()
        level = logging.INFO if process.returncode == 0 else logging.ERROR
        log.log(level, "zygote ended: %s", process.returncode)
        await self._lose()

    def _handle_answer(self, answer: Answer) -> None:
        match answer:
            case Started():
                child = self._children[answer.job]
                child.started.set_result(_group(answer.pid, child.uid))
            case Exited():
                child = self._children.pop(answer.job)
                if not child.started.done():
                    child.started.set_exception(
                        ZygoteLostError(f"the zygote could not fork: {os.strerror(answer.status)}")
                    )
                child.exited.set_result(Exit(answer.status, answer.signal))
            case Ready():
                pass

    async def _lose(self) -> None:
        """The zygote has ended: kill its jobs, and resolve what waits for them."""
        lost, self._children = self._children, {}
        for child in lost.values():
            if child.started.done():
                await end_group(child.started.result(), self._groups)
            else:
                child.started.set_exception(ZygoteLostError("the zygote ended"))
            child.exited.set_result(Exit(status=0, signal=9, zygote_lost=True))


@contextmanager
def _fifos(folder: JobFolder) -> Iterator[tuple[FileIO, FileIO]]:
    """The supervisor's ends of a job's new FIFOs, which have names only while the context lasts.

    The grants' end is open for reading, too: otherwise it could be opened only after the job's end.
    """
    with _fifo(folder.messages, os.O_RDONLY) as messages, _fifo(folder.grants, os.O_RDWR) as grants:
        yield FileIO(messages), FileIO(grants, "r+")


@contextmanager
def _fifo(path: Path, mode: int) -> Iterator[int]:
    os.mkfifo(path, 0o600)
    try:
        yield os.open(path, mode | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        path.unlink()


def _child(confinement: Confinement) -> Child:
    loop = asyncio.get_running_loop()
    return Child(_uid(confinement), loop.create_future(), loop.create_future())


def _uid(confinement: Confinement) -> int | None:
    return None if confinement.mode is SandboxMode.OFF else confinement.uid


def _runs(group: Group) -> bool:
    """Whether a group's leader runs. It ends, for the zygote, with its last thread."""
    leader = read_process(group.id)
    if leader is None or leader.start_ticks != group.start_ticks:
        return False
    return not leader.ended


def _group(pid: int, uid: int | None) -> Group:
    leader = read_process(pid)
    return Group(pid, leader.start_ticks if leader else 0, uid)


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
