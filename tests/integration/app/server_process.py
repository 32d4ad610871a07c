"""A running ``python -m app``."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True)
class ServerProcess:
    """The process, its address and its folder."""

    process: subprocess.Popen[str]
    url: str
    data: Path

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def peak_memory_bytes(self) -> int:
        """The most memory that the process has ever held."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def stored_files(self) -> list[Path]:
        """The files in the artifact store."""
        return [path for path in (self.data / "artifacts").rglob("*") if path.is_file()]


@contextmanager
def running_app(folder: Path) -> Iterator[ServerProcess]:
    """Start the app on a folder and a free port; its standard error goes to ``app.log``."""
    settings = {"BESSEMER_DATA": str(folder / "data"), "BESSEMER_PORT": "0", "BESSEMER_STOP_SECONDS": "1"}
    with (folder / "app.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "app"],
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    ready = process.stdout.readline()
    try:
        yield ServerProcess(process, ready.rpartition(" ")[2].strip(), folder / "data")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
