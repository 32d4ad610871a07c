"""An app and two workers on one store, each restarted whenever it ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from bessemer.store.settings import StoreSettings
from examples.local_postgresql import local_postgresql
from examples.local_service import ROOT
from examples.ports import free_port

WORKERS = ("soak-1", "soak-2")
ABANDONED_UPLOAD_SECONDS = 60
START_SECONDS = 600.0
STOP_SECONDS = 120.0
_STEP_SECONDS = 0.1


class Kept:
    """A program that is restarted whenever it ends, until it is stopped."""

    def __init__(self, name: str, module: str, environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.starts = 0
        self._command = [sys.executable, "-m", module]
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=name)

    def start(self) -> None:
        """Start the program and a thread that restarts it."""
        self._keeper.start()

    @property
    def pid(self) -> int | None:
        """The id of its process, or None."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def said(self, text: str) -> bool:
        """Whether its log contains a text."""
        return text in self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Stop it with SIGTERM."""
        self._stopping.set()
        pid = self.pid
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
        self._keeper.join(STOP_SECONDS)
        if self._keeper.is_alive():
            raise TimeoutError(f"{self.name} does not stop")

    def _keep(self) -> None:
        with self._log.open("ab") as log:
            while not self._stopping.is_set():
                self._process = subprocess.Popen(
                    self._command, cwd=ROOT, env=self._environment, stdout=log, stderr=log
                )
                self.starts += 1
                self._process.wait()


@dataclass(frozen=True)
class Site:
    """All programs and their settings."""

    settings: StoreSettings
    work: Path
    url: str
    app: Kept
    workers: tuple[Kept, ...]

    def wait_until_ready(self) -> None:
        """Return once the app answers and both workers are alive.

        Raises:
            TimeoutError: they did not start.
        """
        deadline = time.monotonic() + START_SECONDS
        while len(self._alive()) < len(self.workers):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the service did not start: see the logs in {self.settings.folder}")
            time.sleep(_STEP_SECONDS)

    def _alive(self) -> list[object]:
        try:
            return list(httpx.get(f"{self.url}/readyz", timeout=30).json()["workers"])
        except (httpx.HTTPError, ValueError, KeyError):
            return []


@contextmanager
def running_site(folder: Path, database: str) -> Iterator[Site]:
    """Run the service in a folder, on ``sqlite`` or ``postgresql``.

    Raises:
        ValueError: ``database`` is neither.
    """
    if database not in ("sqlite", "postgresql"):
        raise ValueError(f"DATABASE must be sqlite or postgresql, not {database!r}")
    with ExitStack() as stack:
        url = stack.enter_context(local_postgresql()) if database == "postgresql" else None
        site = _make_site(folder, url)
        for kept in (site.app, *site.workers):
            kept.start()
            stack.callback(kept.stop)
        yield site


def _make_site(folder: Path, database_url: str | None) -> Site:
    data, work, port = folder / "data", Path("/tmp") / f"bessemer-soak-{os.getpid()}", free_port()
    data.mkdir(parents=True)
    given = {
        "BESSEMER_DATA": str(data),
        "BESSEMER_PORT": str(port),
        "BESSEMER_WORK_DIR": str(work),
        "BESSEMER_UPLOAD_ABANDONED_SECONDS": str(ABANDONED_UPLOAD_SECONDS),
        "BESSEMER_STOP_SECONDS": "1",
    }
    if database_url is not None:
        given["BESSEMER_DATABASE_URL"] = database_url
    environment = {**os.environ, **given}
    workers = tuple(
        Kept(name, "worker", {**environment, "BESSEMER_WORKER_ID": name}, data / f"{name}.log")
        for name in WORKERS
    )
    return Site(
        settings=StoreSettings(data=data, database_url=database_url),
        work=work,
        url=f"http://127.0.0.1:{port}",
        app=Kept("app", "app", environment, data / "app.log"),
        workers=workers,
    )
