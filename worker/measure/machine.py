"""The machine that a worker runs on, and the versions installed there."""

import os
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("bessemer", "torch", "apache-tvm", "apache-tvm-ffi", "numpy", "ziglang")


@cache
def processor() -> str:
    """The processor's name, such as ``AMD EPYC 9R14``; its architecture if the name cannot be read."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    fields = (line.partition(":") for line in lines)
    return next(
        (value.strip() for key, _, value in fields if key.strip() == "model name"), platform.machine()
    )


@cache
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that a library and its figures depend on."""
    return {name: version(name) for name in PACKAGES} | {"python": platform.python_version()}


def threads_here(cores: int) -> int:
    """How many threads a library for a target with ``cores`` cores uses on this machine."""
    return min(cores, len(os.sched_getaffinity(0)))


def remember() -> None:
    """Read and cache this now: a confined job has no ``/proc``."""
    versions()
    processor()
