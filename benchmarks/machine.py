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


class ProcessorKind(StrEnum):
    """The maker and the widest vectors of a processor. Results are kept for each, since schedules differ."""

    INTEL_AVX512 = "Intel with AVX-512"
    AMD_AVX512 = "AMD with AVX-512"
    INTEL_AVX2 = "Intel with AVX2"
    AMD_AVX2 = "AMD with AVX2"
    OTHER = "another processor"

    @property
    def slug(self) -> str:
        """The name in files."""
        return self.name.lower().replace("_", "-")


def kind_here() -> ProcessorKind:
    """The kind of this machine's processor."""
    cpuinfo = Path("/proc/cpuinfo")
    words = set(cpuinfo.read_text(encoding="utf-8").split()) if cpuinfo.is_file() else set()
    kinds = {
        ("GenuineIntel", "avx512f"): ProcessorKind.INTEL_AVX512,
        ("AuthenticAMD", "avx512f"): ProcessorKind.AMD_AVX512,
        ("GenuineIntel", "avx2"): ProcessorKind.INTEL_AVX2,
        ("AuthenticAMD", "avx2"): ProcessorKind.AMD_AVX2,
    }
    found = (kind for needed, kind in kinds.items() if words.issuperset(needed))
    return next(found, ProcessorKind.OTHER)


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
