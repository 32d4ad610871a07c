"""What the sweep does in an artifact store: uploads that were cut off, old blobs, the trash."""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore

from bessemer.store.blobs.hashing import TRASH, BlobKey, Discarded, blob_at, discarded_at
from bessemer.store.blobs.moves import move
from bessemer.store.blobs.object_stores import mapped_errors

if TYPE_CHECKING:
    from obstore import ObjectMeta

LISTED_AT_ONCE = 200
INCOMING = ".incoming"
"""Where uploads lie until they are complete."""


class Housekeeping:
    """The part of ``Artifacts`` that looks at all blobs; it raises as the rest does."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

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

    def empty(self, entries: Collection[Discarded]) -> None:
        """Delete from the trash for good, with as few requests as the store takes.

        Where somebody else deletes one of them meanwhile, others may be left for the next time.
        """
        with mapped_errors(), suppress(FileNotFoundError):
            obstore.delete(self._store, [str(entry) for entry in entries])

    def _restore(self, key: BlobKey) -> None:
        """Look for a blob in the trash and put it back."""
        lying = (entry for entries in self.trash() for entry in entries)
        found = next((entry for entry in lying if entry.blob == key), None)
        if found is not None:
            self.put_back(found)

    def _is_old(self, key: str, seconds: float) -> bool:
        return obstore.head(self._store, key)["last_modified"].timestamp() <= time.time() - seconds

    def _listed(self, prefix: str | None) -> Iterator[Sequence["ObjectMeta"]]:
        with mapped_errors():
            yield from obstore.list(self._store, prefix=prefix, chunk_size=LISTED_AT_ONCE)

    def _forget(self, key: str) -> None:
        with suppress(FileNotFoundError, BaseError):
            obstore.delete(self._store, key)


def _sweep_folder(folder: Path, oldest: float) -> int:
    """A file that is only half written has a name that obstore neither lists nor deletes."""
    count = 0
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):  # an upload ended meanwhile
            if path.stat().st_mtime < oldest:
                path.unlink()
                count += 1
    return count
