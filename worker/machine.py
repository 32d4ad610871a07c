"""The machine that a worker runs on."""

import platform
from functools import cache
from pathlib import Path


@cache
def processor() -> str:
    """The processor's name, such as ``AMD EPYC 9R14``; its architecture where that cannot be read."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    fields = (line.partition(":") for line in lines)
    return next(
        (value.strip() for key, _, value in fields if key.strip() == "model name"), platform.machine()
    )
