"""The folder of one job: created for the slot's user, and removed even if the job tries to prevent that."""

import contextlib
import itertools
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bessemer.contract.base import Digest

_UPLOAD_MODE = 0o400
_LOG_MODE = 0o600
_PRIVATE = 0o700
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class JobFolder:
    """The paths in a job's folder."""

    path: Path

    @property
    def model(self) -> Path:
        """The upload, read-only."""
        return self.path / "model"

    def model_of_entries(self, digest: Digest) -> Path:
        """Another upload, which entries of the request name, read-only."""
        return self.path / f"model-{digest}"

    def extension(self, digest: Digest) -> Path:
        """An uploaded extension of the request, read-only."""
        return self.path / f"extension-{digest}"

    @property
    def objects(self) -> Path:
        """The folder of compiled functions from the worker's cache, which the supervisor fills."""
        return self.path / "objects"

    def object_of(self, key: Digest) -> Path:
        """An object in that folder, read-only."""
        return self.objects / key

    def functions(self, key: Digest) -> Path:
        """The text of functions whose object was not found."""
        return self.output / functions_file(key)

    @property
    def cost_model(self) -> Path:
        """The cost model that learned from the tenant's searches, read-only, if there is one."""
        return self.path / "cost-model.json"

    @property
    def inputs(self) -> Path:
        """The inputs of an invocation, read-only; other jobs have none."""
        return self.path / "inputs"

    @property
    def output(self) -> Path:
        """The job's results."""
        return self.path / "output"

    @property
    def scratch(self) -> Path:
        """The job's temporary files."""
        return self.path / "scratch"

    @property
    def log(self) -> Path:
        """The job's standard output and error."""
        return self.path / "log.txt"

    @property
    def messages(self) -> Path:
        """The FIFO of the job's messages; it exists only while the job is being started."""
        return self.path / "messages"

    @property
    def grants(self) -> Path:
        """The FIFO that grants the job its turns; it exists only while the job is being started."""
        return self.path / "grants"


def functions_file(key: Digest) -> str:
    """The name of the text of functions in a job's ``output`` folder."""
    return f"functions-{key}.json"


def make_job_folder(path: Path, uid: int | None) -> JobFolder:
    """Create the folder of a job. The caller then adds the model and calls ``seal``.

    Args:
        path: must not exist; its parent must exist, and the slot's user must be able to pass through it.
        uid: the slot's user, who will own the folder; None for the supervisor's user.

    Raises:
        FileExistsError: the folder exists.
    """
    folder = JobFolder(path)
    for made in (folder.path, folder.output, folder.scratch):
        made.mkdir(mode=_PRIVATE)
    folder.log.touch(mode=_LOG_MODE, exist_ok=False)
    for made in (folder.output, folder.scratch, folder.log, folder.path):
        _give(made, uid)
    return folder


def seal(upload: Path, uid: int | None) -> None:
    """Make a file readable, and only readable, by the slot's user."""
    upload.chmod(_UPLOAD_MODE)
    _give(upload, uid)


def remove_job_folder(path: Path) -> None:
    """Remove a job's folder, whatever the job left in it. Every process of the job must be gone.

    Links are not followed. Folders nested thousands deep are flattened first: their paths would be too long
    for any system call, and their descriptors too many to hold.
    """
    if not os.path.lexists(path):
        return
    top = os.open(path, _OPEN_FOLDER)
    try:
        _empty(top)
    finally:
        os.close(top)
    path.rmdir()


def _give(path: Path, uid: int | None) -> None:
    if uid is not None:
        os.chown(path, uid, uid, follow_symlinks=False)


def _empty(top: int) -> None:
    names = (f"{secrets.token_hex(8)}-{number}" for number in itertools.count())
    while entries := _entries(top):
        for name, is_folder in entries:
            if is_folder:
                _remove_folder(top, name, names)
            else:
                os.unlink(name, dir_fd=top)


def _remove_folder(top: int, name: str, names: Iterator[str]) -> None:
    _open_up(top, name)
    folder = os.open(name, _OPEN_FOLDER, dir_fd=top)
    try:
        for inner, is_folder in _entries(folder):
            if is_folder:
                _open_up(folder, inner)
                os.rename(inner, next(names), src_dir_fd=folder, dst_dir_fd=top)
            else:
                os.unlink(inner, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)


def _entries(folder: int) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


def _open_up(folder: int, name: str) -> None:
    # a job that runs as the supervisor's user may have created a folder that its owner cannot enter
    with contextlib.suppress(PermissionError):
        os.chmod(name, _PRIVATE, dir_fd=folder)
