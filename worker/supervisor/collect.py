"""Moves a job's files into the artifact store, and treats the job's folder as hostile input.

Runs only when every process of the job is gone: no file can be replaced between the check and the copy.
"""

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from bessemer.contract.code import CODE_INDEX, CODE_TEXTS
from bessemer.contract.graph import GRAPH, GRAPH_PICTURE
from bessemer.contract.ir import IR_INDEX, IR_TEXTS
from bessemer.contract.job import Artifact
from bessemer.store.blobs.hashing import Blob
from bessemer.store.blobs.tenant_artifacts import TenantArtifacts, taken_over
from bessemer.store.errors import TooLargeError
from worker.errors import MisbehavedError
from worker.protocol.messages import LOG_NAME, Compiled

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".ll": "text/plain; charset=utf-8",
    ".npz": "application/zip",
    ".py": "text/x-python; charset=utf-8",
    ".s": "text/plain; charset=utf-8",
    ".so": "application/x-sharedlib",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".zst": "application/zstd",
}
SNAPSHOTS = (IR_INDEX, IR_TEXTS, CODE_INDEX, CODE_TEXTS, GRAPH, GRAPH_PICTURE)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LOG_TAIL_BYTES = 16 << 10
COPY_BYTES = 1 << 20
STORED_AT_ONCE = 2
"""The bundle and the library in it are large, and storing a file hashes it."""
_LENT_MODE = 0o440


def collect(
    folder: Path,
    compiled: Compiled,
    artifacts: TenantArtifacts,
    max_bytes: int,
    stored: dict[str, Artifact],
) -> tuple[Artifact, ...]:
    """Store the files that the child named, and its log if it printed anything.

    Files that a failed job would not keep are moved into the store.

    Args:
        folder: the job's folder.
        compiled: the child's last message.
        artifacts: the blobs of the job's tenant.
        max_bytes: the limit of all files together, including holes.
        stored: the files that an earlier try has stored and moved away; this one adds its own.

    Raises:
        MisbehavedError: a name is not a plain name; a file is missing or not a regular file; or the files are
            too large.
    """
    named = [(name, folder / "output" / name) for name in compiled.files]
    files = [file for file in (*named, (LOG_NAME, folder / LOG_NAME)) if file[0] not in stored]
    for name, path in files:
        _check(name, path)
    files = [(name, path) for name, path in files if name != LOG_NAME or path.lstat().st_size]
    total_bytes = sum(path.lstat().st_size for _, path in files)
    if total_bytes > max_bytes:
        raise MisbehavedError(f"its artifacts have {total_bytes} bytes; the limit is {max_bytes}")

    def store(name: str, path: Path) -> None:
        is_kept = name in SNAPSHOTS or name == LOG_NAME
        stored[name] = _store(name, path, artifacts.put_file if is_kept else artifacts.take_file)

    with ThreadPoolExecutor(STORED_AT_ONCE) as threads:
        for stored_one in [threads.submit(store, *file) for file in files]:
            stored_one.result()
    return tuple(stored[name] for name in (*compiled.files, LOG_NAME) if name in stored)


def collect_left(folder: Path, artifacts: TenantArtifacts, max_bytes: int) -> tuple[Artifact, ...]:
    """Store the snapshots of a failed job, and its log if it printed anything.

    Files that are not regular or too large are skipped.
    """
    files = [(name, folder / "output" / name) for name in SNAPSHOTS]
    if log_tail(folder):
        files.append((LOG_NAME, folder / LOG_NAME))
    left: list[Artifact] = []
    for name, path in files:
        with suppress(MisbehavedError):
            _check(name, path)
            if path.lstat().st_size <= max_bytes:
                left.append(_store(name, path, artifacts.put_file))
    return tuple(left)


def collect_file(folder: Path, name: str, artifacts: TenantArtifacts, max_bytes: int) -> Artifact:
    """Store one file of a job's ``output`` folder.

    Raises:
        MisbehavedError: the file is missing, not a regular file, or too large.
    """
    return _store(name, _checked_path(folder, name, max_bytes), artifacts.put_file)


def store_output(folder: Path, name: str, artifacts: TenantArtifacts, max_bytes: int) -> Blob:
    """Store a file from the ``output`` folder of a running job, which may change it during the copy.

    Raises:
        MisbehavedError: the file is missing, not a regular file, or too large.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with _opened_output(folder) as output:
            file = os.fdopen(os.open(name, flags, dir_fd=output), "rb")
    except OSError as error:
        raise MisbehavedError(f"{name!r} cannot be read: {error.strerror}") from error
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise MisbehavedError(f"{name!r} is not a regular file")
        try:
            return artifacts.put_open(file, max_bytes)
        except TooLargeError as error:
            raise MisbehavedError(f"{name!r} is larger than {max_bytes} bytes") from error


def take_output(folder: Path, name: str, target: Path, max_bytes: int) -> int:
    """Move a file out of the ``output`` folder of a running job, which can no longer change it then.

    Args:
        folder: the job's folder.
        name: the file.
        target: a new path of the same file system, where no job can write.
        max_bytes: the limit of its size.

    Returns:
        Its size.

    Raises:
        MisbehavedError: the file is missing, not a regular file, or too large.
    """
    try:
        with _opened_output(folder) as output:
            os.rename(name, target, src_dir_fd=output)
    except OSError as error:
        raise MisbehavedError(f"{name!r} cannot be taken: {error.strerror}") from error
    status = target.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise MisbehavedError(f"{name!r} is not a regular file")
    if status.st_size > max_bytes:
        raise MisbehavedError(f"{name!r} has {status.st_size} bytes; the limit is {max_bytes}")
    if not taken_over(target):  # the job may still write to it
        own = target.with_name(f"own-{name}")
        shutil.copyfile(target, own)
        own.replace(target)
    return target.lstat().st_size


def copy_file(folder: Path, name: str, target: Path, max_bytes: int) -> None:
    """Copy one file of a job's ``output`` folder to a new file.

    Raises:
        MisbehavedError: the file is missing, not a regular file, unreadable or too large.
    """
    try:
        source = _checked_path(folder, name, max_bytes).open("rb")
    except PermissionError as error:
        raise MisbehavedError(f"{name!r} cannot be read") from error
    with source, target.open("xb") as copy:
        shutil.copyfileobj(source, copy, COPY_BYTES)


def read_file(folder: Path, name: str, max_bytes: int) -> bytes:
    """The content of one file of a job's ``output`` folder.

    Raises:
        MisbehavedError: the file is missing, not a regular file, unreadable or too large.
    """
    try:
        return _checked_path(folder, name, max_bytes).read_bytes()
    except PermissionError as error:
        raise MisbehavedError(f"{name!r} cannot be read") from error


@contextmanager
def lent_file(folder: Path, name: str, target: Path, gid: int, max_bytes: int) -> Iterator[None]:
    """While the context lasts, move a file of an ended job's ``output`` folder to ``target``.

    The supervisor's user owns it there, so members of ``gid`` can only read it.

    Raises:
        MisbehavedError: the file is missing, not a regular file or too large.
    """
    _checked_path(folder, name, max_bytes)
    with _opened_output(folder) as output:
        os.chown(name, os.geteuid(), gid, dir_fd=output, follow_symlinks=False)
        os.chmod(name, _LENT_MODE, dir_fd=output)
        os.rename(name, target, src_dir_fd=output)
        try:
            yield
        finally:
            os.rename(target, name, dst_dir_fd=output)


def collect_content(name: str, content: bytes, artifacts: TenantArtifacts) -> Artifact:
    """Store a file that the supervisor itself made."""
    blob = artifacts.put_bytes(content)
    return Artifact(name=name, digest=blob.digest, size_bytes=blob.size_bytes, media_type=media_type(name))


def replace_files(folder: Path, names: Sequence[str], fresh: Path) -> None:
    """Move files from the ``output`` folder of a fresh job into that of an earlier one, over files there.

    Every process of both jobs is gone.

    Raises:
        MisbehavedError: a file is missing or not a regular file, or an ``output`` folder is not one.
    """
    for name in names:
        _check(name, fresh / "output" / name)
    try:
        output = os.open(folder / "output", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise MisbehavedError("its folder of results is not a folder") from error
    try:
        for name in names:
            os.rename(fresh / "output" / name, name, dst_dir_fd=output)
    except OSError as error:
        raise MisbehavedError(f"{name!r} cannot be replaced: {error.strerror}") from error
    finally:
        os.close(output)


def size_of(folder: Path, name: str) -> int:
    """The size of a file in a job's ``output`` folder, links not followed; 0 if there is none."""
    try:
        return (folder / "output" / name).lstat().st_size
    except OSError:
        return 0


def log_tail(folder: Path, max_bytes: int = LOG_TAIL_BYTES) -> str:
    """The end of a job's log; empty if the log is no longer a regular file.

    The job may still run, and replace its log between the check and the opening.
    """
    log = folder / LOG_NAME
    try:
        _check(LOG_NAME, log)
        descriptor = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (MisbehavedError, OSError):
        return ""
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            return ""
        file.seek(max(0, status.st_size - max_bytes))
        return file.read(max_bytes).decode(errors="replace")


def media_type(name: str) -> str:
    """The media type to serve a file with."""
    return MEDIA_TYPES.get(Path(name).suffix, "application/octet-stream")


@contextmanager
def _opened_output(folder: Path) -> Iterator[int]:
    """A descriptor of a job's ``output`` folder. Raises ``OSError`` if it is missing, or a link."""
    output = os.open(folder / "output", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield output
    finally:
        os.close(output)


def _checked_path(folder: Path, name: str, max_bytes: int) -> Path:
    path = folder / "output" / name
    _check(name, path)
    size_bytes = path.lstat().st_size
    if size_bytes > max_bytes:
        raise MisbehavedError(f"{name!r} has {size_bytes} bytes; the limit is {max_bytes}")
    return path


def _store(name: str, path: Path, put: Callable[[Path], Blob]) -> Artifact:
    _check(name, path)
    try:
        blob = put(path)
    except PermissionError as error:
        raise MisbehavedError(f"{name!r} cannot be read") from error
    return Artifact(name=name, digest=blob.digest, size_bytes=blob.size_bytes, media_type=media_type(name))


def _check(name: str, path: Path) -> None:
    if not NAME.fullmatch(name):
        raise MisbehavedError(f"{name!r} is not a valid artifact name")
    if path.parent.is_symlink():
        raise MisbehavedError(f"the folder of {name!r} is a link")
    try:
        status = path.lstat()
    except OSError as error:
        raise MisbehavedError(f"{name!r} is missing") from error
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise MisbehavedError(f"{name!r} is not a regular file")
