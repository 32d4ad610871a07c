"""Blobs by digest, in a folder or a bucket: the key is ``tenant/sha256``."""

import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from bessemer.contract.base import DEFAULT_TENANT, Digest
from bessemer.store.blobs import (
    CHUNK_BYTES,
    TRASH,
    Blob,
    BlobKey,
    Discarded,
    Meter,
    blob_at,
    discarded_at,
    file_chunks,
)
from bessemer.store.errors import (
    BlobMissingError,
    DamagedError,
    DigestMismatchError,
    EmptyUploadError,
    StoreUnavailableError,
)
from bessemer.store.moves import PART_BYTES, PARTS_IN_FLIGHT, move
from bessemer.store.uploads import run_with_chunks

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, RetryConfig

UPLOADS_AT_ONCE = 32
LISTED_AT_ONCE = 200
INCOMING = ".incoming"
_RETRIES: "RetryConfig" = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}


class Artifacts:
    """Writes go to a key of their own and are moved when complete: a key holds a whole blob or nothing.

    Every method raises ``StoreUnavailableError`` where the store cannot be used.
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
        idle_seconds: float | None = None,
    ) -> Blob:
        """Store an upload in constant memory, hashing it on its way.

        Args:
            chunks: the upload; whatever it raises is raised here, and nothing is kept.
            expected: the digest that was promised, if any.
            max_bytes: the largest upload that is accepted.
            tenant: whose blob it is.
            idle_seconds: how long the next chunk may take to come, so that uploads that stand still do not
                keep others waiting; None for ever.

        Raises:
            TooLargeError: there are more than ``max_bytes``.
            EmptyUploadError: there is no byte.
            DigestMismatchError: the digest is not the one that was promised.
            UploadStalledError: a chunk took longer than ``idle_seconds`` to come.
        """

        def put(blocks: Iterator[bytes]) -> Blob:
            return self._put(Meter(max_bytes), blocks, tenant, partial(_require, expected))

        return await run_with_chunks(self._threads, chunks, put, idle_seconds)

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

    def sweep_incoming(self, older_than_seconds: float) -> int:
        """Delete what is left of uploads that a process did not live to end.

        Returns:
            How many there were.
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
                self._forget(key)
        return len(leftovers)

    def blobs_before(self, moment: float) -> Iterator[tuple[BlobKey, ...]]:
        """The blobs that were written before a moment (seconds of the epoch), some at a time."""
        for entries in self._listed(None):
            old = (entry["path"] for entry in entries if entry["last_modified"].timestamp() < moment)
            yield tuple(key for key in map(blob_at, old) if key is not None)

    def trash(self) -> Iterator[tuple[Discarded, ...]]:
        """What lies in the trash, some at a time."""
        for entries in self._listed(TRASH):
            found = (discarded_at(entry["path"]) for entry in entries)
            yield tuple(entry for entry in found if entry is not None)

    def discard(self, key: BlobKey, grace_seconds: float) -> Discarded | None:
        """Move a blob to the trash, unless it was written less than ``grace_seconds`` ago.

        Returns:
            Where it lies; None where it was not moved.
        """
        place = Discarded(key, int(time.time()))
        with mapped_errors():
            try:
                if not self._is_old(str(key), grace_seconds):
                    return None
                move(self._store, str(key), str(place))
                # a writer may have come between: a folder's files keep their time when they are moved
                if isinstance(self._store, LocalStore) and not self._is_old(str(place), grace_seconds):
                    move(self._store, str(place), str(key))
                    return None
            except FileNotFoundError:
                return None
        return place

    def put_back(self, entry: Discarded) -> None:
        """Put a blob back that lies in the trash, unless somebody else does."""
        with mapped_errors(), suppress(FileNotFoundError):
            move(self._store, str(entry), str(entry.blob))

    def empty(self, entry: Discarded) -> None:
        """Delete from the trash for good."""
        with mapped_errors(), suppress(FileNotFoundError):
            obstore.delete(self._store, str(entry))

    def _restore(self, key: BlobKey) -> None:
        """Look for a blob in the whole of the trash and put it back."""
        found = [entry for entries in self.trash() for entry in entries if entry.blob == key]
        for entry in found:
            self.put_back(entry)

    def _is_old(self, key: str, seconds: float) -> bool:
        return obstore.head(self._store, key)["last_modified"].timestamp() <= time.time() - seconds

    def _listed(self, prefix: str | None) -> Iterator[Sequence["ObjectMeta"]]:
        with mapped_errors():
            yield from obstore.list(self._store, prefix=prefix, chunk_size=LISTED_AT_ONCE)

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

    def _forget(self, key: str) -> None:
        with suppress(FileNotFoundError, BaseError):
            obstore.delete(self._store, key)


def open_artifacts(url: str) -> Artifacts:
    """The artifact store at a URL: ``file:///folder`` (made where missing), ``s3://``, ``gs://`` or ``az://``.

    Raises:
        StoreUnavailableError: there is no such store, or the folder cannot be made.
    """
    with mapped_errors():
        if url.startswith("file://"):
            return Artifacts(LocalStore.from_url(url, mkdir=True))
        return Artifacts(from_url(url, client_options=_client_options(), retry_config=_RETRIES))


def _client_options() -> "ClientConfig":
    """A bucket's answer may be as large as a model, and as slow as the client it is for, but not stand still.

    Options that are given replace all that the environment has.
    """
    return {
        "timeout": timedelta(days=1),
        "read_timeout": timedelta(minutes=1),
        "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "on", "true", "y", "yes"),
    }


@contextmanager
def mapped_errors(meter: Meter | None = None) -> Iterator[None]:
    """Turn obstore's exceptions into the store's, but let pass what the metered source raised."""
    try:
        yield
    except (BaseError, OSError) as error:
        if meter is not None and meter.source_error is error:
            raise
        said, _, _ = str(error).partition("\n\nDebug source:")
        raise StoreUnavailableError(f"the artifact store cannot be used: {said}") from error


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


def _sweep_folder(folder: Path, oldest: float) -> int:
    """A file that is only half written has a name that obstore neither lists nor deletes."""
    count = 0
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):  # an upload ended meanwhile
            if path.stat().st_mtime < oldest:
                path.unlink()
                count += 1
    return count


def _incoming_key() -> str:
    return f"{INCOMING}/{uuid.uuid4().hex}"
