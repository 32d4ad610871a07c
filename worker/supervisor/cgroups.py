"""A memory cgroup for each job, in a cgroup that the operator has given to the worker.

The kernel then limits all memory of a job together, including what ``/proc`` does not show: kernel memory,
and files on a tmpfs. Source: ``cgroup-v2.rst`` and ``cgroup-v1/memory.rst`` in the kernel's admin guide.
"""

import contextlib
import errno
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from worker.errors import WorkDirError

REMOVE_SECONDS = 1.0
_STEP_SECONDS = 0.01

PROCESSES = "cgroup.procs"
_LIMITS_V2 = {"memory.max": "{bytes}", "memory.swap.max": "0", "memory.oom.group": "1"}
_LIMIT_V1 = "memory.limit_in_bytes"
_LIMITS_V1 = {_LIMIT_V1: "{bytes}", "memory.memsw.limit_in_bytes": "{bytes}"}
_OOM_FILES = ("memory.events", "memory.oom_control")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobCgroup:
    """The cgroup of one job."""

    path: Path

    @property
    def processes(self) -> Path:
        """The file into which the job's child writes 0 to join."""
        return self.path / PROCESSES

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has killed a process of the job at the limit."""
        for name in _OOM_FILES:
            with contextlib.suppress(OSError):
                counts = dict(line.split() for line in (self.path / name).read_text().splitlines())
                return int(counts.get("oom_kill", 0)) > 0
        return False


@contextmanager
def job_cgroup(parent: Path | None, name: str, memory_bytes: int) -> Iterator[JobCgroup | None]:
    """The cgroup of a job, which exists while the context lasts; None without ``parent``.

    Args:
        parent: a cgroup with the memory controller; on cgroup v2, it has no processes itself.
        name: a name that no other job of this worker uses.
        memory_bytes: the job's limit.

    Raises:
        WorkDirError: the cgroup cannot be made, or has no memory controller.
    """
    if parent is None:
        yield None
        return
    path = parent / f"{os.getpid()}-{name}"
    try:
        path.mkdir()
        _limit(path, memory_bytes)
    except OSError as error:
        detail = f"BESSEMER_CGROUP: cannot make a memory cgroup in {parent}: {error.strerror}"
        raise WorkDirError(detail) from error
    try:
        yield JobCgroup(path)
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a cgroup as soon as the kernel has taken its last process out of it."""
    deadline = time.monotonic() + REMOVE_SECONDS
    while True:
        try:
            path.rmdir()
        except OSError as error:
            if time.monotonic() > deadline:
                log.warning("cannot remove the cgroup %s: %s", path, error.strerror)
                return
            time.sleep(_STEP_SECONDS)
        else:
            return


def _limit(path: Path, memory_bytes: int) -> None:
    limits = _LIMITS_V1 if (path / _LIMIT_V1).exists() else _LIMITS_V2
    if not (path / next(iter(limits))).exists():
        path.rmdir()
        raise OSError(errno.ENOTSUP, "it has no memory controller")
    for name, value in limits.items():
        with contextlib.suppress(FileNotFoundError), (path / name).open("r+") as file:
            file.write(value.format(bytes=memory_bytes))
