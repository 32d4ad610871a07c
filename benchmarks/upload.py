"""By how much uploading 1 GiB grows the app's memory."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from benchmarks.figure import Figure, summarize
from examples.local_service import ROOT, free_port

UPLOAD_BYTES = 1 << 30
CHUNK = bytes(1 << 20)
AIM_MIB = 64.0


def measure_upload(folder: Path) -> list[Figure]:
    """Upload 1 GiB to an app of its own; compare its peak memory before and after."""
    port = free_port()
    settings = {"BESSEMER_DATA": str(folder / "upload"), "BESSEMER_PORT": str(port)}
    process = subprocess.Popen([sys.executable, "-m", "app"], cwd=ROOT, env={**os.environ, **settings})
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url)
        httpx.post(f"{url}/v1/models", content=CHUNK).raise_for_status()
        before = _peak_mib(process.pid)
        start = time.perf_counter()
        httpx.post(f"{url}/v1/models", content=_body(), timeout=600).raise_for_status()
        seconds = time.perf_counter() - start
        growth = _peak_mib(process.pid) - before
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
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


def _wait(url: str) -> None:
    for _ in range(300):
        try:
            httpx.get(f"{url}/healthz").raise_for_status()
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the app did not start")
