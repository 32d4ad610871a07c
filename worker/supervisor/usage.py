"""Measures what a job uses, from ``/proc`` and from its folder, and treats both as hostile."""

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from worker.job.folder import JobFolder
from worker.sandbox.kernel import file_user
from worker.supervisor.processes import (
    Process,
    may_trace,
    private_bytes,
    processes,
    proportional_bytes,
    user_of,
)

MAX_DEPTH = 64
RESCAN_SECONDS = 1.0
"""How long to skip processes that are not part of the job: none joins another session, but ids recur."""

_BLOCK_BYTES = 512
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Usage:
    """One sample of what a job uses.

    Attributes:
        memory_bytes: anonymous and shared memory of all its processes; an upper bound while that is below the
            limit.
        disk_bytes: blocks of the files in its folder, and of deleted files that it still has open.
        inodes: files and folders in its folder.
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


class HostileTreeError(Exception):
    """A tree of folders that only a hostile job makes."""


@dataclass(frozen=True)
class FolderUse:
    """The contents of a folder. Counting stops when there are too many files."""

    disk_bytes: int
    inodes: int


class Meter:
    """Takes samples of one job."""

    def __init__(
        self,
        pid: int,
        uid: int | None,
        folder: Path,
        memory_limit: int,
        inode_limit: int,
        baseline_bytes: int,
    ) -> None:
        self._pid = pid
        self._uid = uid
        self._foreign: frozenset[int] = frozenset()
        self._next_rescan = 0.0
        self._folder = JobFolder(folder)
        self._memory_limit = memory_limit
        self._inode_limit = inode_limit
        self._baseline_bytes = baseline_bytes
        self._started = time.monotonic()
        self._cpu_seen: dict[tuple[int, int], float] = {}

    def read(self) -> Usage:
        """Take one sample."""
        members = self._members()
        pids = tuple(process.pid for process in members if not process.zombie)
        in_folder = self._folder_use()
        log_bytes = _size(self._folder.log)
        with nullcontext() if self._uid is None else self._insight(self._uid):
            memory = memory_bytes(pids, self._memory_limit, self._baseline_bytes)
            deleted = deleted_bytes(pids, self._folder.path)
        return Usage(
            memory_bytes=memory,
            disk_bytes=in_folder.disk_bytes + deleted + log_bytes,
            inodes=in_folder.inodes,
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

    def _folder_use(self) -> FolderUse:
        """What the job wrote, without the upload."""
        parts = [folder_use(part, self._inode_limit) for part in (self._folder.output, self._folder.scratch)]
        return FolderUse(sum(part.disk_bytes for part in parts), sum(part.inodes for part in parts))

    def _cpu_seconds(self, members: tuple[Process, ...]) -> float:
        """The larger of two lower bounds.

        The sum over living processes and the children they reaped misses orphans. The sum of the last sample
        of every process misses processes that started and ended between two samples.
        """
        for process in members:
            self._cpu_seen[process.pid, process.start_ticks] = process.cpu_seconds
        living = sum(process.cpu_seconds + process.waited_cpu_seconds for process in members)
        return max(living, sum(self._cpu_seen.values()))


def memory_bytes(pids: tuple[int, ...], limit: int, baseline_bytes: int) -> int:
    """The memory of several processes together.

    A cheap upper bound suffices if it is below the limit. Otherwise the kernel walks the page tables. If it
    denies that (another user's processes, without CAP_SYS_PTRACE), the upper bound of each process is reduced
    by what it shares with the zygote.

    Args:
        pids: the processes.
        limit: what they may use together.
        baseline_bytes: what a fork initially shares with the zygote.
    """
    upper = tuple(map(private_bytes, pids))
    if sum(upper) <= limit:
        return sum(upper)
    exact = tuple(map(proportional_bytes, pids))
    return sum(
        max(bound - baseline_bytes, 0) if value is None else value
        for bound, value in zip(upper, exact, strict=True)
    )


def folder_use(folder: Path, inode_limit: int) -> FolderUse:
    """Count the contents of a folder without following links.

    A tree deeper than ``MAX_DEPTH`` or with a hidden folder is hostile and counts as too many inodes.
    """
    disk = inodes = 0
    try:
        for status in _statuses(_open(folder), 0):
            inodes += 1
            disk += status.st_blocks * _BLOCK_BYTES
            if inodes > inode_limit:
                break
    except FileNotFoundError:
        return FolderUse(disk, inodes)
    except HostileTreeError:
        return FolderUse(disk, inode_limit + 1)
    return FolderUse(disk, inodes)


def _open(folder: Path) -> int:
    try:
        return os.open(folder, _OPEN_FOLDER)
    except FileNotFoundError:
        raise
    except OSError as error:
        # the job replaced it with a link or a file, or made it unreadable
        raise HostileTreeError from error


def deleted_bytes(pids: tuple[int, ...], folder: Path) -> int:
    """Blocks of deleted files on the folder's device that a process still has open."""
    device = _device(folder)
    found: dict[int, int] = {}
    for pid in pids:
        for status in _open_files(pid):
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 0 and status.st_dev == device:
                found[status.st_ino] = status.st_blocks * _BLOCK_BYTES
    return sum(found.values())


def _statuses(folder: int, depth: int) -> Iterator[os.stat_result]:
    """The status of everything beneath an open folder; closes the folder."""
    try:
        if depth > MAX_DEPTH:
            raise HostileTreeError
        with os.scandir(folder) as entries:
            for entry in entries:
                yield from _entry_statuses(entry, folder, depth)
    finally:
        os.close(folder)


def _entry_statuses(entry: os.DirEntry[str], folder: int, depth: int) -> Iterator[os.stat_result]:
    try:
        status = entry.stat(follow_symlinks=False)
        inner = os.open(entry.name, _OPEN_FOLDER, dir_fd=folder) if stat.S_ISDIR(status.st_mode) else None
    except FileNotFoundError:
        return
    except OSError as error:
        # the job replaced it just now, or made it unreadable
        raise HostileTreeError from error
    yield status
    if inner is not None:
        yield from _statuses(inner, depth + 1)


def _open_files(pid: int) -> Iterator[os.stat_result]:
    try:
        descriptors = tuple(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            yield descriptor.stat()


def _device(folder: Path) -> int:
    try:
        return folder.stat().st_dev
    except OSError:
        return -1


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
