"""Blobs by digest, in a folder or a bucket: the key is ``tenant/sha256``."""

import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.base import Digest
from bessemer.store.blobs.hashing import (
    CHUNK_BYTES,
    TRASH,
    Blob,
    BlobKey,
    Meter,
    TrashedBlob,
    blob_at,
    file_chunks,
    trashed_at,
)
from bessemer.store.blobs.object_stores import (
    PART_BYTES,
    PARTS_IN_FLIGHT,
    mapped_errors,
    move,
    open_object_store,
)
from bessemer.store.blobs.uploads import MinimumRate, run_with_chunks
from bessemer.store.errors import (
    BlobMissingError,
    DamagedError,
    DigestMismatchError,
    EmptyUploadError,
)

if TYPE_CHECKING:
    from obstore import ObjectMeta

UPLOADS_AT_ONCE = 32
LISTED_AT_ONCE = 200
INCOMING = ".incoming"
"""The folder of uploads in progress."""


class Artifacts:
    """A blob is written to a temporary key and moved when complete, so each key holds a whole blob.

    Each method raises ``StoreUnavailableError`` if the store cannot be used.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(UPLOADS_AT_ONCE, thread_name_prefix="upload")

    async def put_stream(
        self,
        chunks: AsyncIterator[bytes],
        expected: Digest | None,
        max_bytes: int,
        tenant: str = DEFAULT_TENANT,
        rate: MinimumRate | None = None,
    ) -> Blob:
        """Store an upload in constant memory, and hash it.

        Args:
            chunks: the upload; if it raises, nothing is kept.
            expected: the digest that the client named, if any.
            max_bytes: the largest upload that is accepted.
            tenant: the owner.
            rate: the minimum rate of the upload, if any.

        Raises:
            TooLargeError: it exceeds ``max_bytes``.
            EmptyUploadError: it is empty.
            DigestMismatchError: its digest is not ``expected``.
            UploadStalledError: it is slower than ``rate``.
        """

        def put(blocks: Iterator[bytes]) -> Blob:
            return self._put(Meter(max_bytes), blocks, tenant, partial(_require, expected))

        return await run_with_chunks(self._threads, chunks, put, rate)

    def put_file(self, path: Path, tenant: str = DEFAULT_TENANT) -> Blob:
        """Store a regular file, which may be empty; links are not followed.

        Raises:
            OSError: the file cannot be read, or is not a regular file.
        """
        return self._put(Meter(), file_chunks(path), tenant, lambda _: None)

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown()

    def size(self, digest: Digest, tenant: str = DEFAULT_TENANT) -> int | None:
        """A blob's size; None if it is not stored, or is in the trash."""
        with mapped_errors():
            try:
                return obstore.head(self._store, _key(digest, tenant))["size"]
            except FileNotFoundError:
                return None

    def fetch_to(self, digest: Digest, path: Path, tenant: str = DEFAULT_TENANT) -> None:
        """Write a blob to a new file and check its digest; on an error, remove the file.

        Raises:
            BlobMissingError: it is not stored.
            DamagedError: its content no longer matches its digest.
            FileExistsError: ``path`` exists.
        """
        chunks = self.stream(digest, tenant=tenant)
        with path.open("xb") as file:
            try:
                file.writelines(chunks)
            except BaseException:
                path.unlink()
                raise

    def stream(
        self, digest: Digest, start: int = 0, end: int | None = None, tenant: str = DEFAULT_TENANT
    ) -> Iterator[bytes]:
        """The bytes from ``start`` to ``end``, exclusive; ``end`` is the blob's end by default.

        Streaming the whole blob checks the digest, and raises after the last chunk if it is wrong. A blob
        that a sweep moved to the trash while a row that refers to it was written is restored.

        Raises:
            BlobMissingError: it is not stored; raised before the first chunk.
            DamagedError: its content no longer matches its digest.
            ValueError: the range lies outside the blob.
        """
        size = self.size(digest, tenant)
        if size is None:
            self._restore_if_trashed(BlobKey(tenant, digest))
            size = self.size(digest, tenant)
        if size is None:
            raise BlobMissingError(digest)
        last = size if end is None else end
        if not 0 <= start <= last <= size:
            raise ValueError(f"bytes {start} to {last} lie outside a blob of {size} bytes")
        chunks = self._range(_key(digest, tenant), start, last) if start < last else iter(())
        return _checked(digest, chunks) if (start, last) == (0, size) else chunks

    def ping(self) -> None:
        """Write and delete a small blob."""
        key = _incoming_key()
        with mapped_errors():
            obstore.put(self._store, key, b"ping")
            obstore.delete(self._store, key)

    def sweep_incoming(self, older_than_seconds: float) -> int:
        """Delete the remains of uploads whose process has died.

        Returns:
            The number of deleted uploads.
        """
        oldest = time.time() - older_than_seconds
        with mapped_errors():
            if isinstance(self._store, LocalStore):
                return _sweep_folder(Path(str(self._store.prefix)) / INCOMING, oldest)
            leftovers = [
                entry["path"]
                for entries in obstore.list(self._store, prefix=INCOMING)
                for entry in entries
                if entry["last_modified"].timestamp() < oldest
            ]
            for key in leftovers:
                self._delete(key)
        return len(leftovers)

    def blobs_older_than(self, before: float) -> Iterator[tuple[BlobKey, ...]]:
        """The blobs written before a time (seconds of the epoch), in batches."""
        for entries in self._listed(None):
            old = (entry["path"] for entry in entries if entry["last_modified"].timestamp() < before)
            yield tuple(key for key in map(blob_at, old) if key is not None)

    def trashed(self) -> Iterator[tuple[TrashedBlob, ...]]:
        """The blobs in the trash, in batches."""
        for entries in self._listed(TRASH):
            found = (trashed_at(entry["path"]) for entry in entries)
            yield tuple(entry for entry in found if entry is not None)

    def move_to_trash(self, key: BlobKey, grace_seconds: float) -> TrashedBlob | None:
        """Move a blob to the trash, unless it was written less than ``grace_seconds`` ago.

        Returns:
            The blob in the trash; None if it was not moved.
        """
        trashed = TrashedBlob(key, int(time.time()))
        with mapped_errors():
            try:
                if not self._is_old(str(key), grace_seconds):
                    return None
                move(self._store, str(key), str(trashed))
                # it may have been written again in between: moving a file keeps its time
                if isinstance(self._store, LocalStore) and not self._is_old(str(trashed), grace_seconds):
                    move(self._store, str(trashed), str(key))
                    return None
            except FileNotFoundError:
                return None
        return trashed

    def restore(self, entry: TrashedBlob) -> None:
        """Move a blob back from the trash, unless another process does."""
        with mapped_errors(), suppress(FileNotFoundError):
            move(self._store, str(entry), str(entry.blob))

    def delete_trashed(self, entries: Collection[TrashedBlob]) -> None:
        """Delete blobs in the trash, with as few requests as possible.

        If another process deletes one of them at the same time, others may remain for the next sweep.
        """
        with mapped_errors(), suppress(FileNotFoundError):
            obstore.delete(self._store, [str(entry) for entry in entries])

    def _put(
        self, meter: Meter, chunks: Iterator[bytes], tenant: str, require: Callable[[Blob], None]
    ) -> Blob:
        incoming = _incoming_key()
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
                move(self._store, incoming, _key(blob.digest, tenant))
        except BaseException:
            self._delete(incoming)
            raise
        return blob

    def _range(self, key: str, start: int, end: int) -> Iterator[bytes]:
        with mapped_errors():
            result = obstore.get(self._store, key, options={"range": (start, end)})
            for chunk in result.stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(chunk)

    def _restore_if_trashed(self, key: BlobKey) -> None:
        """Move a blob back if it is in the trash."""
        trashed = (entry for entries in self.trashed() for entry in entries)
        found = next((entry for entry in trashed if entry.blob == key), None)
        if found is not None:
            self.restore(found)

    def _is_old(self, key: str, seconds: float) -> bool:
        return obstore.head(self._store, key)["last_modified"].timestamp() <= time.time() - seconds

    def _listed(self, prefix: str | None) -> Iterator[Sequence["ObjectMeta"]]:
        with mapped_errors():
            yield from obstore.list(self._store, prefix=prefix, chunk_size=LISTED_AT_ONCE)

    def _delete(self, key: str) -> None:
        with suppress(FileNotFoundError, BaseError):
            obstore.delete(self._store, key)


def open_artifacts(url: str) -> Artifacts:
    """Open the artifact store at a URL: ``file:///folder`` (created if missing), ``s3://``, ``gs://``, ``az://``.

    Raises:
        StoreUnavailableError: the store does not exist, or the folder cannot be created.
    """
    return Artifacts(open_object_store(url))


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
        raise DamagedError(digest, actual)


def _key(digest: Digest, tenant: str) -> str:
    return f"{tenant}/{digest}"


def _incoming_key() -> str:
    return f"{INCOMING}/{uuid.uuid4().hex}"


def _sweep_folder(folder: Path, oldest: float) -> int:
    """Delete files by path: obstore neither lists nor deletes half-written ones."""
    count = 0
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):  # an upload ended in between
            if path.stat().st_mtime < oldest:
                path.unlink()
                count += 1
    return count
