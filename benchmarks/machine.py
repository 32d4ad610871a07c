"""The machine and the versions that figures were measured with."""

import os
import platform
from importlib.metadata import version

from pydantic import BaseModel

from worker.measure.machine import processor, versions

SERVICE_PACKAGES = ("dbos", "fastapi")
"""Packages whose versions matter for the service's figures."""


class Machine(BaseModel):
    """The machine of one benchmark run."""

    processor: str
    cores: int
    memory_gib: float
    kernel: str
    versions: dict[str, str]


def describe(packages: tuple[str, ...]) -> Machine:
    """Describe the machine of this process.

    Args:
        packages: more packages to record the versions of.
    """
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        processor=processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(memory_bytes / 2**30, 1),
        kernel=platform.release(),
        versions=versions() | {name: version(name) for name in packages},
    )
