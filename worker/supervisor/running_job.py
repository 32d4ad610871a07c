"""A job that the zygote has started: its messages, its exit status, and the end of all its processes."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from worker.errors import MisbehavedError
from worker.protocol.messages import MAX_LINE_BYTES, MESSAGES, Message
from worker.supervisor.groups import Group, GroupsFile, kill_group
from worker.supervisor.watch_threads import run_apart

MAX_MESSAGES_BYTES = 1 << 26
"""All messages of a job together; only a hostile job sends more."""

ANSWER_STEP_SECONDS = 0.002

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exit:
    """How a job's first process ended.

    Attributes:
        status: its exit status; 0 if a signal ended it.
        signal: the signal that ended it; 0 if it exited.
        zygote_lost: the zygote ended first and took the job with it; the job is not to blame.
    """

    status: int
    signal: int
    zygote_lost: bool = False


@dataclass(frozen=True)
class MessagePipe:
    """The reading end of a job's FIFO."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport


@dataclass(frozen=True)
class JobLink:
    """The supervisor's ends of a job's FIFOs."""

    messages: MessagePipe
    grants: FileIO

    def close(self) -> None:
        """Close both."""
        self.messages.transport.close()
        self.grants.close()


async def open_pipe(messages: FileIO) -> MessagePipe:
    """Read from a FIFO, which the pipe now owns."""
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), messages
    )
    return MessagePipe(reader, transport)


async def end_group(group: Group, groups: GroupsFile) -> None:
    """Kill every process of a job, then forget the group."""
    if not await run_apart(kill_group, group):
        log.error("cannot kill all processes of group %d", group.id)
    try:
        await run_apart(groups.remove, group.id)
    except OSError as error:
        log.warning("cannot forget group %d, which has ended: %s", group.id, error)


class RunningJob:
    """A job that the zygote has started. Leaving its context ends all its processes.

    Attributes:
        exited: how its first process ended.
        folder: the job's folder.
        baseline_bytes: the memory that each of its processes initially shares with the zygote.
    """

    def __init__(
        self,
        group: Group,
        exited: asyncio.Future[Exit],
        folder: Path,
        link: JobLink,
        groups: GroupsFile,
        baseline_bytes: int,
    ) -> None:
        self.exited = exited
        self.folder = folder
        self.baseline_bytes = baseline_bytes
        self._group = group
        self._link = link
        self._groups = groups

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()
        self._link.close()

    @property
    def pid(self) -> int:
        """The first process, whose id is also the id of the job's group."""
        return self._group.id

    @property
    def uid(self) -> int | None:
        """The slot's user."""
        return self._group.uid

    def grant_turn(self) -> None:
        """Tell the job that its turn to measure has begun."""
        self._link.grants.write(b"\0")

    async def answer(self, line: bytes) -> None:
        """Write a line that the job waits for, as long as the job runs: it may not read it."""
        left = memoryview(line)
        while left and self.running():
            left = left[self._link.grants.write(left) or 0 :]
            if left:
                await self.wait(ANSWER_STEP_SECONDS)

    def running(self) -> bool:
        """Whether the first process still runs."""
        return not self.exited.done()

    async def wait(self, seconds: float) -> None:
        """Return when the first process has ended, or after ``seconds``."""
        await asyncio.wait((self.exited,), timeout=seconds)

    async def messages(self) -> AsyncIterator[Message]:
        """The child's messages, until every process of the job has closed its end of the FIFO.

        Raises:
            MisbehavedError: a line is not a message, a line is too long, or there are too many.
        """
        total = 0
        async for line in self._lines():
            total += len(line)
            if total > MAX_MESSAGES_BYTES:
                raise MisbehavedError(f"the job sent more than {MAX_MESSAGES_BYTES} bytes of messages")
            try:
                yield MESSAGES.validate_json(line)
            except ValidationError as error:
                raise MisbehavedError(f"the job sent a malformed message: {line[:200]!r}") from error

    async def kill(self) -> None:
        """Kill every process of the job, then forget the group."""
        await end_group(self._group, self._groups)

    async def _lines(self) -> AsyncIterator[bytes]:
        while True:
            try:
                line = await self._link.messages.reader.readline()
            except ValueError as error:
                raise MisbehavedError(f"the job sent a line longer than {MAX_LINE_BYTES} bytes") from error
            if not line:
                return
            yield line
