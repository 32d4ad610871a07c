"""A tenant's blobs by digest: the key is ``tenant/sha256``."""

import fcntl
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO

import obstore
from obstore.store import LocalStore, ObjectStore

from bessemer.contract.access import Tenant
from bessemer.contract.base import Digest
from bessemer.store.blobs.hashing import CHUNK_BYTES, Blob, BlobKey, Meter, file_chunks
from bessemer.store.blobs.object_stores import (
    PART_BYTES,
    PARTS_IN_FLIGHT,
    delete_key,
    incoming_key,
    mapped_errors,
    move,
)
from bessemer.store.blobs.trash import restore_blob, trashed_blobs
from bessemer.store.blobs.uploads import MinimumRate, UploadSlots, run_with_chunks
from bessemer.store.errors import BlobMissingError, DamagedError, DigestMismatchError, EmptyUploadError

_BLOB_MODE = 0o644


class TenantArtifacts:
    """The blobs of one tenant. Equal files of two tenants are two blobs.

    A blob is written to a temporary key and moved when complete, so each key holds a whole blob. Each method
    raises ``StoreUnavailableError`` if the store cannot be used.
    """

    def __init__(
        self, store: ObjectStore, threads: ThreadPoolExecutor, slots: UploadSlots, tenant: Tenant
    ) -> None:
        self._store = store
        self._threads = threads
        self._slots = slots
        self._tenant = tenant

    @property
    def uploads(self) -> int:
        """How many large uploads the tenant has in progress in this process."""
        return self._slots.count(self._tenant)

    async def put_stream(
        self,
        chunks: AsyncIterator[bytes],
        expected: Digest | None,
        max_bytes: int,
        rate: MinimumRate | None = None,
        most_at_once: int | None = None,
    ) -> Blob:
        """Store an upload in constant memory, and hash it.

        Args:
            chunks: the upload; if it raises, nothing is kept.
            expected: the digest that the client named, if any.
            max_bytes: the largest upload that is accepted.
            rate: the minimum rate of the upload, if any.
            most_at_once: how many large uploads the tenant may have in progress.

        Raises:
            TooManyUploadsError: the tenant has more large uploads in progress.
            TooLargeError: it exceeds ``max_bytes``.
            EmptyUploadError: it is empty.
            DigestMismatchError: its digest is not ``expected``.
            UploadStalledError: it is slower than ``rate``.
        """

        def put(blocks: Iterator[bytes]) -> Blob:
            return self._put(Meter(max_bytes), blocks, partial(_require, expected))

        slot = self._slots.taken(self._tenant, most_at_once)
        return await run_with_chunks(self._threads, chunks, put, rate, slot)

    def put_file(self, path: Path) -> Blob:
        """Store a regular file, which may be empty; links are not followed.

        Raises:
            OSError: the file cannot be read, or is not a regular file.
        """
        return self._put(Meter(), file_chunks(path), lambda _: None)

    def put_open(self, file: BinaryIO, max_bytes: int) -> Blob:
        """Store the rest of an open file. Another process may change it during the copy.

        Raises:
            TooLargeError: it exceeds ``max_bytes``.
        """
        return self._put(Meter(max_bytes), iter(partial(file.read, CHUNK_BYTES), b""), lambda _: None)

    def take_file(self, path: Path) -> Blob:
        """Store a regular file; move it if the store is a folder beside it and no process may write to it.

        Raises:
            OSError: the file cannot be read, or is not a regular file.
        """
        if not isinstance(self._store, LocalStore):
            return self.put_file(path)
        incoming = incoming_key()
        moved = Path(str(self._store.prefix)) / incoming
        if not _moved(path, moved):
            return self.put_file(path)
        try:
            blob = self._kept(moved, incoming) if taken_over(moved) else None
        except BaseException:
            moved.rename(path)
            raise
        if blob is None:
            moved.rename(path)
            return self.put_file(path)
        return blob

    def _kept(self, moved: Path, incoming: str) -> Blob:
        meter = Meter()
        for _ in meter.metered(file_chunks(moved)):
            pass
        blob = meter.blob()
        with mapped_errors():
            move(self._store, incoming, self._key(blob.digest))
        return blob

    def put_bytes(self, content: bytes) -> Blob:
        """Store a small file."""
        return self._put(Meter(), iter((content,)), lambda _: None)

    def size(self, digest: Digest) -> int | None:
        """A blob's size; None if it is not stored, or is in the trash."""
        with mapped_errors():
            try:
                return obstore.head(self._store, self._key(digest))["size"]
            except FileNotFoundError:
                return None

    def fetch_to(self, digest: Digest, path: Path) -> None:
        """Write a blob to a new file and check its digest; on an error, remove the file.

        Raises:
            BlobMissingError: it is not stored.
            DamagedError: its content no longer matches its digest.
            FileExistsError: ``path`` exists.
        """
        chunks = self.stream(digest)
        with path.open("xb") as file:
            try:
                file.writelines(chunks)
            except BaseException:
                path.unlink()
                raise

    def stream(self, digest: Digest, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from ``start`` to ``end``, exclusive; ``end`` is the blob's end by default.

        Streaming the whole blob checks the digest, and raises after the last chunk if it is wrong. A blob
        that a sweep moved to the trash while a row that refers to it was written is restored.

        Raises:
            BlobMissingError: it is not stored; raised before the first chunk.
            DamagedError: its content no longer matches its digest, or it ends before the range does.
            ValueError: no blob has this range.
        """
        size = self.size(digest)
        if size is None:
            self._restore_if_trashed(BlobKey(self._tenant, digest))
            size = self.size(digest)
        if size is None:
            raise BlobMissingError(digest)
        last = size if end is None else end
        if not 0 <= start <= last:
            raise ValueError(f"no blob has bytes {start} to {last}")
        if last > size:
            raise DamagedError(digest, f"it has {size} bytes, but bytes {start} to {last} were asked for")
        chunks = self._range(digest, start, last) if start < last else iter(())
        return _checked(digest, chunks) if (start, last) == (0, size) else chunks

    def _put(self, meter: Meter, chunks: Iterator[bytes], require: Callable[[Blob], None]) -> Blob:
        incoming = incoming_key()
        try:
            with mapped_errors(meter):
                obstore.put(
                    self._store,
                    incoming,
                    meter.metered(chunks),
                    chunk_size=PART_BYTES,
                    max_concurrency=PARTS_IN_FLIGHT,
                )
            blob = meter.blob()
            require(blob)
            with mapped_errors():
                move(self._store, incoming, self._key(blob.digest))
        except BaseException:
            delete_key(self._store, incoming)
            raise
        return blob

    def _range(self, digest: Digest, start: int, end: int) -> Iterator[bytes]:
        with mapped_errors():
            try:
                yield from self._chunks(self._key(digest), start, end)
            except FileNotFoundError as error:  # deleted since its size was read
                raise BlobMissingError(digest) from error

    def _chunks(self, key: str, start: int, end: int) -> Iterator[bytes]:
        if isinstance(self._store, LocalStore):
            yield from _read_range(Path(str(self._store.prefix)) / key, start, end)
            return
        result = obstore.get(self._store, key, options={"range": (start, end)})
        for chunk in result.stream(min_chunk_size=CHUNK_BYTES):
            yield bytes(chunk)

    def _restore_if_trashed(self, key: BlobKey) -> None:
        """Move a blob back if it is in the trash."""
        trashed = (entry for entries in trashed_blobs(self._store) for entry in entries)
        found = next((entry for entry in trashed if entry.blob == key), None)
        if found is not None:
            restore_blob(self._store, found)

    def _key(self, digest: Digest) -> str:
        return str(BlobKey(self._tenant, digest))


def _read_range(path: Path, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a file from ``start`` to ``end``; obstore takes four times the processor time."""
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while start < end and (chunk := file.read(min(CHUNK_BYTES, end - start))):
            start += len(chunk)
            yield chunk


def _moved(path: Path, moved: Path) -> bool:
    """Whether a file could be moved within its file system."""
    try:
        moved.parent.mkdir(parents=True, exist_ok=True)
        path.rename(moved)
    except OSError:
        return False
    return True


def taken_over(path: Path) -> bool:
    """Make a file a new one of this process; False if it is not regular, or a process may still write to it.

    The kernel grants a lease for reading only if no descriptor is open for writing.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        os.fchown(descriptor, os.geteuid(), os.getegid())
        os.fchmod(descriptor, _BLOB_MODE)
        os.utime(descriptor)  # a sweep spares new blobs
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _require(expected: Digest | None, blob: Blob) -> None:
    if blob.size_bytes == 0:
        raise EmptyUploadError
    if expected is not None and blob.digest != expected:
        raise DigestMismatchError(expected, blob.digest)


def _checked(digest: Digest, chunks: Iterator[bytes]) -> Iterator[bytes]:
    meter = Meter()
    yield from meter.metered(chunks)
    actual = meter.blob().digest
    if actual != digest:
        raise DamagedError(digest, f"its digest is {actual}")
