"""``bessemer serve``: an app and a worker on this machine."""

import errno
import importlib.util
import os
import re
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer

import bessemer
from bessemer.cli.output import ExitStatus, errors, reporting, tell
from bessemer.cli.processes import Family
from bessemer.client import Client
from bessemer.contract.base import now
from bessemer.errors import UnreachableError

__all__ = ["serve"]

PROGRAMS = ("app", "worker")
NEEDED_MODULES = ("dbos", "fastapi", "torch", "tvm")
WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
PROBE_TIMEOUT_SECONDS = 5.0
READY = re.compile(rb"app: ready at \S+:(\d+)\n")
READ_BYTES = 4096


def serve(
    data: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Database and artifacts; made where missing.")
    ] = Path("bessemer-data"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8000,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
) -> None:
    """Run the server and a worker here until Ctrl-C."""
    with reporting():
        root = _checkout()
        _refuse_taken(host, port)
        data.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "BESSEMER_DATA": str(data.resolve()),
            "BESSEMER_HOST": host,
            "BESSEMER_PORT": str(port),
        }
        raise typer.Exit(_serve(root, environment, host))


class _Announcement:
    """The one line that the app prints, once it listens: it alone knows the port that it was given."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._text = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._reader)
        os.close(self.writer)

    def port(self) -> int | None:
        """The port that the app listens on; None where it does not yet."""
        with suppress(BlockingIOError):
            self._text += os.read(self._reader, READ_BYTES)
        found = READY.search(self._text)
        return int(found[1]) if found else None


def _serve(root: Path, environment: Mapping[str, str], host: str) -> ExitStatus:
    started_at = now()
    with Family() as family, _Announcement() as announcement:
        for program in PROGRAMS:
            output = announcement.writer if program == "app" else None
            family.start(program, (sys.executable, "-m", program), root, environment, output)
        if family.wait_until(lambda: announcement.port() is not None):
            _wait_for_worker(family, _url(host, announcement.port() or 0), started_at)
        ended = None if family.stopping else family.ended()
    if ended is None:
        return ExitStatus.SUCCEEDED
    tell(errors, f"error: the {ended[0]} ended with status {ended[1]}; everything was stopped")
    return ExitStatus.FAILED


def _wait_for_worker(family: Family, url: str, started_at: datetime) -> None:
    with Client(url, PROBE_TIMEOUT_SECONDS) as client:
        if not family.wait_until(lambda: _has_worker(client, started_at)):
            return
    typer.echo(f"Bessemer is ready at {url} (Ctrl-C stops it)")
    family.wait_until(lambda: False)


def _has_worker(client: Client, started_at: datetime) -> bool:
    """Whether a worker that started with us lives; one of an earlier run may linger in the list."""
    try:
        readiness = client.readiness()
    except UnreachableError:
        return False
    return readiness.ready and any(worker.seen_at >= started_at for worker in readiness.workers)


def _checkout() -> Path:
    """The folder that holds Bessemer's own ``app`` and ``worker``, which no wheel has."""
    root = Path(bessemer.__file__).parents[1]
    absent = [name for name in PROGRAMS if not (root / name / "__main__.py").is_file()]
    if absent:
        where = f"{' and '.join(absent)} do not lie beside the package bessemer in {root}"
        _refuse(f"{where}: the server runs from a checkout or from the images, not from the wheel")
    missing = [name for name in NEEDED_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        _refuse(f"the server needs {', '.join(missing)}: run `make setup`, or pip install '.[server,worker]'")
    return root


def _refuse_taken(host: str, port: int) -> None:
    """Find out before anything starts; other trouble with the address is the app's to tell."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the app listens
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            _refuse(f"port {port} is taken: --port chooses another")


def _refuse(reason: str) -> None:
    tell(errors, f"error: {reason}")
    raise typer.Exit(ExitStatus.FAILED)


def _url(host: str, port: int) -> str:
    reachable = WILDCARD_HOSTS.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
