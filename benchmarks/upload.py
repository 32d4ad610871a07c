"""Growth of the app's memory during an upload of 1 GiB."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from benchmarks.figure import Figure, summarize
from examples.local_service import local_app

UPLOAD_BYTES = 1 << 30
CHUNK = bytes(1 << 20)
AIM_MIB = 64.0


def measure_upload(folder: Path) -> list[Figure]:
    """Upload 1 GiB to a separate app and compare its peak memory before and after."""
    with local_app(folder / "upload") as app:
        httpx.post(f"{app.url}/v1/models", content=CHUNK).raise_for_status()
        before = _peak_mib(app.process.pid)
        start = time.perf_counter()
        httpx.post(f"{app.url}/v1/models", content=_body(), timeout=600).raise_for_status()
        seconds = time.perf_counter() - start
        growth = _peak_mib(app.process.pid) - before
    return [
        summarize("app's growth, uploading 1 GiB", "MiB", [growth], AIM_MIB),
        summarize("uploading 1 GiB", "s", [seconds]),
    ]


def _body() -> Iterator[bytes]:
    first = os.urandom(len(CHUNK))
    yield first
    for _ in range(UPLOAD_BYTES // len(CHUNK) - 1):
        yield CHUNK


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    if found is None:
        raise RuntimeError(f"process {pid} has no VmHWM")
    return int(found[1]) / 1024
