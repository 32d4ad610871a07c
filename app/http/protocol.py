"""Uvicorn's HTTP/1.1 protocol: strict about the syntax of requests, and about how long their heads take."""

import asyncio
import re
import sys
import uuid

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.http.problems import PROBLEM_MEDIA_TYPE
from app.http.request_ids import HEADER
from bessemer.contract.problem import ErrorCode, make_problem

HEAD_END = b"\r\n\r\n"
AMBIGUOUS = re.compile(rb"(?<!\r)\n|\r\n[ \t]")
"""A bare line feed or a folded header: h11 accepts them, but a proxy may read such a head differently
(RFC 9112, sections 2.2 and 5.2)."""


class Protocol(H11Protocol):
    """One connection.

    Attributes:
        head_seconds: how long the head of a request may take. Uvicorn limits only the pause between requests.
    """

    head_seconds: float = 15.0
    _timer: asyncio.TimerHandle | None = None
    _head: bytes = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Check the syntax of a head, and pass it on."""
        if self.conn.their_state is h11.IDLE:
            self._head += data
            head, end, _ = self._head.partition(HEAD_END)
            if AMBIGUOUS.search(head):
                self.send_400_response("A line of the request's head is folded, or ends without CR.")
                return
            if end:
                self._head = b""
        super().data_received(data)
        if not self.transport.is_closing():
            self._watch_head()

    def handle_events(self) -> None:
        """Handle what has arrived. A head that has two lengths is refused (RFC 9112, section 6.1)."""
        super().handle_events()
        names = {name for name, _ in self.headers or ()}
        if {b"content-length", b"transfer-encoding"} <= names and self.conn.our_state is h11.SEND_RESPONSE:
            self.send_400_response("The request has both Content-Length and Transfer-Encoding.")

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
    """The protocol with a limit on the time of a head."""

    class Limited(Protocol):
        """One connection."""

    Limited.head_seconds = head_seconds
    return Limited


def _reason(error: BaseException | None) -> str:
    return f"({error})" if isinstance(error, h11.RemoteProtocolError) else ""
