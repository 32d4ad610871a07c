"""Attacks on the app through a real socket: pages of other sites, slow senders, ambiguous requests."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from server_process import ServerProcess, running_app

PATIENCE_SECONDS = 60
HEAD_SECONDS = 1
FORM = b"--x\r\nContent-Disposition: form-data; name=model; filename=m.pt2\r\n\r\nevil\r\n--x--\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = {
        "BESSEMER_REQUEST_HEAD_SECONDS": str(HEAD_SECONDS),
        "BESSEMER_ALLOWED_ORIGINS": "https://console.example",
    }
    with running_app(tmp_path_factory.mktemp("hostile"), settings=settings) as process:
        yield process


def exchange(server: ServerProcess, sent: bytes) -> bytes:
    """What the server answers until it closes the connection."""
    with socket.create_connection(server.address, timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(sent)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received


CROSS_SITE: dict[str, tuple[str, dict[str, str], int]] = {
    "a form of another site": ("POST", {"Origin": "http://evil.example"}, 403),
    "a sandboxed page": ("POST", {"Origin": "null"}, 403),
    "another port of this machine": ("POST", {"Origin": "http://127.0.0.1:1"}, 403),
    "no valid origin": ("POST", {"Origin": "http://["}, 403),
    "a page without an origin": ("POST", {"Sec-Fetch-Site": "cross-site"}, 403),
    "a rebound name": ("GET", {"Host": "evil.example"}, 421),
    "a rebound name with a port": ("GET", {"Host": "evil.example:8000"}, 421),
    "no valid name": ("GET", {"Host": "[::1"}, 421),
    "an allowed site": ("POST", {"Origin": "https://console.example"}, 201),
    "a program": ("POST", {}, 201),
    "a user who typed the address": ("GET", {"Sec-Fetch-Site": "none"}, 200),
    "the name localhost": ("GET", {"Host": "localhost:8000"}, 200),
    "an address": ("GET", {"Host": "192.0.2.7:8000"}, 200),
}


@pytest.mark.parametrize("case", CROSS_SITE)
def test_only_pages_of_the_service_may_change_something(case: str, server: ServerProcess) -> None:
    method, headers, status = CROSS_SITE[case]
    content = b"model" if method == "POST" else None
    response = httpx.request(
        method, f"{server.url}/v1/models", headers=headers, content=content, timeout=PATIENCE_SECONDS
    )
    assert response.status_code in ({200, 201} if status == 201 else {status}), response.text


@pytest.mark.parametrize("path", ["/v1/compilations", "/v1/models"])
@pytest.mark.parametrize("media", ["text/plain", "multipart/form-data; boundary=x", "application/json"])
def test_a_page_of_another_site_submits_nothing(path: str, media: str, server: ServerProcess) -> None:
    headers = {"Origin": "http://evil.example", "Content-Type": media}
    response = httpx.post(f"{server.url}{path}", headers=headers, content=FORM, timeout=PATIENCE_SECONDS)
    assert (response.status_code, response.json()["code"]) == (403, "origin-refused")
    assert len(server.stored_files()) <= 1


HEAD = b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\n"
AMBIGUOUS = {
    "two lengths": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two contents": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nmodel",
    "a bare line feed": HEAD[:-2] + b"\nContent-Length: 5\r\n\r\nmodel",
    "a folded header": HEAD + b"X-A: 1\r\n 2\r\nContent-Length: 5\r\n\r\nmodel",
    "a space before the colon": HEAD + b"Content-Length : 5\r\n\r\nmodel",
    "no host": b"POST /v1/models HTTP/1.1\r\nContent-Length: 5\r\n\r\nmodel",
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_an_ambiguous_request_is_refused(case: str, server: ServerProcess) -> None:
    answer = exchange(server, AMBIGUOUS[case])
    assert answer.startswith(b"HTTP/1.1 400 ") and b"http-invalid" in answer
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_an_ambiguous_request_right_behind_another_is_refused(case: str, server: ServerProcess) -> None:
    answer = exchange(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + AMBIGUOUS[case])
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"400"]


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: lo"], ids=["nothing", "half a head"])
def test_a_connection_without_a_request_is_closed(sent: bytes, server: ServerProcess) -> None:
    with socket.create_connection(server.address, timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(sent)
        assert connection.recv(1) == b""


def test_a_second_request_has_its_own_time(server: ServerProcess) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(server.address, timeout=PATIENCE_SECONDS) as connection:
        began = time.monotonic()
        while time.monotonic() < began + 1.5 * HEAD_SECONDS:
            connection.sendall(request)
            answer = b""
            while not answer.endswith(b"}"):
                part = connection.recv(65536)
                assert part, answer
                answer += part
            assert answer.startswith(b"HTTP/1.1 200")
            time.sleep(0.05)
        connection.sendall(request[:20])
        assert connection.recv(1) == b""


def send(server: ServerProcess, size_bytes: int) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/models", content=b"m" * size_bytes, timeout=PATIENCE_SECONDS)


def test_a_small_upload_is_answered_while_slow_ones_hang(tmp_path: Path) -> None:
    settings = {"BESSEMER_QUOTA_UPLOADS": "4"}
    stop = threading.Event()

    def send_slowly(first_bytes: int) -> None:
        head = b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
        while not stop.is_set():
            with suppress(OSError), socket.create_connection(server.address) as connection:
                connection.sendall(head + b"x" * first_bytes)
                while not stop.wait(0.1):  # until the server gives it up: too slow
                    connection.sendall(b"x" * 2000)

    with running_app(tmp_path, settings=settings) as server:
        sizes = [0] * 60 + [2 << 20] * 4
        slow = [threading.Thread(target=send_slowly, args=(size,), daemon=True) for size in sizes]
        for thread in slow:
            thread.start()
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while (large := send(server, 3 << 20)).is_success and time.monotonic() < deadline:
                time.sleep(0.1)  # until the slow ones count as large
            small = send(server, 5000)
        finally:
            stop.set()
        for thread in slow:
            thread.join()
    assert small.status_code == 201
    assert (large.status_code, large.json()["code"]) == (429, "quota-exceeded")
    assert int(large.headers["retry-after"]) > 0


@pytest.mark.parametrize("path", ["/docs", "/metrics", "/v1/models", "/v1/nothing", "/openapi.json"])
def test_every_response_keeps_browsers_from_guessing(path: str, server: ServerProcess) -> None:
    headers = httpx.get(f"{server.url}{path}", timeout=PATIENCE_SECONDS).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["referrer-policy"] == "no-referrer"


def test_other_users_cannot_enter_the_data_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    with running_app(tmp_path) as server:
        assert server.data.stat().st_mode & 0o777 == 0o700
