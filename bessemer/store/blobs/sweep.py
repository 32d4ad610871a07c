"""Mark and sweep over the artifact store: unreferenced blobs go to the trash, and are deleted later.

A blob is written before the row that refers to it. So a blob stays for a grace period after it was written,
and in the trash for another. If a row refers to a blob in the trash, because it was written between the query
and the move, the sweep or the first reader restores the blob. Its key is its digest, so its content cannot
differ.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from bessemer.store.blobs.artifacts import Artifacts
from bessemer.store.blobs.hashing import BlobKey
from bessemer.store.database import Database
from bessemer.store.rows.tables import EXTENSIONS, INVOCATIONS, JOB_BLOBS, MODELS


@dataclass(frozen=True)
class SweepResult:
    """The number of blobs moved to the trash, restored and deleted."""

    trashed: int = 0
    restored: int = 0
    deleted: int = 0


def sweep_blobs(
    database: Database, artifacts: Artifacts, grace_seconds: float, trash_seconds: float
) -> SweepResult:
    """Move unreferenced blobs to the trash, restore referenced ones, delete old ones. Sweeps may overlap.

    Args:
        database: the database of the rows.
        artifacts: the store of the blobs.
        grace_seconds: younger blobs stay. It exceeds the time that any writer takes from blob to row.
        trash_seconds: how long blobs stay in the trash. It exceeds that time too, because a writer may have
            found the blob stored.

    Raises:
        StoreUnavailableError: the database or the artifact store cannot be used.
    """
    restored, deleted = _empty_trash(database, artifacts, trash_seconds)
    trashed = 0
    for keys in artifacts.blobs_older_than(time.time() - grace_seconds):
        known = referenced(database, keys)
        taken = [artifacts.move_to_trash(key, grace_seconds) for key in keys if key not in known]
        moved = [entry for entry in taken if entry is not None]
        known = referenced(database, [entry.blob for entry in moved])
        back = [entry for entry in moved if entry.blob in known]
        for entry in back:
            artifacts.restore(entry)
        trashed += len(moved) - len(back)
    return SweepResult(trashed, restored, deleted)


def referenced(database: Database, keys: Collection[BlobKey]) -> frozenset[BlobKey]:
    """The blobs that a model, an extension, a job or an invocation of their tenant refers to."""
    digests = {key.digest for key in keys}
    if not digests:
        return frozenset()
    columns = (
        MODELS.c.digest,
        EXTENSIONS.c.digest,
        JOB_BLOBS.c.digest,
        INVOCATIONS.c.inputs,
        INVOCATIONS.c.outputs_digest,
    )
    query = sa.union(
        *(sa.select(column.table.c.tenant, column).where(column.in_(digests)) for column in columns)
    )
    with database.read() as connection:
        return frozenset(BlobKey(*row) for row in connection.execute(query)) & frozenset(keys)


def _empty_trash(database: Database, artifacts: Artifacts, trash_seconds: float) -> tuple[int, int]:
    before = time.time() - trash_seconds
    restored = deleted = 0
    for entries in artifacts.trashed():
        known = referenced(database, [entry.blob for entry in entries])
        wanted = [entry for entry in entries if entry.blob in known]
        rest = [entry for entry in entries if entry.blob not in known]
        for entry in wanted:
            artifacts.restore(entry)
        old = [entry for entry in rest if entry.trashed_at <= before]
        artifacts.delete_trashed(old)
        restored, deleted = restored + len(wanted), deleted + len(old)
    return restored, deleted
