"""Mark and sweep over the artifact store: what no row refers to goes to the trash, and later for good.

A blob is written before the row that refers to it, so a blob is left alone for a grace period after it was
written, and kept in the trash for another. What turns out to be referred to after all, because a writer came
between the look at the rows and the move, is put back, by the sweep or by whoever reads it first: its name is
its content's digest, so what is put back is what was there.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from bessemer.contract.base import Digest
from bessemer.store.blobs.artifacts import Artifacts
from bessemer.store.database import Database
from bessemer.store.rows.tables import INVOCATIONS, JOB_BLOBS, MODELS


@dataclass(frozen=True)
class Swept:
    """What a sweep did."""

    discarded: int = 0
    restored: int = 0
    deleted: int = 0


def sweep_blobs(
    database: Database, artifacts: Artifacts, grace_seconds: float, trash_seconds: float
) -> Swept:
    """Move unreferenced blobs to the trash, put back what is referred to, delete what has lain long enough.

    Several at once do no harm.

    Args:
        database: whose rows refer to blobs.
        artifacts: where the blobs are.
        grace_seconds: younger blobs are left alone: longer than any writer takes from blob to row.
        trash_seconds: how long blobs lie in the trash: as long, for writers of what was there before.

    Raises:
        StoreUnavailableError: the database or the artifact store cannot be used.
    """
    restored, deleted = _empty_trash(database, artifacts, trash_seconds)
    discarded = 0
    for keys in artifacts.blobs_before(time.time() - grace_seconds):
        known = referenced(database, {key.digest for key in keys})
        taken = [artifacts.discard(key, grace_seconds) for key in keys if key.digest not in known]
        moved = [entry for entry in taken if entry is not None]
        known = referenced(database, {entry.blob.digest for entry in moved})
        back = [entry for entry in moved if entry.blob.digest in known]
        for entry in back:
            artifacts.put_back(entry)
        discarded += len(moved) - len(back)
    return Swept(discarded, restored, deleted)


def referenced(database: Database, digests: Collection[Digest]) -> frozenset[Digest]:
    """Those of the digests that a model, a job or an invocation refers to."""
    if not digests:
        return frozenset()
    columns = (MODELS.c.digest, JOB_BLOBS.c.digest, INVOCATIONS.c.inputs, INVOCATIONS.c.outputs_digest)
    query = sa.union(*(sa.select(column).where(column.in_(digests)) for column in columns))
    with database.read() as connection:
        return frozenset(connection.execute(query).scalars())


def _empty_trash(database: Database, artifacts: Artifacts, trash_seconds: float) -> tuple[int, int]:
    before = time.time() - trash_seconds
    restored = deleted = 0
    for entries in artifacts.trash():
        known = referenced(database, {entry.blob.digest for entry in entries})
        wanted = [entry for entry in entries if entry.blob.digest in known]
        rest = [entry for entry in entries if entry.blob.digest not in known]
        for entry in wanted:
            artifacts.put_back(entry)
        old = [entry for entry in rest if entry.discarded_at <= before]
        artifacts.empty(old)
        restored, deleted = restored + len(wanted), deleted + len(old)
    return restored, deleted
