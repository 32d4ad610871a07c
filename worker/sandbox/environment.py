"""The layer ``environment``: a job sees no variable of its supervisor."""

import os
import tempfile
from pathlib import Path

from bessemer.contract.sandbox import Layer, LayerStatus

ZYGOTE_ENVIRONMENT = {
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",
    # torch's idle threads spin for 2 ms instead of 10: the benchmark waits for them before the library's turn
    "GOMP_SPINCOUNT": "60000",
}
"""The zygote's whole environment. OpenBLAS would start threads on import, which a fork does not copy. TVM
needs a home, and a user without an account has none."""


def confine_environment(scratch: Path) -> None:
    """Reduce a job's environment to the zygote's variables and the folders where it may write."""
    kept = {name: value for name, value in os.environ.items() if name in ZYGOTE_ENVIRONMENT}
    os.environ.clear()
    os.environ.update(kept)
    os.environ.update({"PATH": "/usr/bin:/bin", "HOME": str(scratch), "TMPDIR": str(scratch), "USER": "job"})
    tempfile.tempdir = None  # the zygote may have cached it


def probe_environment() -> LayerStatus:
    """Whether the process was started with the zygote's environment only.

    ``os.environ`` can be cleared, but what ``/proc/self/environ`` shows stays in memory.
    """
    started_with = Path("/proc/self/environ").read_bytes().split(b"\0")
    names = {entry.partition(b"=")[0].decode(errors="replace") for entry in started_with if entry}
    foreign = sorted(names - ZYGOTE_ENVIRONMENT.keys())
    note = f"started with {', '.join(foreign)}" if foreign else ""
    return LayerStatus(layer=Layer.ENVIRONMENT, holds=not foreign, required=True, note=note)
