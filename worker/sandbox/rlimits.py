"""The layer ``rlimits``: limits that the kernel enforces on every process of a job."""

import os
import resource
from pathlib import Path

from bessemer.contract.sandbox import Layer, LayerStatus
from worker.protocol.order import Rlimits


def confine_rlimits(limits: Rlimits, shared_user: bool) -> LayerStatus:
    """Set the limits, soft and hard, and read them back.

    Args:
        limits: the limits from the supervisor's order.
        shared_user: whether the job runs as the supervisor's user. The kernel counts processes by user, so
            the limit then includes processes that already run.
    """
    wanted = _table(limits, _tasks_of_user() if shared_user else 0)
    refused = [name for name, (number, value) in wanted.items() if not _set(number, value)]
    note = f"refused: {', '.join(refused)}" if refused else ""
    if os.getuid() == 0:
        note = "; ".join(filter(None, (note, "root is exempt from the limit on processes")))
    return LayerStatus(layer=Layer.RLIMITS, holds=not note, required=True, note=note)


def _table(limits: Rlimits, running: int) -> dict[str, tuple[int, int]]:
    return {
        "CORE": (resource.RLIMIT_CORE, 0),
        "FSIZE": (resource.RLIMIT_FSIZE, limits.file_bytes),
        "CPU": (resource.RLIMIT_CPU, limits.cpu_seconds),
        "NOFILE": (resource.RLIMIT_NOFILE, limits.open_files),
        "NPROC": (resource.RLIMIT_NPROC, limits.processes + running),
        "DATA": (resource.RLIMIT_DATA, limits.data_bytes),
        "AS": (resource.RLIMIT_AS, limits.address_space_bytes),
        "MEMLOCK": (resource.RLIMIT_MEMLOCK, 0),
        "RTPRIO": (resource.RLIMIT_RTPRIO, 0),
        "NICE": (resource.RLIMIT_NICE, 0),
    }


def _set(number: int, value: int) -> bool:
    hard = resource.getrlimit(number)[1]
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(number, (allowed, allowed))
    except (OSError, ValueError):
        return False
    return resource.getrlimit(number) == (allowed, allowed)


def _tasks_of_user() -> int:
    uid = os.getuid()
    return sum(_tasks(folder, uid) for folder in Path("/proc").iterdir() if folder.name.isdigit())


def _tasks(folder: Path, uid: int) -> int:
    try:
        return sum(1 for _ in (folder / "task").iterdir()) if folder.stat().st_uid == uid else 0
    except OSError:
        return 0
