"""Measures what a job keeps on disk: files in its folder, and deleted files that it has open or mapped."""

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from worker.job.folder import JobFolder

MAX_DEPTH = 64

_BLOCK_BYTES = 512
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DELETED = b" (deleted)\n"
_DELETED_MAPPING = re.compile(rb"0*([0-9a-f]+)-0*([0-9a-f]+) \S+ \S+ \S+ (\d+) +(/.*) \(deleted\)\n")


class HostileTreeError(Exception):
    """A tree of folders that only a hostile job makes."""


@dataclass(frozen=True)
class DiskUse:
    """What a job keeps on disk. Counting stops when there are too many files."""

    disk_bytes: int
    inodes: int


class DiskMeter:
    """Takes samples of one job.

    Args:
        folder: the job's folder.
        inode_limit: where counting stops.
        file_limit: the largest size of a file. A deleted file counts as that large if its size is unknown.
    """

    def __init__(self, folder: JobFolder, inode_limit: int, file_limit: int) -> None:
        self._folder = folder
        self._inode_limit = inode_limit
        self._file_limit = file_limit
        self._sizes: dict[int, int] = {}

    def read(self, views: tuple[str, ...]) -> DiskUse:
        """Take one sample.

        A tree deeper than ``MAX_DEPTH`` or with a hidden folder is hostile and counts as too many inodes.

        Args:
            views: the folder in ``/proc`` of each of the job's processes: see ``Process.view``.
        """
        sizes: dict[int, int] = {}
        inodes = 0
        with contextlib.suppress(FileNotFoundError):
            for part in (self._folder.output, self._folder.scratch):
                try:
                    for status in _statuses(_open(part), 0):
                        inodes += 1
                        sizes[status.st_ino] = status.st_blocks * _BLOCK_BYTES
                        if inodes > self._inode_limit:
                            break
                except HostileTreeError:
                    inodes = self._inode_limit + 1
        deleted = self._deleted(views, sizes)
        self._sizes = sizes | deleted
        return DiskUse(sum(self._sizes.values()), inodes + len(deleted))

    def _deleted(self, views: tuple[str, ...], named: dict[int, int]) -> dict[int, int]:
        """The sizes of deleted files by inode."""
        device = _device(self._folder.path)
        found: dict[int, int] = {}
        for view in views:
            for status in _open_files(view):
                if status.st_nlink == 0 and status.st_dev == device and _keeps_space(status.st_mode):
                    found[status.st_ino] = status.st_blocks * _BLOCK_BYTES
        for view in views:
            for inode, exact in _mapped_files(view, self._folder.path):
                if inode not in named and inode not in found:
                    found[inode] = self._sizes.get(inode, self._file_limit) if exact is None else exact
        return found


def _open(folder: Path) -> int:
    try:
        return os.open(folder, _OPEN_FOLDER)
    except FileNotFoundError:
        raise
    except OSError as error:
        # the job replaced it with a link or a file, or made it unreadable
        raise HostileTreeError from error


def _statuses(folder: int, depth: int) -> Iterator[os.stat_result]:
    """The status of everything beneath an open folder; closes the folder and follows no links."""
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
        inner = (
            os.open(entry.name, _OPEN_FOLDER, dir_fd=folder) if entry.is_dir(follow_symlinks=False) else None
        )
    except FileNotFoundError:
        return
    except OSError as error:
        # the job replaced it just now, or made it unreadable
        raise HostileTreeError from error
    yield status
    if inner is not None:
        yield from _statuses(inner, depth + 1)


def _open_files(view: str) -> Iterator[os.stat_result]:
    try:
        descriptors = tuple(Path(f"{view}/fd").iterdir())
    except OSError:
        return
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            yield descriptor.stat()


def _keeps_space(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _mapped_files(view: str, folder: Path) -> Iterator[tuple[int, int | None]]:
    """The deleted files of a folder that a process has mapped: the inode, and the size if it can be read."""
    try:
        text = Path(f"{view}/maps").read_bytes()
    except OSError:
        return
    inside = os.fsencode(folder) + b"/"
    for line in _lines_with(_DELETED, text):
        match = _DELETED_MAPPING.fullmatch(line)
        if match is not None and match[4].startswith(inside):
            yield int(match[3]), _mapped_bytes(f"{view}/map_files/{match[1].decode()}-{match[2].decode()}")


def _lines_with(ending: bytes, text: bytes) -> Iterator[bytes]:
    """The lines with an ending; a process has thousands of others."""
    found = text.find(ending)
    while found >= 0:
        end = found + len(ending)
        yield text[text.rfind(b"\n", 0, found) + 1 : end]
        found = text.find(ending, end)


def _mapped_bytes(link: str) -> int | None:
    """The size of a mapped file; None without CAP_CHECKPOINT_RESTORE."""
    try:
        return Path(link).stat().st_blocks * _BLOCK_BYTES
    except OSError:
        return None


def _device(folder: Path) -> int:
    try:
        return folder.stat().st_dev
    except OSError:
        return -1
