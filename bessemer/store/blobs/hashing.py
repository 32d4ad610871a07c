"""Blobs, their keys, and hashing them while they are read."""

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
_TRASHED = re.compile(rf"{re.escape(TRASH)}/([0-9]+)/{_BLOB.pattern}")


@dataclass(frozen=True)
class Blob:
    """A stored blob."""

    digest: Digest
    size_bytes: int


@dataclass(frozen=True)
class BlobKey:
    """The key of a blob."""

    tenant: str
    digest: Digest

    def __str__(self) -> str:
        return f"{self.tenant}/{self.digest}"


@dataclass(frozen=True)
class TrashedBlob:
    """A blob in the trash, and since when, in seconds of the epoch."""

    blob: BlobKey
    trashed_at: int

    def __str__(self) -> str:
        return f"{TRASH}/{self.trashed_at}/{self.blob}"


def blob_at(path: str) -> BlobKey | None:
    """The blob at a key; None if the key has another form."""
    match = _BLOB.fullmatch(path)
    return BlobKey(match[1], match[2]) if match else None


def trashed_at(path: str) -> TrashedBlob | None:
    """The blob in the trash at a key; None if the key has another form."""
    match = _TRASHED.fullmatch(path)
    return TrashedBlob(BlobKey(match[2], match[3]), int(match[1])) if match else None


class Meter:
    """Hashes and counts chunks, and keeps the error that their source raised."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        self.source_error: BaseException | None = None

    def metered(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Pass chunks on, without empty ones.

        Raises:
            TooLargeError: they exceed ``max_bytes``.
        """
        try:
            for chunk in chunks:
                if self._count(chunk):
                    yield chunk
        except BaseException as error:
            self.source_error = error
            raise

    def blob(self) -> Blob:
        """The blob of all chunks so far."""
        return Blob(self._hash.hexdigest(), self._size_bytes)

    def _count(self, chunk: bytes) -> bool:
        self._size_bytes += len(chunk)
        if self._max_bytes is not None and self._size_bytes > self._max_bytes:
            raise TooLargeError(self._max_bytes)
        self._hash.update(chunk)
        return bool(chunk)


def file_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a regular file. A job's files are hostile: this follows no link and waits for no pipe.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
