"""Opening the store creates the schema once, even if several processes start at the same time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from postgresql_databases import Databases
from store_samples import a_request

from bessemer.store import database
from bessemer.store.database import mapped_errors
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.queue.dbos_queue import open_queue
from bessemer.store.rows.tables import JOBS, METADATA
from bessemer.store.settings import StoreSettings
from bessemer.store.store import open_store
from tests.tenant_data import own

OPEN = """
import sys
from bessemer.store.queue.dbos_queue import open_queue
from bessemer.store.settings import StoreSettings
from bessemer.store.store import open_store

settings = StoreSettings.model_validate_json(sys.argv[1])
sys.stdin.readline()
open_store(settings).close()
open_queue(settings).close()
"""


def test_the_migrations_make_the_tables_that_are_queried(fresh_settings: StoreSettings) -> None:
    store = open_store(fresh_settings)
    with store.database.read() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, METADATA) == []
    store.close()


def test_a_schema_of_a_newer_release_is_refused_with_advice(fresh_settings: StoreSettings) -> None:
    store = open_store(fresh_settings)
    with store.database.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    with pytest.raises(StoreUnavailableError, match="revision 9999, which this release does not know: run"):
        open_store(fresh_settings)


def test_what_was_stored_is_there_when_it_is_opened_again(fresh_settings: StoreSettings) -> None:
    first = open_store(fresh_settings)
    job = own(first).jobs.submit("job-00000001", a_request())
    first.close()
    second = open_store(fresh_settings)
    assert own(second).jobs.get("job-00000001") == job
    second.close()


def test_processes_that_start_at_the_same_moment_all_open_it(fresh_settings: StoreSettings) -> None:
    document = json.dumps({name: str(value) for name, value in fresh_settings.model_dump().items() if value})
    starters = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", OPEN, document], stdin=subprocess.PIPE)
        for _ in range(4)
    ]
    for starter in starters:
        assert starter.stdin is not None
        starter.stdin.write(b"\n")
        starter.stdin.close()
    assert [starter.wait() for starter in starters] == [0, 0, 0, 0]


def test_sqlite_is_set_up_for_readers_beside_a_writer(tmp_path: Path) -> None:
    store = open_store(StoreSettings(data=tmp_path))
    with store.database.read() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 1, "foreign_keys": 1, "busy_timeout": 30_000}
    with store.database.write() as _, store.database.read() as reader:
        assert reader.execute(sa.text("SELECT count(*) FROM jobs")).scalar_one() == 0
    store.close()


@pytest.mark.parametrize(
    "url",
    ["postgresql://nobody@127.0.0.1:1/none", "sqlite:////proc/no/such/file.sqlite"],
)
def test_a_database_that_cannot_be_reached_is_unavailable(tmp_path: Path, url: str) -> None:
    with pytest.raises(StoreUnavailableError):
        open_store(StoreSettings(data=tmp_path, database_url=url))


def test_a_database_that_does_not_keep_text_as_utf_8_is_refused_with_advice(
    tmp_path: Path, databases: Databases
) -> None:
    url = databases.new("ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'")
    settings = StoreSettings(data=tmp_path, database_url=url)
    name = settings.database.database
    with pytest.raises(StoreUnavailableError, match=rf"'{name}' stores text as SQL_ASCII .* ENCODING 'UTF8'"):
        open_store(settings)
    with pytest.raises(StoreUnavailableError, match="SQL_ASCII"):
        open_queue(settings)


def test_a_database_that_goes_away_is_unavailable(tmp_path: Path) -> None:
    store = open_store(StoreSettings(data=tmp_path))
    store.close()
    file = tmp_path / "bessemer.sqlite"
    for path in tmp_path.glob("bessemer.sqlite*"):
        path.unlink()
    file.mkdir()
    assert not store.ping()
    with pytest.raises(StoreUnavailableError):
        own(store).jobs.get("job-00000001")
    store.close()


def test_a_server_that_became_a_standby_is_unavailable_and_its_connections_are_given_up(
    tmp_path: Path, databases: Databases
) -> None:
    settings = StoreSettings(data=tmp_path, database_url=databases.new())
    name = settings.database.database
    store = open_store(settings)
    with databases.connection() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        store.database.close()
        assert store.ping()
        with pytest.raises(StoreUnavailableError, match="read-only"):
            own(store).models.add("0" * 64, 1)
        with pytest.raises(StoreUnavailableError, match="read-only now"):
            store.workers.beats()
        connection.exec_driver_sql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        assert own(store).models.add("0" * 64, 1).size_bytes == 1
    store.close()


def test_an_error_of_the_drivers_own_is_none_of_a_database_that_is_away() -> None:
    error = sa.exc.InternalError("SELECT 1", {}, Exception("current transaction is aborted"))
    with pytest.raises(sa.exc.InternalError), mapped_errors():
        raise error


def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "bessemer.sqlite").write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreUnavailableError):
        open_store(StoreSettings(data=tmp_path))


def test_a_table_that_stays_locked_makes_the_store_unavailable(
    tmp_path: Path, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LOCK_TIMEOUT_SECONDS", 0.2)
    store = open_store(StoreSettings(data=tmp_path, database_url=databases.new()))
    with store.database.write() as connection:
        store.database.lock_table(connection, JOBS)
        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            own(store).jobs.submit("job-00000001", a_request())
        assert own(store).jobs.get("job-00000001") is None
    assert own(store).jobs.submit("job-00000001", a_request()).id == "job-00000001"
    store.close()


def test_a_silent_clients_transaction_ends_and_frees_its_locks(
    tmp_path: Path, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = StoreSettings(data=tmp_path, database_url=databases.new())
    open_store(settings).close()  # a migration on a busy machine pauses for longer
    monkeypatch.setattr(database, "SILENCE_SECONDS", 0.5)
    store = open_store(settings)
    with (
        pytest.raises(StoreUnavailableError, match="idle-in-transaction timeout"),
        store.database.write() as connection,
    ):
        store.database.lock_table(connection, JOBS)
        assert own(store).jobs.submit("job-00000001", a_request()).id == "job-00000001"
        connection.exec_driver_sql("SELECT 1")
    assert own(store).jobs.submit("job-00000002", a_request()).id == "job-00000002"
    store.close()
