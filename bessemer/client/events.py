"""Follows a job's events: a reader of server-sent events, and the policy of coming back after a loss."""

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import httpx
from httpx_sse import EventSource, ServerSentEvent

from bessemer.client.operations import compilation_path
from bessemer.client.steps import Call, Flow, Sleep, check, exchange, parse
from bessemer.contract.job import Compilation, Event
from bessemer.errors import AnswerInvalidError, ServerFailedError, UnreachableError, WaitTimeoutError

__all__ = ["Follower", "reconnect_delay_seconds"]

SILENCE_SECONDS = 45.0
PATIENCE_SECONDS = 60.0
MAX_LINE_BYTES = 1 << 22
"""httpx-sse collects a line of any length."""


def reconnect_delay_seconds(losses: int) -> float:
    """How long to wait after so many losses in a row (from 1): 0.1 s, doubled up to 5 s."""
    return float(min(5.0, 0.1 * 2 ** min(losses - 1, 10)))


@dataclass
class Follower:
    """Where one listener stands in a job's events.

    The driver opens ``call()``, feeds what comes, and performs ``pause()`` whenever the stream ends, until
    ``done``. Polling is part of the pause: a stream that a proxy swallows still ends with the job.
    """

    job_id: str
    after_seq: int = 0
    deadline: float | None = None
    done: bool = False
    _line_bytes: int = 0
    _losses: int = 0
    _final_document: bool = False
    _last_contact: float = field(default_factory=time.monotonic)

    def call(self) -> Call:
        """The request that goes on after the last event seen."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.after_seq:
            headers["Last-Event-ID"] = str(self.after_seq)
        path = f"{compilation_path(self.job_id)}/events"
        return Call("GET", path, headers=headers, read_timeout_seconds=self._silence_seconds())

    def refuse(self, status: int, body: bytes) -> None:
        """Take an answer that is no stream: nothing where it will pass.

        Raises:
            ProblemError: the server refused for good.
        """
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
        """The event in a message, unless it was seen before.

        Raises:
            AnswerInvalidError: the message is not an event of a compilation.
        """
        if not message.data:
            return
        event = parse(Event, message.data.encode())
        if event.seq > self.after_seq:
            self.after_seq, self._losses, self._last_contact = event.seq, 0, time.monotonic()
            self.done = self.done or event.type.final
            yield event

    def pause(self) -> Flow[None]:
        """Between two streams: ask for the job itself, and wait a little.

        Raises:
            ProblemError, UnreachableError: for longer than ``PATIENCE_SECONDS``, or for good.
            WaitTimeoutError: the deadline has passed.
        """
        if self.done:
            return
        self._check_deadline()
        self._losses += 1
        try:
            reply = yield from exchange(Call("GET", compilation_path(self.job_id)))
            final = parse(Compilation, reply.body).state.final
            # A final job whose stream still gave no final event is asked once more, then taken at its word.
            self.done, self._final_document = final and self._final_document, final
            self._last_contact = time.monotonic()
        except (ServerFailedError, UnreachableError):
            if time.monotonic() - self._last_contact > PATIENCE_SECONDS:
                raise
        if not self.done:
            yield Sleep(reconnect_delay_seconds(self._losses))

    def _silence_seconds(self) -> float:
        if self.deadline is None:
            return SILENCE_SECONDS
        return max(0.05, min(SILENCE_SECONDS, self.deadline - time.monotonic()))

    def _check_deadline(self) -> None:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise WaitTimeoutError(f"compilation {self.job_id} is not finished; it goes on")

    def _checked(self, chunk: bytes) -> bytes:
        self._check_deadline()
        line_start = chunk.rfind(b"\n") + 1
        self._line_bytes = len(chunk) - line_start + (0 if line_start else self._line_bytes)
        if self._line_bytes > MAX_LINE_BYTES:
            raise AnswerInvalidError(f"the event stream has a line of more than {MAX_LINE_BYTES} bytes")
        return chunk
