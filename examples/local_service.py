"""A service on this machine for as long as a ``with`` block lasts, for the demo, tests and benchmarks."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import httpx

ROOT = Path(__file__).parents[1]
START_SECONDS = 180.0
STOP_SECONDS = 30.0
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class ServiceFailedError(RuntimeError):
    """The service did not come up; the message ends with what it printed."""


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def local_service(
    data: Path, settings: Mapping[str, str] = NO_SETTINGS, port: int | None = None
) -> Iterator[str]:
    """Run ``bessemer serve`` on a folder and yield its URL once a worker is alive.

    Args:
        data: the folder for the database, the artifacts and ``serve.log``; made if missing.
        settings: further ``BESSEMER_`` variables of its environment.
        port: the port to listen on; by default any free one.

    Raises:
        ServiceFailedError: it ended, or no worker was alive after three minutes.
    """
    data.mkdir(parents=True, exist_ok=True)
    url = f"http://127.0.0.1:{port or free_port()}"
    command = [
        sys.executable,
        "-m",
        "bessemer.cli",
        "serve",
        "--data",
        str(data),
        "--port",
        url.rpartition(":")[2],
    ]
    log = data / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **settings}, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_ready(url, process, log)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        _wait_or_kill(process)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if _has_worker(url):
            return
        time.sleep(0.1)
    raise ServiceFailedError(f"the service did not start; {log} ends:\n{log.read_text()[-2000:]}")


def _has_worker(url: str) -> bool:
    try:
        answer = httpx.get(f"{url}/readyz", timeout=5)
    except httpx.TransportError:
        return False
    return answer.is_success and bool(answer.json()["workers"])


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
