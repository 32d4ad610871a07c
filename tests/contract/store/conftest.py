"""The store over every implementation: SQLite and PostgreSQL, a folder and memory."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from obstore.store import LocalStore, MemoryStore

from bessemer.store.artifacts import Artifacts
from bessemer.store.jobs import Jobs
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
from bessemer.store.tables import METADATA
from examples.local_postgresql import local_postgresql


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[sa.URL]:
    with local_postgresql() as url:
        yield sa.make_url(url)


def _new_database(server: sa.URL) -> str:
    name = f"bessemer_{uuid.uuid4().hex}"
    engine = sa.create_engine(server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.set(database=name).render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    """Where no store was ever opened."""
    if request.param == "sqlite":
        return StoreSettings(data=tmp_path / "data")
    server = request.getfixturevalue("postgresql_server")
    return StoreSettings(data=tmp_path / "data", database_url=_new_database(server))


@pytest.fixture(scope="session")
def postgresql_store(postgresql_server: sa.URL, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One for the session: to make a database takes longer than most tests."""
    folder = tmp_path_factory.mktemp("postgresql-store")
    opened = open_store(StoreSettings(data=folder, database_url=_new_database(postgresql_server)))
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An open store that holds nothing yet."""
    if request.param == "sqlite":
        opened = open_store(StoreSettings(data=tmp_path / "data"))
        yield opened
        opened.close()
        return
    shared: Store = request.getfixturevalue("postgresql_store")
    with shared.database.write() as connection:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(sa.delete(table))
    yield shared


@pytest.fixture
def jobs(store: Store) -> Jobs:
    return store.jobs


@pytest.fixture(params=["folder", "memory"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Artifacts]:
    folder = LocalStore(tmp_path / "artifacts", mkdir=True)
    opened = Artifacts(MemoryStore() if request.param == "memory" else folder)
    yield opened
    opened.close()
