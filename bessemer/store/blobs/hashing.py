"""Bytes on their way into the artifact store: hashed and counted as they pass."""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bessemer.contract.base import Digest
from bessemer.store.errors import TooLargeError

CHUNK_BYTES = 1 << 20
TRASH = ".trash"
_BLOB = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)/([0-9a-f]{64})")
_DISCARDED = re.compile(rf"{re.escape(TRASH)}/([0-9]+)/{_BLOB.pattern}")


@dataclass(frozen=True)
class Blob:
    """What was stored."""

    digest: Digest
    size_bytes: int


@dataclass(frozen=True)
class BlobKey:
    """Where a blob is stored."""

    tenant: str
    digest: Digest

    def __str__(self) -> str:
        return f"{self.tenant}/{self.digest}"


@dataclass(frozen=True)
class Discarded:
    """A blob in the trash, since a moment in seconds of the epoch."""

    blob: BlobKey
    discarded_at: int

    def __str__(self) -> str:
        return f"{TRASH}/{self.discarded_at}/{self.blob}"


def blob_at(path: str) -> BlobKey | None:
    """The blob that a key names; None where it names none."""
    match = _BLOB.fullmatch(path)
    return BlobKey(match[1], match[2]) if match else None


def discarded_at(path: str) -> Discarded | None:
    """The blob in the trash that a key names; None where it names none."""
    match = _DISCARDED.fullmatch(path)
    return Discarded(BlobKey(match[2], match[3]), int(match[1])) if match else None


class Meter:
    """Hashes and counts chunks, and remembers what their source raised."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        self.source_error: BaseException | None = None

    def metered(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Pass chunks on; empty ones are dropped.

        Raises:
            TooLargeError: there are more than ``max_bytes``.
        """
        try:
            for chunk in chunks:
                if self._count(chunk):
                    yield chunk
        except BaseException as error:
            self.source_error = error
            raise

    def blob(self) -> Blob:
        """What has passed."""
        return Blob(self._hash.hexdigest(), self._size_bytes)

    def _count(self, chunk: bytes) -> bool:
        self._size_bytes += len(chunk)
        if self._max_bytes is not None and self._size_bytes > self._max_bytes:
            raise TooLargeError(self._max_bytes)
        self._hash.update(chunk)
        return bool(chunk)


def file_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a regular file. What a job left is hostile: no link is followed, no pipe waited for.

    Raises:
        OSError: the file cannot be read, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file")
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
