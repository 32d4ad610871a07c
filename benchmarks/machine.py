"""What the figures were measured on, and with which versions."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel

PACKAGES = ("apache-tvm", "apache-tvm-ffi", "torch", "dbos", "fastapi", "numpy")


class Machine(BaseModel):
    """The machine of one run of the benchmarks."""

    processor: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    versions: dict[str, str]


def describe() -> Machine:
    """The machine that this process runs on."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(memory_bytes / 2**30, 1),
        kernel=platform.release(),
        python=platform.python_version(),
        versions={name: version(name) for name in PACKAGES},
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
