"""What the figures were measured on, and with which versions."""

import os
import platform
from importlib.metadata import version

from pydantic import BaseModel

from worker.measure.machine import processor, versions

SERVICE_PACKAGES = ("dbos", "fastapi")
"""Whose versions count for the service's figures."""


class Machine(BaseModel):
    """The machine of one run of the benchmarks."""

    processor: str
    cores: int
    memory_gib: float
    kernel: str
    versions: dict[str, str]


def describe(packages: tuple[str, ...]) -> Machine:
    """The machine that this process runs on.

    Args:
        packages: whose versions to name, beside those that every figure depends on.
    """
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        processor=processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(memory_bytes / 2**30, 1),
        kernel=platform.release(),
        versions=versions() | {name: version(name) for name in packages},
    )
