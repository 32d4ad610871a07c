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
"""All that the zygote is started with. OpenBLAS would start threads on import, which no fork survives; TVM
wants a home, and a user without an account has none."""


def confine_environment(scratch: Path) -> None:
    """Leave a job the zygote's own variables and the places where it may write."""
    kept = {name: value for name, value in os.environ.items() if name in ZYGOTE_ENVIRONMENT}
    os.environ.clear()
    os.environ.update(kept)
    os.environ.update({"PATH": "/usr/bin:/bin", "HOME": str(scratch), "TMPDIR": str(scratch), "USER": "job"})
    tempfile.tempdir = None  # the zygote may have asked for it already


def probe_environment() -> LayerStatus:
    """Whether the environment that the process was started with holds nothing but the zygote's.

    ``os.environ`` can be cleared; what ``/proc/self/environ`` shows stays in memory for ever.
    """
    started_with = Path("/proc/self/environ").read_bytes().split(b"\0")
    names = {entry.partition(b"=")[0].decode(errors="replace") for entry in started_with if entry}
    strangers = sorted(names - ZYGOTE_ENVIRONMENT.keys())
    note = f"started with {', '.join(strangers)}" if strangers else ""
    return LayerStatus(layer=Layer.ENVIRONMENT, holds=not strangers, required=True, note=note)
