"""Uvicorn's HTTP/1.1 protocol, with strict request syntax and a time limit for request heads."""

import asyncio
import re
import sys
import uuid
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.http.problems import PROBLEM_MEDIA_TYPE
from app.http.request_ids import HEADER
from bessemer.contract.problem import ErrorCode, make_problem

HEAD_END = b"\r\n\r\n"
AMBIGUOUS = re.compile(rb"(?<!\r)\n|\r\n[ \t]")
"""A bare line feed or a folded header: h11 accepts them, but a proxy may read such a head differently
(RFC 9112, sections 2.2 and 5.2)."""

TWO_LENGTHS = frozenset({b"content-length", b"transfer-encoding"})
"""A head with both is refused (RFC 9112, section 6.1)."""


class StrictConnection(h11.Connection):
    """The state of one connection. It checks each request's head, however its bytes are split."""

    def next_event(self) -> Any:
        """Return h11's next event.

        Raises:
            h11.RemoteProtocolError: also for a head that a proxy may read differently.
        """
        if self.their_state is h11.IDLE:
            head, _, _ = self.trailing_data[0].partition(HEAD_END)
            if AMBIGUOUS.search(head):
                raise h11.RemoteProtocolError("a line of the head is folded, or ends without CR")
        event = super().next_event()
        if isinstance(event, h11.Request) and {name for name, _ in event.headers} >= TWO_LENGTHS:
            raise h11.RemoteProtocolError("the head has both Content-Length and Transfer-Encoding")
        return event


class Protocol(H11Protocol):
    """One connection.

    Attributes:
        head_seconds: how long the head of a request may take. Uvicorn limits only the pause between requests.
    """

    head_seconds: float = 15.0
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = StrictConnection(h11.SERVER)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first head."""
        super().connection_made(transport)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, and start or stop the timer."""
        super().data_received(data)
        if not self.transport.is_closing():
            self._watch_head()

    def send_400_response(self, msg: str) -> None:
        """Send a problem, unless a response has begun, and close the connection.

        Args:
            msg: what is wrong; h11's current exception is appended.
        """
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._answer(f"{msg} {_reason(sys.exception())}".strip())
        self.transport.close()

    def _watch_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answer(self, detail: str) -> None:
        problem = make_problem(ErrorCode.HTTP_INVALID, detail)
        body = problem.model_dump_json().encode()
        headers = [
            ("Content-Type", PROBLEM_MEDIA_TYPE),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
            (HEADER, uuid.uuid4().hex),
        ]
        events = (
            h11.Response(status_code=problem.status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")


def protocol(head_seconds: float) -> type[Protocol]:
    """The protocol with a time limit for heads."""

    class Limited(Protocol):
        """One connection."""

    Limited.head_seconds = head_seconds
    return Limited


def _reason(error: BaseException | None) -> str:
    return f"({error})" if isinstance(error, h11.RemoteProtocolError) else ""
