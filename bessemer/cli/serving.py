"""``bessemer serve``: run an app and a worker on this machine."""

import errno
import importlib.util
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Self

import typer

import bessemer
from bessemer.cli.output import ExitStatus, errors, print_lines, reporting
from bessemer.cli.processes import ChildProcesses
from bessemer.client import Client
from bessemer.contract.base import now
from bessemer.errors import UnreachableError

PROGRAMS = ("app", "worker")
NEEDED_MODULES = ("dbos", "fastapi", "torch", "tvm")
WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
PROBE_TIMEOUT_SECONDS = 5.0
READY = re.compile(rb"app: ready at \S+:(\d+)\n")
READ_BYTES = 4096
LOCK = "serve.lock"
"""The file in the data folder that a running service locks."""


def serve(
    data: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Directory for the database and artifacts; created if missing.",
        ),
    ] = Path("bessemer-data"),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")
    ] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Run the server and a worker on this machine until Ctrl-C."""
    with reporting():
        root = _checkout()
        _refuse_taken(host, port)
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "BESSEMER_DATA": str(data.resolve()),
            "BESSEMER_HOST": host,
            "BESSEMER_PORT": str(port),
        }
        with _marked_as_used(data):
            print_lines(errors, "starting the app and a worker, which takes some seconds")
            raise typer.Exit(_serve(root, environment, host))


@contextmanager
def _marked_as_used(data: Path) -> Iterator[None]:
    """Lock the folder, and print a note if another service uses it, which is rarely intended."""
    import fcntl  # not on Windows, where clients run

    with (data / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # some network file systems have no locks
            if isinstance(error, BlockingIOError):
                said = f"another `bessemer serve` already uses {data}: both take jobs from the same queue"
                print_lines(errors, f"note: {said}")
        yield


class _Announcement:
    """A pipe for the line that the app prints when it listens, which contains the port."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._text = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._reader)
        os.close(self.writer)

    def port(self) -> int | None:
        """The port that the app listens on; None until it does."""
        with suppress(BlockingIOError):
            self._text += os.read(self._reader, READ_BYTES)
        found = READY.search(self._text)
        return int(found[1]) if found else None


def _serve(root: Path, environment: Mapping[str, str], host: str) -> ExitStatus:
    started_at = now()
    with ChildProcesses() as children, _Announcement() as announcement:
        for program in PROGRAMS:
            output = announcement.writer if program == "app" else None
            children.start(program, (sys.executable, "-m", program), root, environment, output)
        if children.wait_until(lambda: announcement.port() is not None):
            _wait_for_worker(children, _url(host, announcement.port() or 0), started_at)
        ended = None if children.stopping else children.ended()
    if ended is None:
        return ExitStatus.SUCCEEDED
    print_lines(errors, f"error: the {ended[0]} ended with status {ended[1]}; everything was stopped")
    return ExitStatus.FAILED


def _wait_for_worker(children: ChildProcesses, url: str, started_at: datetime) -> None:
    with Client(url, PROBE_TIMEOUT_SECONDS) as client:
        if not children.wait_until(lambda: _has_worker(client, started_at)):
            return
    typer.echo(f"Bessemer is ready at {url} (Ctrl-C stops it)")
    children.wait_until(lambda: False)


def _has_worker(client: Client, started_at: datetime) -> bool:
    """Whether the new worker is live; the list may still contain one of an earlier run."""
    try:
        readiness = client.readiness()
    except UnreachableError:
        return False
    return readiness.ready and any(worker.seen_at >= started_at for worker in readiness.workers)


def _checkout() -> Path:
    """The root of the checkout; a wheel does not contain ``app`` and ``worker``."""
    root = Path(bessemer.__file__).parents[1]
    absent = [name for name in PROGRAMS if not (root / name / "__main__.py").is_file()]
    if absent:
        where = f"{' and '.join(absent)} not found beside the package bessemer in {root}"
        _refuse(f"{where}: run the server from a checkout or an image, not from a wheel")
    missing = [name for name in NEEDED_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        _refuse(f"the server needs {', '.join(missing)}: run `make setup` or pip install '.[server,worker]'")
    return root


def _refuse_taken(host: str, port: int) -> None:
    """Fail early if the port is in use; the app reports any other trouble with the address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the same option as the app's socket
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            _refuse(f"port {port} is in use; choose another with --port")


def _refuse(reason: str) -> None:
    print_lines(errors, f"error: {reason}")
    raise typer.Exit(ExitStatus.FAILED)


def _url(host: str, port: int) -> str:
    reachable = WILDCARD_HOSTS.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
