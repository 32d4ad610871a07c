"""Bytes on a connection give the same requests, or the same refusal, however they are split."""

import asyncio
import json
import re
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from mutations import in_pieces, mutated
from uvicorn.server import ServerState

from app.http.protocol import protocol

pytestmark = pytest.mark.fuzz

TURNS = 20
"""Enough turns of the event loop for an answer to any request that has arrived."""

GET = b"GET /v1/models?limit=5 HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = (
    b"PUT /v1/models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
)
WORDS = st.sampled_from(
    [
        *(
            b"Content-Length: 3\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Host: localhost\r\n",
            b"HTTP/1.0",
            b"X: y\n",
        ),
        *(
            b"\r\n",
            b"\n",
            b"\r",
            b" ",
            b"\t",
            b":",
            b"0",
            b"\0",
            b"GET / HTTP/1.1\r\n",
            b"Connection: close\r\n",
        ),
    ]
)
STREAMS = mutated(
    st.lists(st.sampled_from([GET, POST, CHUNKED]) | WORDS, min_size=1, max_size=5).map(b"".join), b"\r\n"
)
REFUSAL = re.compile(rb"HTTP/1.1 400 .*", re.DOTALL)
"""The last answer. Its id is new each time, and h11 may notice the mistake earlier or later."""


class Wire(asyncio.Transport):
    """Keeps what the server sends."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.sent = b""
        self.closing = False

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the request."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message["body"], message["more_body"]
    told = (scope["method"], scope["path"], scope["query_string"], scope["headers"], body)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": json.dumps(repr(told)).encode()})


def answers(pieces: list[bytes]) -> tuple[bytes, bool]:
    """What the server sends, and whether it closes the connection."""

    async def talk() -> tuple[bytes, bool]:
        config = uvicorn.Config(echo, date_header=False, log_config=None, access_log=False, lifespan="off")
        connection, wire = protocol(15)(config, ServerState(), {}), Wire()
        connection.connection_made(wire)
        for piece in pieces:
            if not wire.closing:
                connection.data_received(piece)
            for _ in range(TURNS):
                await asyncio.sleep(0)
        connection.connection_lost(None)
        await asyncio.sleep(0)
        return REFUSAL.sub(b"refused", wire.sent), wire.closing

    return asyncio.run(talk())


@given(STREAMS, st.lists(st.integers(0, 400), max_size=4))
def test_bytes_are_the_same_requests_in_any_pieces(stream: bytes, cuts: list[int]) -> None:
    assert answers(in_pieces(stream, cuts)) == answers(in_pieces(stream, []))
