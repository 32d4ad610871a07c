"""``python -m app`` as a process: signals, cut-off uploads, unread streams, memory."""

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from app_samples import MODEL_BYTES
from server_process import ServerProcess, running_app

UPLOAD_BYTES = 256 << 20
MAX_GROWTH_BYTES = 64 << 20
PATIENCE_SECONDS = 30


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def open_sockets(pid: int) -> int:
    """How many sockets a process holds; the files of its database's connections come and go."""
    count = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += descriptor.readlink().name.startswith("socket:")
    return count


def read_to_end(connection: socket.socket) -> bytes:
    """What was sent before the connection was closed, or reset because of what it did not read."""
    received = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(65536):
            received += chunk
    return bytes(received)


def submit(url: str) -> str:
    with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as api:
        model = api.post("/v1/models", content=MODEL_BYTES).raise_for_status().json()
        job = api.post("/v1/compilations", json={"model": model["digest"], "target": "host"})
    return str(job.raise_for_status().json()["id"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_open_streams_and_the_process_cleanly(
    server: ServerProcess, number: signal.Signals
) -> None:
    job = submit(server.url)
    with httpx.stream("GET", f"{server.url}/v1/compilations/{job}/events", timeout=60) as response:
        lines = response.iter_lines()
        assert next(lines) == "event: queued"
        server.process.send_signal(number)
        assert not any(line.startswith("event:") for line in lines)
    assert server.process.wait(PATIENCE_SECONDS) == 0
    assert (server.data / "app.log").read_text() == f"app: ready at {server.url}\n"


def test_a_stream_that_its_reader_leaves_is_given_up(shared_server: ServerProcess) -> None:
    job = submit(shared_server.url)
    events = f"{shared_server.url}/v1/compilations/{job}/events"
    before = open_sockets(shared_server.process.pid)
    for _ in range(5):
        with httpx.stream("GET", events, timeout=PATIENCE_SECONDS) as response:
            assert next(response.iter_lines()) == "event: queued"
    assert eventually(lambda: open_sockets(shared_server.process.pid) <= before)


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 9000000", b"Transfer-Encoding: chunked"], ids=["declared", "chunked"]
)
def test_a_cut_off_upload_leaves_nothing(shared_server: ServerProcess, framing: bytes) -> None:
    half = bytes(8_000_000)
    body = half if b"Length" in framing else b"7A1200\r\n" + half + b"\r\n"
    before = shared_server.stored_files()
    with socket.create_connection(shared_server.address) as connection:
        connection.sendall(b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\n" + framing + b"\r\n\r\n" + body)
        assert eventually(lambda: shared_server.stored_files() != before)
    assert eventually(lambda: shared_server.stored_files() == before)
    digest = hashlib.sha256(half).hexdigest()
    assert httpx.get(f"{shared_server.url}/v1/models/{digest}", timeout=PATIENCE_SECONDS).status_code == 404


def test_an_upload_that_does_not_end_cannot_hold_up_the_stop(tmp_path: Path) -> None:
    head = b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n"
    with running_app(tmp_path, stop_seconds=1) as server:
        with socket.create_connection(server.address) as connection:
            connection.sendall(head + bytes(90))
            assert httpx.get(f"{server.url}/healthz", timeout=PATIENCE_SECONDS).status_code == 200
            server.process.terminate()
            assert server.process.wait(PATIENCE_SECONDS) == 0
        assert server.stored_files() == []


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        (b"POST /v1/models", b"413", b"model-too-large"),
        (b"PUT /v1/models/ABC", b"422", b"request-invalid"),
        (b"POST /v1/compilations", b"413", b"request-too-large"),
        (b"POST /nothing", b"404", b"not-found"),
    ],
)
def test_a_refused_body_is_answered_and_not_read_to_its_end(
    shared_server: ServerProcess, target: bytes, status: bytes, code: bytes
) -> None:
    head = (
        target
        + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        + b"Content-Length: 99999999999\r\n\r\n"
    )
    with socket.create_connection(shared_server.address, timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(head)
        with contextlib.suppress(OSError):
            connection.sendall(bytes(2_000_000))
        answer = read_to_end(connection)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert code in answer


def test_an_upload_is_never_held_in_memory(server: ServerProcess) -> None:
    httpx.post(f"{server.url}/v1/models", content=MODEL_BYTES, timeout=PATIENCE_SECONDS).raise_for_status()
    before = server.peak_memory_bytes()

    def chunks() -> Iterator[bytes]:
        block = os.urandom(1 << 20)
        for index in range(UPLOAD_BYTES >> 20):
            yield index.to_bytes(4, "big") + block[4:]

    response = httpx.post(f"{server.url}/v1/models", content=chunks(), timeout=300)
    assert response.status_code == 201
    assert server.peak_memory_bytes() - before <= MAX_GROWTH_BYTES
    digest = response.json()["digest"]
    assert [path.name for path in server.stored_files() if path.stat().st_size == UPLOAD_BYTES] == [digest]


def test_the_answer_to_head_has_no_body(shared_server: ServerProcess) -> None:
    with httpx.Client(base_url=shared_server.url, timeout=PATIENCE_SECONDS) as api:
        digest = api.post("/v1/models", content=MODEL_BYTES).raise_for_status().json()["digest"]
        for path in (f"/v1/models/{digest}", "/v1/models/" + "0" * 64, "/healthz"):
            response = api.head(path)
            assert response.content == b""
            assert int(response.headers["Content-Length"]) > 0


@pytest.mark.parametrize(("trusted", "seen"), [("", "127.0.0.1"), ("127.0.0.1", "192.0.2.7")])
def test_only_a_trusted_proxy_names_the_client(tmp_path: Path, trusted: str, seen: str) -> None:
    admin = "bsm_00000000000a_" + "a" * 43
    settings = {"BESSEMER_ADMIN_KEY": admin, "BESSEMER_TRUSTED_PROXIES": trusted}
    headers = {"Authorization": f"Bearer {admin}", "X-Forwarded-For": "192.0.2.7"}
    with (
        running_app(tmp_path, settings=settings) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS, headers=headers) as api,
    ):
        api.post("/v1/models", content=MODEL_BYTES).raise_for_status()
        assert {entry["address"] for entry in api.get("/v1/audit").json()["items"]} == {seen}


def test_settings_that_are_not_valid_are_named_in_a_line_each(tmp_path: Path) -> None:
    wrong = {"BESSEMER_DATABASE_URL": "mysql://user:secret@host/name", "BESSEMER_PORT": "many"}
    environment = {**os.environ, "BESSEMER_DATA": str(tmp_path), **wrong}
    ended = subprocess.run(
        [sys.executable, "-m", "app"], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert [line.partition(":")[0] for line in ended.stderr.splitlines()] == list(wrong)
    assert "secret" not in ended.stderr


def test_a_port_that_is_taken_is_reported(shared_server: ServerProcess, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "BESSEMER_DATA": str(tmp_path / "other"),
        "BESSEMER_PORT": str(shared_server.address[1]),
    }
    ended = subprocess.run(
        [sys.executable, "-m", "app"], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode not in (0, 2)
    assert "address already in use" in ended.stderr
    assert ended.stdout == ""
    assert httpx.get(f"{shared_server.url}/healthz", timeout=PATIENCE_SECONDS).status_code == 200
