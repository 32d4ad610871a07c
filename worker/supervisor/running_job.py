"""A job that the zygote has started: what it says, how it ended, and the end of all its processes."""

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

MAX_MESSAGES_BYTES = 1 << 26
"""What a job may say in all: more is no honest job's."""

log = logging.getLogger(__name__)


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


async def open_voice(messages: FileIO) -> Voice:
    """Listen to a FIFO, which belongs to the voice from now on."""
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), messages
    )
    return Voice(reader, transport)


async def end_group(group: Group, groups: GroupsFile) -> None:
    """Send SIGKILL to every process of a job until none is left, then forget the group."""
    if not await asyncio.to_thread(kill_group, group):
        log.error("processes of group %d would not die", group.id)
    try:
        await asyncio.to_thread(groups.remove, group.id)
    except OSError as error:
        log.warning("group %d is noted although it has ended: %s", group.id, error)


class RunningJob:
    """A job that the zygote has started. Leaving its context ends all its processes.

    Attributes:
        exited: how its first process ended, once it has.
        folder: the job's folder.
        baseline_bytes: the memory that each of its processes shares with the zygote at first.
    """

    def __init__(
        self,
        group: Group,
        exited: asyncio.Future[Exit],
        folder: Path,
        voice: Voice,
        groups: GroupsFile,
        baseline_bytes: int,
    ) -> None:
        self.exited = exited
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

    async def wait(self, seconds: float) -> None:
        """Return when the first process has ended, or after so many seconds."""
        await asyncio.wait((self.exited,), timeout=seconds)

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
        await end_group(self._group, self._groups)

    async def _lines(self) -> AsyncIterator[bytes]:
        while True:
            try:
                line = await self._voice.reader.readline()
            except ValueError as error:
                raise MisbehavedError(f"it said a line longer than {MAX_LINE_BYTES} bytes") from error
            if not line:
                return
            yield line
