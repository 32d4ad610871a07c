"""Measures what a job uses, from ``/proc`` and from its folder, and treats both as hostile."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from worker.job.folder import JobFolder
from worker.sandbox.libc import file_user
from worker.settings import Limits
from worker.supervisor.disk import DiskMeter
from worker.supervisor.processes import (
    Process,
    may_trace,
    private_bytes,
    processes,
    proportional_bytes,
    user_of,
)

RESCAN_SECONDS = 1.0
"""How long to skip processes that are not part of the job: none joins another session, but ids recur."""


@dataclass(frozen=True)
class Usage:
    """One sample of what a job uses.

    Attributes:
        memory_bytes: anonymous and shared memory of all its processes; an upper bound while that is below the
            limit.
        disk_bytes: blocks of the files in its folder, and of deleted files that it has open or mapped.
        inodes: these files, and folders.
        output_bytes: the size of its log.
        cpu_seconds: processor time of all its processes, including ended ones.
        wall_seconds: time since the watch began.
    """

    memory_bytes: int
    disk_bytes: int
    inodes: int
    output_bytes: int
    cpu_seconds: float
    wall_seconds: float

    @classmethod
    def of_time(cls, wall_seconds: float) -> "Usage":
        """A usage that knows only the time."""
        return cls(0, 0, 0, 0, 0.0, wall_seconds)


class Meter:
    """Takes samples of one job."""

    def __init__(
        self,
        pid: int,
        uid: int | None,
        folder: Path,
        limits: Limits,
        baseline_bytes: int,
    ) -> None:
        self._pid = pid
        self._uid = uid
        self._foreign: frozenset[int] = frozenset()
        self._next_rescan = 0.0
        self._folder = JobFolder(folder)
        self._memory_limit = limits.memory_bytes
        self._disk = DiskMeter(self._folder, limits.inodes, limits.file_bytes)
        self._baseline_bytes = baseline_bytes
        self._started = time.monotonic()
        self._cpu_seen: dict[tuple[int, int], float] = {}

    def read(self) -> Usage:
        """Take one sample."""
        members = self._members()
        views = tuple(process.view for process in members if not process.ended)
        log_bytes = _size(self._folder.log)
        with nullcontext() if self._uid is None else self._insight(self._uid):
            memory = memory_bytes(views, self._memory_limit, self._baseline_bytes)
            disk = self._disk.read(views)
        return Usage(
            memory_bytes=memory,
            disk_bytes=disk.disk_bytes + log_bytes,
            inodes=disk.inodes,
            output_bytes=log_bytes,
            cpu_seconds=self._cpu_seconds(members),
            wall_seconds=time.monotonic() - self._started,
        )

    def _insight(self, uid: int) -> AbstractContextManager[None]:
        """Act as the job's user, unless this process may trace all processes."""
        return nullcontext() if may_trace() else file_user(uid)

    def _members(self) -> tuple[Process, ...]:
        """The group, and all processes of the slot's user: without seccomp, they can leave the group."""
        if time.monotonic() >= self._next_rescan:
            self._next_rescan = time.monotonic() + RESCAN_SECONDS
            self._foreign = frozenset()
        asked = processes(besides=self._foreign)
        members = tuple(process for process in asked if self._has(process))
        # the first process may not have created its group yet
        others = {process.pid for process in asked} - {process.pid for process in members} - {self._pid}
        self._foreign |= others
        return members

    def _has(self, process: Process) -> bool:
        return process.group == self._pid or (self._uid is not None and user_of(process.pid) == self._uid)

    def _cpu_seconds(self, members: tuple[Process, ...]) -> float:
        """The larger of two lower bounds.

        The sum over living processes and the children they reaped misses orphans. The sum of the last sample
        of every process misses processes that started and ended between two samples.
        """
        for process in members:
            self._cpu_seen[process.pid, process.start_ticks] = process.cpu_seconds
        living = sum(process.cpu_seconds + process.waited_cpu_seconds for process in members)
        return max(living, sum(self._cpu_seen.values()))


def memory_bytes(views: tuple[str, ...], limit: int, baseline_bytes: int) -> int:
    """The memory of several processes together.

    A cheap upper bound suffices if it is below the limit. Otherwise the kernel walks the page tables. If it
    denies that (another user's processes, without CAP_SYS_PTRACE), the upper bound of each process is reduced
    by what it shares with the zygote.

    Args:
        views: the folder in ``/proc`` of each process: see ``Process.view``.
        limit: what they may use together.
        baseline_bytes: what a fork initially shares with the zygote.
    """
    upper = tuple(map(private_bytes, views))
    if sum(upper) <= limit:
        return sum(upper)
    exact = tuple(map(proportional_bytes, views))
    return sum(
        max(bound - baseline_bytes, 0) if value is None else value
        for bound, value in zip(upper, exact, strict=True)
    )


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
