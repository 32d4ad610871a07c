"""A supervisor's own part of the work folder: locked, and swept of what a crashed predecessor left."""

import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from worker.errors import WorkDirError
from worker.job.folder import remove_job_folder
from worker.supervisor.groups import GroupsFile

HOST_USERS = Path(f"/tmp/bessemer-users-{os.geteuid()}")
"""Where supervisors with different work folders agree on their ranges of users."""

USERS_PER_WORKER = 8
MAX_FOLDERS = 128

log = logging.getLogger(__name__)

_PASSABLE = 0o711
_FOREIGN_WRITE = 0o022


@dataclass(frozen=True)
class WorkDirectory:
    """One supervisor's part. ``users`` is its number on this host: no two share users for their jobs."""

    folder: Path
    users: int
    groups: GroupsFile

    @property
    def jobs(self) -> Path:
        """The parent of the jobs' folders."""
        return self.folder / "jobs"

    def slot_uid(self, base: int, slot: int) -> int | None:
        """The user of a job slot, different for every slot of every supervisor; None without root."""
        return base + self.users * USERS_PER_WORKER + slot if os.geteuid() == 0 else None


@contextmanager
def claim_work_dir(work_dir: Path) -> Iterator[WorkDirectory]:
    """Claim a part of the work folder while the context lasts.

    Kills and removes what a crashed supervisor left in it first.

    Raises:
        WorkDirError: the folder belongs to another user, or every part is taken.
    """
    with _claim(work_dir) as index, _claim(HOST_USERS) as users:
        claimed = _work_directory(work_dir / str(index), users)
        _sweep(claimed)
        yield claimed
        _clear(claimed.jobs)


def sweep_abandoned(work_dir: Path) -> int:
    """Kill and remove what crashed supervisors left in unclaimed parts of the work folder.

    Empty parts are not even locked, so that a supervisor that restarts gets its own part.

    Returns:
        The number of parts swept.
    """
    parts = [folder for folder in work_dir.iterdir() if folder.name.isdecimal()]
    return sum(_is_swept(folder) for folder in parts if any(folder.glob("jobs/*")))


def _is_swept(folder: Path) -> bool:
    try:
        return _sweep_free(folder)
    except (OSError, WorkDirError) as error:
        log.warning("cannot remove what a supervisor left in %s: %s", folder, error)
        return False


@contextmanager
def _claim(parent: Path) -> Iterator[int]:
    """Lock the first free numbered folder in ``parent``."""
    _make_passable(parent)
    index, lock = _lock_first_free(parent)
    try:
        yield index
    finally:
        os.close(lock)


def _lock_first_free(parent: Path) -> tuple[int, int]:
    for index in range(MAX_FOLDERS):
        folder = parent / str(index)
        lock = _lock(folder)
        if lock is not None:
            return index, lock
    raise WorkDirError(f"{MAX_FOLDERS} supervisors already use {parent}")


def _lock(folder: Path) -> int | None:
    """The descriptor that locks a numbered folder; None if another process has locked it."""
    _make_passable(folder)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _sweep_free(folder: Path) -> bool:
    lock = _lock(folder)
    if lock is None:
        return False
    try:
        _sweep(_work_directory(folder, 0))
    finally:
        os.close(lock)
    return True


def _work_directory(folder: Path, users: int) -> WorkDirectory:
    return WorkDirectory(folder, users, GroupsFile(folder / "groups"))


def _sweep(work_dir: WorkDirectory) -> None:
    work_dir.groups.sweep()
    _clear(work_dir.jobs)


def _make_passable(folder: Path) -> None:
    try:
        folder.mkdir(mode=_PASSABLE, parents=True, exist_ok=True)
    except OSError as error:
        raise WorkDirError(f"{folder} cannot be created: {error.strerror}") from error
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise WorkDirError(f"{folder} is not a folder of this user")
    if status.st_mode & _FOREIGN_WRITE:
        raise WorkDirError(f"{folder} is writable by other users")
    folder.chmod(_PASSABLE)


def _clear(jobs: Path) -> None:
    _make_passable(jobs)
    for left in jobs.iterdir():
        remove_job_folder(left)
