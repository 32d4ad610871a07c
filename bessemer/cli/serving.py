"""``bessemer serve``: an app and a worker on this machine."""

import importlib.util
import os
import socket
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

import bessemer
from bessemer.cli.output import ExitStatus, errors, reporting
from bessemer.cli.processes import Family
from bessemer.client import Client
from bessemer.contract.base import now
from bessemer.errors import UnreachableError

__all__ = ["serve"]

PROGRAMS = ("app", "worker")
NEEDED_MODULES = ("dbos", "fastapi", "torch", "tvm")
WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
PROBE_TIMEOUT_SECONDS = 5.0


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
        data.mkdir(parents=True, exist_ok=True)
        chosen = port or _free_port(host)
        environment = {
            **os.environ,
            "BESSEMER_DATA": str(data.resolve()),
            "BESSEMER_HOST": host,
            "BESSEMER_PORT": str(chosen),
        }
        raise typer.Exit(_serve(root, environment, _url(host, chosen)))


def _serve(root: Path, environment: Mapping[str, str], url: str) -> ExitStatus:
    started_at = now()
    with Family() as family, Client(url, PROBE_TIMEOUT_SECONDS) as client:
        for program in PROGRAMS:
            family.start(program, (sys.executable, "-m", program), root, environment)
        if family.wait_until(lambda: _has_worker(client, started_at)):
            typer.echo(f"Bessemer is ready at {url} (Ctrl-C stops it)")
            family.wait_until(lambda: False)
        ended = None if family.stopping else family.ended()
    if ended is None:
        return ExitStatus.SUCCEEDED
    errors.print(f"error: the {ended[0]} ended with status {ended[1]}; everything was stopped", markup=False)
    return ExitStatus.FAILED


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


def _refuse(reason: str) -> None:
    errors.print(f"error: {reason}", markup=False)
    raise typer.Exit(ExitStatus.FAILED)


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


def _url(host: str, port: int) -> str:
    reachable = WILDCARD_HOSTS.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
