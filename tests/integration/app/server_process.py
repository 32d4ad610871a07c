"""A running ``python -m app``."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from examples.local_service import NO_SETTINGS, local_app


@dataclass(frozen=True)
class ServerProcess:
    """The process, its address and its folder."""

    process: subprocess.Popen[bytes]
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
        return sorted(path for path in (self.data / "artifacts").rglob("*") if path.is_file())


@contextmanager
def running_app(
    folder: Path, stop_seconds: int = 20, settings: Mapping[str, str] = NO_SETTINGS
) -> Iterator[ServerProcess]:
    """Start the app on a folder and a free port; what it prints goes to ``data/app.log``."""
    with local_app(folder / "data", {"BESSEMER_STOP_SECONDS": str(stop_seconds), **settings}) as app:
        yield ServerProcess(app.process, app.url, folder / "data")
