"""The machine and the versions that figures were measured with."""

import os
import platform
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel

from worker.measure.machine import processor, versions

SERVICE_PACKAGES = ("dbos", "fastapi")
"""Packages whose versions matter for the service's figures."""


class Vectors(StrEnum):
    """The widest vectors of a processor. Results are kept for each, since schedules differ by them."""

    AVX512 = "AVX-512"
    AVX2 = "AVX2"
    OTHER = "other vectors"

    @property
    def slug(self) -> str:
        """The name in files."""
        return self.value.lower().replace("-", "").replace(" ", "-")


def vectors_here() -> Vectors:
    """The vectors of this machine's processor."""
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text(encoding="utf-8").split() if cpuinfo.is_file() else []
    if "avx512f" in flags:
        return Vectors.AVX512
    return Vectors.AVX2 if "avx2" in flags else Vectors.OTHER


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
