"""A supervisor's own part of the work folder: claimed, swept of what a crashed predecessor left, locked."""

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
from worker.measure.turns import open_lock
from worker.supervisor.groups import GroupsFile

HOST_USERS = Path(f"/tmp/bessemer-users-{os.geteuid()}")
"""Where supervisors with different work folders agree on who takes which users."""

USERS_PER_WORKER = 8
MAX_FOLDERS = 128

log = logging.getLogger(__name__)

_PASSABLE = 0o711
_FOREIGN_WRITE = 0o022


@dataclass(frozen=True)
class WorkDirectory:
    """``users`` counts the supervisors on this host: no two give their jobs the same user."""

    folder: Path
    users: int
    groups: GroupsFile

    @property
    def jobs(self) -> Path:
        """Where the jobs' folders are made."""
        return self.folder / "jobs"

    def slot_uid(self, base: int, slot: int) -> int | None:
        """The user of a job slot: different for every slot of every supervisor; None without root."""
        return base + self.users * USERS_PER_WORKER + slot if os.geteuid() == 0 else None


@contextmanager
def claim_work_dir(work_dir: Path) -> Iterator[WorkDirectory]:
    """Claim a part of the work folder for as long as the context lasts.

    What a crashed supervisor left in it is ended and removed first.

    Raises:
        WorkDirError: the folder is another user's, or every part is taken.
    """
    with _claim(work_dir) as index, _claim(HOST_USERS) as users:
        folder = work_dir / str(index)
        place = _place(folder, users)
        _sweep(place)
        yield place
        _clear(place.jobs)


def sweep_abandoned(work_dir: Path) -> int:
    """End and remove what crashed supervisors left in those parts of the work folder that nobody holds.

    A part where nothing is left is not even locked: a supervisor that comes back finds its own.

    Returns:
        How many parts there were.
    """
    parts = [folder for folder in work_dir.iterdir() if folder.name.isdecimal()]
    return sum(_is_swept(folder) for folder in parts if any(folder.glob("jobs/*")))


def _is_swept(folder: Path) -> bool:
    try:
        return _sweep_free(folder)
    except (OSError, WorkDirError) as error:
        log.warning("what a supervisor left in %s cannot be removed: %s", folder, error)
        return False


def make_lock_file(lock: Path) -> None:
    """Make the file by which the jobs of this host measure one at a time.

    Raises:
        WorkDirError: it can neither be opened nor made.
    """
    try:
        os.close(open_lock(lock))
    except OSError as error:
        raise WorkDirError(f"{lock}, for measuring in turns, cannot be opened: {error.strerror}") from error


@contextmanager
def _claim(parent: Path) -> Iterator[int]:
    """Hold the first numbered folder in ``parent`` that nobody holds."""
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
    raise WorkDirError(f"{MAX_FOLDERS} supervisors use {parent} already")


def _lock(folder: Path) -> int | None:
    """The descriptor that holds a numbered folder; None where somebody else holds it."""
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
        _sweep(_place(folder, 0))
    finally:
        os.close(lock)
    return True


def _place(folder: Path, users: int) -> WorkDirectory:
    return WorkDirectory(folder, users, GroupsFile(folder / "groups"))


def _sweep(place: WorkDirectory) -> None:
    place.groups.sweep()
    _clear(place.jobs)


def _make_passable(folder: Path) -> None:
    try:
        folder.mkdir(mode=_PASSABLE, parents=True, exist_ok=True)
    except OSError as error:
        raise WorkDirError(f"{folder} cannot be made: {error.strerror}") from error
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise WorkDirError(f"{folder} is no folder of this user")
    if status.st_mode & _FOREIGN_WRITE:
        raise WorkDirError(f"{folder} can be written by others")
    folder.chmod(_PASSABLE)


def _clear(jobs: Path) -> None:
    _make_passable(jobs)
    for left in jobs.iterdir():
        remove_job_folder(left)
