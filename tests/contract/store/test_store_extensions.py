"""Uploaded extensions: names, retention, and what refers to their files."""

from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from store_samples import a_request

from bessemer.contract.base import now
from bessemer.contract.options import TuneOptions
from bessemer.store.blobs.sweep import sweep_blobs
from bessemer.store.errors import ExtensionInUseError
from bessemer.store.rows.tables import EXTENSIONS
from bessemer.store.rows.totals import StoredFiles, StoredKind
from bessemer.store.store import Store
from tests.tenant_data import own

DIGEST = "d" * 64
JOB = "job-00000001"
HOUR, LONG_AGO = 3600.0, 7200.0


def move_back(store: Store) -> None:
    with store.database.write() as connection:
        connection.execute(sa.update(EXTENSIONS).values(used_at=now() - timedelta(seconds=LONG_AGO)))


def test_an_extension_keeps_the_first_name_that_an_upload_gave(store: Store) -> None:
    extensions = own(store).extensions
    assert extensions.add(DIGEST, 7).name is None
    assert extensions.add(DIGEST, 7, "mine.py").name == "mine.py"
    assert extensions.add(DIGEST, 7, "other.py").name == "mine.py"
    assert [each.digest for each in extensions.page(9).items] == [DIGEST]
    assert extensions.starting("dddd", 3) == (DIGEST,)


@pytest.mark.parametrize(
    "needing",
    [{"extensions": (DIGEST,)}, {"tune": TuneOptions(trials=1, records=(DIGEST,))}],
    ids=["extensions", "records"],
)
def test_an_extension_is_kept_while_a_job_that_has_not_ended_needs_it(
    store: Store, needing: dict[str, object]
) -> None:
    own(store).extensions.add(DIGEST, 7)
    own(store).jobs.submit(JOB, a_request().model_copy(update=needing))
    with pytest.raises(ExtensionInUseError, match=f"need extension {DIGEST}: {JOB}"):
        own(store).extensions.delete(DIGEST)
    move_back(store)
    assert store.removal.expire_uploads(HOUR) == 0
    own(store).jobs.request_cancel(JOB)
    assert own(store).extensions.delete(DIGEST)
    assert not own(store).extensions.delete(DIGEST)


def test_an_extension_expires_like_a_model(store: Store) -> None:
    own(store).extensions.add(DIGEST, 7)
    move_back(store)
    assert own(store).extensions.touch(DIGEST)
    assert store.removal.expire_uploads(HOUR) == 0
    move_back(store)
    assert (store.removal.expire_uploads(HOUR), own(store).extensions.get(DIGEST)) == (1, None)


def test_the_file_of_an_extension_counts_and_stays(store: Store, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("REWRITES = ()")
    blob = own(store).artifacts.put_file(tmp_path / "mine.py")
    own(store).extensions.add(blob.digest, blob.size_bytes)
    assert own(store).usage.stored_bytes() == blob.size_bytes
    assert store.statistics(HOUR).stored[StoredKind.EXTENSION] == StoredFiles(1, blob.size_bytes)
    sweep_blobs(store.database, store.artifacts, -1, HOUR)
    assert own(store).artifacts.size(blob.digest) == blob.size_bytes
    own(store).extensions.delete(blob.digest)
    sweep_blobs(store.database, store.artifacts, -1, HOUR)
    assert own(store).artifacts.size(blob.digest) is None
