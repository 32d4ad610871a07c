"""The trash: blobs that no row refers to, until they are deleted or restored."""

from collections.abc import Iterator
from contextlib import suppress

from obstore.store import ObjectStore

from bessemer.store.blobs.hashing import TRASH, TrashedBlob, trashed_at
from bessemer.store.blobs.object_stores import listed, mapped_errors, move


def trashed_blobs(store: ObjectStore) -> Iterator[tuple[TrashedBlob, ...]]:
    """The blobs in the trash, in batches."""
    for entries in listed(store, TRASH):
        found = (trashed_at(entry["path"]) for entry in entries)
        yield tuple(entry for entry in found if entry is not None)


def restore_blob(store: ObjectStore, entry: TrashedBlob) -> None:
    """Move a blob back from the trash, unless another process does."""
    with mapped_errors(), suppress(FileNotFoundError):
        move(store, str(entry), str(entry.blob))
