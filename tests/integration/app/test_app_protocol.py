"""What a client that breaks the rules of HTTP hears from ``python -m app``, which goes on."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from server_process import ServerProcess

from bessemer.store.blobs.object_stores import INCOMING

PATIENCE_SECONDS = 30
POST = b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
DECLARED = POST + b"Content-Length: 10\r\n\r\n"
CHUNK = b"100000\r\n" + bytes(1 << 20) + b"\r\n"


def exchange(server: ServerProcess, sent: bytes, then_silent: bool = False) -> list[tuple[int, str]]:
    """Status and code of each answer to what was sent, until the server closes the connection."""
    with socket.create_connection(server.address, timeout=PATIENCE_SECONDS) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(sent)
            if then_silent:
                connection.shutdown(socket.SHUT_WR)
        received = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(65536):
                received += chunk
    return list(answers(bytes(received)))


def answers(received: bytes) -> list[tuple[int, str]]:
    found = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = httpx.Headers([tuple(line.split(": ", 1)) for line in lines])
        size = int(headers["Content-Length"])
        document = json.loads(rest[:size])
        if "code" in document:
            assert headers["Content-Type"] == "application/problem+json"
        assert headers["X-Request-Id"]
        found.append((int(status.split()[1]), document.get("code", document.get("state"))))
        received = rest[size:]
    return found


@pytest.fixture
def kept(shared_server: ServerProcess) -> Iterator[None]:
    """The app keeps nothing of what was sent, and the same process goes on."""
    before = settled(shared_server)
    yield
    assert settled(shared_server) == before
    assert httpx.get(f"{shared_server.url}/healthz", timeout=PATIENCE_SECONDS).status_code == 200


def settled(server: ServerProcess) -> list[Path]:
    """The stored files, once no upload is on its way."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(INCOMING in path.parts for path in server.stored_files()):
        assert time.monotonic() < deadline, server.stored_files()
        time.sleep(0.02)
    return server.stored_files()


NO_HTTP = {
    "a bad request line": b"GET /v1/models\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "no host": b"GET /v1/models HTTP/1.1\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost: localhost\r\nnonsense\r\n\r\n",
    "headers too large": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (1 << 17),
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "a bad chunk size": CHUNKED + b"many\r\n",
    "a chunk that is longer than its size": CHUNKED + b"3\r\n" + bytes(1000),
}


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("name", NO_HTTP)
def test_what_is_no_http_is_answered_with_a_problem(shared_server: ServerProcess, name: str) -> None:
    assert exchange(shared_server, NO_HTTP[name]) == [(400, "http-invalid")]


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    "sent",
    [DECLARED + bytes(5), CHUNKED + CHUNK, CHUNKED + CHUNK[:100]],
    ids=["declared", "chunked", "in-a-chunk"],
)
def test_an_upload_that_ends_early_is_given_up_and_its_connection_closed(
    shared_server: ServerProcess, sent: bytes
) -> None:
    assert exchange(shared_server, sent, then_silent=True) == []


@pytest.mark.usefixtures("kept")
def test_an_upload_that_never_said_how_large_it_would_be_is_refused_once_it_is_too_large(
    shared_server: ServerProcess,
) -> None:
    assert exchange(shared_server, CHUNKED + 17 * CHUNK) == [(413, "model-too-large")]


def test_of_an_upload_that_is_longer_than_it_said_the_rest_is_no_request(
    shared_server: ServerProcess,
) -> None:
    assert exchange(shared_server, DECLARED + bytes(1000)) == [(201, "inspecting"), (400, "http-invalid")]
