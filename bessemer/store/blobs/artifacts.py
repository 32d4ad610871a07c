"""The artifact store, a folder or a bucket: its upkeep, and access to each tenant's blobs."""

import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import obstore
from obstore.store import LocalStore, ObjectStore

from bessemer.contract.access import Tenant
from bessemer.store.blobs.hashing import BlobKey, TrashedBlob, blob_at
from bessemer.store.blobs.object_stores import (
    INCOMING,
    delete_key,
    incoming_key,
    listed,
    mapped_errors,
    move,
    open_object_store,
)
from bessemer.store.blobs.tenant_artifacts import TenantArtifacts
from bessemer.store.blobs.trash import restore_blob, trashed_blobs
from bessemer.store.blobs.upload_parts import UploadParts
from bessemer.store.blobs.uploads import UPLOADS_AT_ONCE, UploadSlots


class Artifacts:
    """The blobs of all tenants, for the service's own upkeep. Their contents are read ``for_tenant``.

    Each method raises ``StoreUnavailableError`` if the store cannot be used.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._slots = UploadSlots()
        self._threads = ThreadPoolExecutor(UPLOADS_AT_ONCE, thread_name_prefix="upload")

    def for_tenant(self, tenant: Tenant) -> TenantArtifacts:
        """A tenant's blobs."""
        return TenantArtifacts(self._store, self._threads, self._slots, tenant)

    def parts_for_tenant(self, tenant: Tenant) -> UploadParts:
        """The parts of a tenant's unfinished uploads."""
        return UploadParts(self._store, self._threads, self._slots, tenant)

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown()

    def ping(self) -> None:
        """Write and delete a small blob."""
        key = incoming_key()
        with mapped_errors():
            obstore.put(self._store, key, b"ping")
            obstore.delete(self._store, key)

    @property
    def folder(self) -> Path | None:
        """The folder; None for a bucket."""
        return Path(str(self._store.prefix)) if isinstance(self._store, LocalStore) else None

    def sweep_incoming(self, older_than_seconds: float) -> int:
        """Delete the remains of uploads whose process has died.

        Returns:
            The number of deleted uploads.
        """
        oldest = time.time() - older_than_seconds
        with mapped_errors():
            if self.folder is not None:
                return _sweep_folder(self.folder / INCOMING, oldest)
            leftovers = [
                entry["path"]
                for entries in obstore.list(self._store, prefix=INCOMING)
                for entry in entries
                if entry["last_modified"].timestamp() < oldest
            ]
            for key in leftovers:
                delete_key(self._store, key)
        return len(leftovers)

    def blobs_older_than(self, before: float) -> Iterator[tuple[BlobKey, ...]]:
        """The blobs written before a time (seconds of the epoch), in batches."""
        for entries in listed(self._store, None):
            old = (entry["path"] for entry in entries if entry["last_modified"].timestamp() < before)
            yield tuple(key for key in map(blob_at, old) if key is not None)

    def trashed(self) -> Iterator[tuple[TrashedBlob, ...]]:
        """The blobs in the trash, in batches."""
        return trashed_blobs(self._store)

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
        restore_blob(self._store, entry)

    def delete_trashed(self, entries: Collection[TrashedBlob]) -> None:
        """Delete blobs in the trash, with as few requests as possible.

        If another process deletes one of them at the same time, others may remain for the next sweep.
        """
        with mapped_errors(), suppress(FileNotFoundError):
            obstore.delete(self._store, [str(entry) for entry in entries])

    def _is_old(self, key: str, seconds: float) -> bool:
        return obstore.head(self._store, key)["last_modified"].timestamp() <= time.time() - seconds


def open_artifacts(url: str) -> Artifacts:
    """Open the artifact store at a URL: ``file:///folder`` (created if missing), ``s3://``, ``gs://``, ``az://``.

    Raises:
        StoreUnavailableError: the store does not exist, or the folder cannot be created.
    """
    return Artifacts(open_object_store(url))


def _sweep_folder(folder: Path, oldest: float) -> int:
    """Delete files by path: obstore neither lists nor deletes half-written ones."""
    count = 0
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):  # an upload ended in between
            if path.stat().st_mtime < oldest:
                path.unlink()
                count += 1
    return count
