"""Follows a job's events: a reader of server-sent events, and the policy of coming back after a loss."""

import codecs
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from bessemer.client.operations import compilation_path
from bessemer.client.steps import Call, Flow, Sleep, check, exchange, parse
from bessemer.contract.job import Compilation, Event
from bessemer.errors import AnswerInvalidError, ServerFailedError, UnreachableError, WaitTimeoutError

__all__ = ["EventReader", "Follower", "reconnect_delay_seconds"]

SILENCE_SECONDS = 45.0
PATIENCE_SECONDS = 60.0
MAX_LINE_CHARACTERS = 1 << 22


class EventReader:
    """Decodes a stream of server-sent events, whose data are ``Event`` documents, from pieces of any size."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that a piece completes.

        Raises:
            AnswerInvalidError: the stream is none of Bessemer's.
        """
        *lines, self._rest = (self._rest + self._decoder.decode(chunk)).replace("\r\n", "\n").split("\n")
        if len(self._rest) > MAX_LINE_CHARACTERS:
            raise AnswerInvalidError("the stream of events has a line without end")
        for line in lines:
            yield from self._line(line)

    def _line(self, line: str) -> Iterator[Event]:
        if line.startswith("data:"):
            self._data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and self._data:
            text, self._data = "\n".join(self._data), []
            yield parse(Event, text.encode())


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
    _reader: EventReader = field(default_factory=EventReader)
    _losses: int = 0
    _final_document: bool = False
    _last_contact: float = field(default_factory=time.monotonic)

    def call(self) -> Call:
        """The request that goes on after the last event seen."""
        self._reader = EventReader()
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

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The new events that a piece of the stream completes.

        Raises:
            WaitTimeoutError: the deadline has passed.
        """
        self._check_deadline()
        for event in self._reader.feed(chunk):
            if event.seq <= self.after_seq:
                continue
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
