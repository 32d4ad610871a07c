"""A temporary local service for the demo, tests and benchmarks."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from examples.environment import without_settings

ROOT = Path(__file__).parents[1]
START_SECONDS = 180.0
STOP_SECONDS = 30.0
READY = re.compile(r"^(?:Bessemer is|app:) ready at (\S+)", re.MULTILINE)
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class ServiceFailedError(RuntimeError):
    """The service did not start; the message ends with its output."""


@dataclass(frozen=True)
class LocalApp:
    """A running ``python -m app``."""

    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def local_service(data: Path, settings: Mapping[str, str] = NO_SETTINGS, port: int = 0) -> Iterator[str]:
    """Run ``bessemer serve`` on a folder and yield its URL once a worker is alive.

    Args:
        data: the folder for the database, the artifacts and ``serve.log``; created if missing.
        settings: ``BESSEMER_`` variables; this process's own are ignored, except those of the machine.
        port: the port to listen on; default: any free port.

    Raises:
        ServiceFailedError: the service ended, or no worker was alive after three minutes.
    """
    command = ("bessemer.cli", "serve", "--data", str(data), "--port", str(port))
    with _running(command, data / "serve.log", settings) as (url, _):
        yield url


@contextmanager
def local_app(data: Path, settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[LocalApp]:
    """Run only the app, on any free port. Arguments and errors as in ``local_service``."""
    given = {"BESSEMER_DATA": str(data), "BESSEMER_PORT": "0", **settings}
    with _running(("app",), data / "app.log", given) as (url, process):
        yield LocalApp(url, process)


@contextmanager
def _running(
    module: tuple[str, ...], log: Path, settings: Mapping[str, str]
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *module],
            cwd=ROOT,
            env=without_settings(os.environ) | settings,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield _ready_url(process, log), process
    finally:
        process.send_signal(signal.SIGTERM)
        _wait_or_kill(process)


def _ready_url(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait for the ready line and return its URL."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := READY.search(log.read_text()):
            return found[1]
        time.sleep(0.05)
    raise ServiceFailedError(f"the service did not start; the end of {log}:\n{log.read_text()[-2000:]}")


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
