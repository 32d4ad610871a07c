"""Follow the events and the output of a job.

The stream of events is reopened when it breaks off. The server shows only the last part of the output while
the job runs.
"""

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import httpx
from httpx_sse import EventSource, ServerSentEvent

from bessemer.client import operations
from bessemer.client.operations import compilation_path
from bessemer.client.outages import Outage
from bessemer.client.steps import Call, Flow, Sleep, check, exchange, parse
from bessemer.contract.job import LOG, Compilation, Event
from bessemer.errors import AnswerInvalidError, WaitTimeoutError

READ_TIMEOUT_SECONDS = 45.0
MAX_LINE_BYTES = 1 << 22
"""The limit of a line, because httpx-sse would buffer a line of any length."""


def reconnect_delay_seconds(losses: int) -> float:
    """The delay after a number of consecutive losses (from 1): 0.1 s, doubled up to 5 s."""
    return float(min(5.0, 0.1 * 2 ** min(losses - 1, 10)))


@dataclass
class Follower:
    """A reader's position in the events of a job.

    Until ``done``, the driver opens ``call()``, passes each message of ``read()`` to ``take()``, and performs
    ``pause()`` when the stream ends. The pause polls the job, so following ends even if a proxy swallows the
    stream.
    """

    job_id: str
    after_seq: int = 0
    deadline: float | None = None
    done: bool = False
    _line_bytes: int = 0
    _losses: int = 0
    _final_document: bool = False
    _outage: Outage = field(default_factory=Outage)

    def call(self) -> Call:
        """The request for the events after the last one seen."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.after_seq:
            headers["Last-Event-ID"] = str(self.after_seq)
        path = f"{compilation_path(self.job_id)}/events"
        return Call("GET", path, headers=headers, read_timeout_seconds=self._read_timeout_seconds())

    def refuse(self, status: int, body: bytes) -> None:
        """Ignore a temporary error in response to ``call()``; raise ``ProblemError`` for a permanent one."""
        if status < 500:
            check(status, body)

    def read(self, chunks: Iterator[bytes] | AsyncIterator[bytes]) -> EventSource:
        """The stream's server-sent events, for ``take``, read from its chunks.

        Raises, while it is read:
            AnswerInvalidError: a line is longer than ``MAX_LINE_BYTES``.
            WaitTimeoutError: the deadline has passed; a keep-alive comment is enough to notice.
        """
        self._line_bytes = 0
        content = (
            map(self._checked, chunks)
            if isinstance(chunks, Iterator)
            else (self._checked(chunk) async for chunk in chunks)
        )
        headers = {"Content-Type": "text/event-stream"}
        return EventSource(httpx.Response(httpx.codes.OK, headers=headers, content=content))

    def take(self, message: ServerSentEvent) -> Iterator[Event]:
        """The event in a message, unless it was already seen. Raises ``AnswerInvalidError``."""
        if not message.data:
            return
        event = parse(Event, message.data.encode())
        if event.seq > self.after_seq:
            self.after_seq, self._losses, self._outage = event.seq, 0, Outage()
            self.done = self.done or event.type.final
            yield event

    def pause(self) -> Flow[None]:
        """Poll the job between two streams, then wait a little.

        Raises:
            ProblemError, UnreachableError: see ``Outage.tolerated``.
            WaitTimeoutError: the deadline has passed.
        """
        if self.done:
            return
        self._check_deadline()
        self._losses += 1
        with self._outage.tolerated():
            reply = yield from exchange(Call("GET", compilation_path(self.job_id)))
            final = parse(Compilation, reply.body).state.final
            # If the job has ended without its final event, try the stream once more.
            self.done, self._final_document = final and self._final_document, final
        if not self.done:
            yield Sleep(reconnect_delay_seconds(self._losses))

    def _read_timeout_seconds(self) -> float:
        if self.deadline is None:
            return READ_TIMEOUT_SECONDS
        return max(0.05, min(READ_TIMEOUT_SECONDS, self.deadline - time.monotonic()))

    def _check_deadline(self) -> None:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise WaitTimeoutError(f"timed out; compilation {self.job_id} is still running on the server")

    def _checked(self, chunk: bytes) -> bytes:
        self._check_deadline()
        line_start = chunk.rfind(b"\n") + 1
        self._line_bytes = len(chunk) - line_start + (0 if line_start else self._line_bytes)
        if self._line_bytes > MAX_LINE_BYTES:
            raise AnswerInvalidError(f"the event stream has a line of more than {MAX_LINE_BYTES} bytes")
        return chunk


POLL_SECONDS = 1.0
"""Workers upload output about this often."""

CUT = "\N{REPLACEMENT CHARACTER}"
"""The character that decoding puts in place of one that the server cut in two."""


class LogReader:
    """Finds the new text in successive views of a log."""

    def __init__(self) -> None:
        self._seen = ""
        self._read = 0

    def end(self, tail: str) -> str:
        """The text in ``tail`` beyond the last view; all of it if the two do not overlap."""
        tail = tail.strip(CUT)
        sizes = range(len(self._seen), 0, -1)
        known = next((size for size in sizes if tail.startswith(self._seen[-size:])), 0)
        self._seen, new = tail, tail[known:]
        self._read += len(new)
        return new

    def whole(self, log: str) -> str:
        """The text in a whole log beyond the last view; all of it if the log does not contain that view."""
        place = log.find(self._seen, max(0, self._read - len(self._seen)))
        return log if place < 0 else log[place + len(self._seen) :]


class LogFollower:
    """A reader's position in a job's log. The driver performs ``poll()`` and ``pause()`` until ``done``."""

    def __init__(self, job_id: str) -> None:
        self.done = False
        self._job_id = job_id
        self._reader = LogReader()
        self._outage = Outage()

    def poll(self) -> Flow[str]:
        """The output since the last call; empty while the server is unreachable.

        Raises:
            ProblemError, UnreachableError: see ``Outage.tolerated``.
        """
        new = ""
        with self._outage.tolerated():
            job = yield from operations.get_compilation(self._job_id)
            text = yield from operations.get_logs(self._job_id)
            # if the job ended between the two requests, the text may be the whole log: look again
            ended = not job.state.final and (yield from operations.get_compilation(self._job_id)).state.final
            self.done = job.state.final
            if not ended:
                kept = any(artifact.name == LOG for artifact in job.artifacts)
                new = self._reader.whole(text) if kept else self._reader.end(text)
        return new

    def pause(self) -> Flow[None]:
        """Wait between two calls of ``poll()``."""
        if not self.done:
            yield Sleep(POLL_SECONDS)
