"""Blobs by digest, in a folder or a bucket: the key is ``tenant/sha256``."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import obstore
from obstore.store import ObjectStore

from bessemer.contract.base import DEFAULT_TENANT, Digest
from bessemer.store.blobs.hashing import CHUNK_BYTES, Blob, BlobKey, Meter, file_chunks
from bessemer.store.blobs.housekeeping import INCOMING, Housekeeping
from bessemer.store.blobs.moves import PART_BYTES, PARTS_IN_FLIGHT, move
from bessemer.store.blobs.object_stores import mapped_errors, open_object_store
from bessemer.store.blobs.uploads import Pace, run_with_chunks
from bessemer.store.errors import (
    BlobMissingError,
    DamagedError,
    DigestMismatchError,
    EmptyUploadError,
)

__all__ = ["INCOMING", "UPLOADS_AT_ONCE", "Artifacts", "open_artifacts"]

UPLOADS_AT_ONCE = 32


class Artifacts(Housekeeping):
    """Writes go to a key of their own and are moved when complete: a key holds a whole blob or nothing.

    Every method raises ``StoreUnavailableError`` where the store cannot be used.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._threads = ThreadPoolExecutor(UPLOADS_AT_ONCE, thread_name_prefix="upload")

    async def put_stream(
        self,
        chunks: AsyncIterator[bytes],
        expected: Digest | None,
        max_bytes: int,
        tenant: str = DEFAULT_TENANT,
        pace: Pace | None = None,
    ) -> Blob:
        """Store an upload in constant memory, hashing it on its way.

        Args:
            chunks: the upload; whatever it raises is raised here, and nothing is kept.
            expected: the digest that was promised, if any.
            max_bytes: the largest upload that is accepted.
            tenant: whose blob it is.
            pace: how slowly the upload may come; None: as slowly as it likes.

        Raises:
            TooLargeError: there are more than ``max_bytes``.
            EmptyUploadError: there is no byte.
            DigestMismatchError: the digest is not the one that was promised.
            UploadStalledError: it came more slowly.
        """

        def put(blocks: Iterator[bytes]) -> Blob:
            return self._put(Meter(max_bytes), blocks, tenant, partial(_require, expected))

        return await run_with_chunks(self._threads, chunks, put, pace)

    def put_file(self, path: Path, tenant: str = DEFAULT_TENANT) -> Blob:
        """Store a regular file, also an empty one; a link is not followed.

        Raises:
            OSError: the file cannot be read, or is no regular file.
        """
        return self._put(Meter(), file_chunks(path), tenant, lambda _: None)

    def close(self) -> None:
        """Let go of the threads."""
        self._threads.shutdown()

    def size(self, digest: Digest, tenant: str = DEFAULT_TENANT) -> int | None:
        """The bytes of a blob; None where it is not stored, or lies in the trash."""
        with mapped_errors():
            try:
                return obstore.head(self._store, _key(digest, tenant))["size"]
            except FileNotFoundError:
                return None

    def fetch_to(self, digest: Digest, path: Path, tenant: str = DEFAULT_TENANT) -> None:
        """Write a blob to a new file and check its digest; a file that fails is removed.

        Raises:
            BlobMissingError: it is not stored.
            DamagedError: it is no longer what its digest says.
            FileExistsError: there is a file at ``path``.
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
        """The bytes from ``start`` up to, not including, ``end`` (None: to the blob's end).

        A stream of the whole blob checks the digest, and raises after the last chunk where it is wrong. A
        blob that a sweep took while a row was written that refers to it is put back.

        Raises:
            BlobMissingError: it is not stored; raised at once, not at the first chunk.
            DamagedError: it is no longer what its digest says.
            ValueError: the range lies outside the blob.
        """
        size = self.size(digest, tenant)
        if size is None:
            self._restore(BlobKey(tenant, digest))
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
            self._forget(incoming)
            raise
        return blob

    def _range(self, key: str, start: int, end: int) -> Iterator[bytes]:
        with mapped_errors():
            result = obstore.get(self._store, key, options={"range": (start, end)})
            for chunk in result.stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(chunk)


def open_artifacts(url: str) -> Artifacts:
    """The artifact store at a URL: ``file:///folder`` (made where missing), ``s3://``, ``gs://`` or ``az://``.

    Raises:
        StoreUnavailableError: there is no such store, or the folder cannot be made.
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
