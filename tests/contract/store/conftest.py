"""The store over every implementation: SQLite and PostgreSQL, a folder and S3."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from bessemer.store.artifacts import Artifacts, open_artifacts
from bessemer.store.dbos_queue import open_queue
from bessemer.store.jobs import Jobs
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
from bessemer.store.tables import METADATA
from examples.local_postgresql import local_postgresql

BUCKET = "artifacts"
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[sa.URL]:
    with local_postgresql() as url:
        yield sa.make_url(url)


@pytest.fixture(scope="session")
def queue_template(postgresql_server: sa.URL, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a database in which a queue was opened: to copy it takes a tenth of the time."""
    url = _new_database(postgresql_server)
    open_queue(StoreSettings(data=tmp_path_factory.mktemp("template"), database_url=url)).close()
    return str(sa.make_url(url).database)


def _new_database(server: sa.URL, template: str = "template1") -> str:
    name = f"bessemer_{uuid.uuid4().hex}"
    engine = sa.create_engine(server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name} TEMPLATE {template}"))
    engine.dispose()
    return server.set(database=name).render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    """Where no store was ever opened."""
    if request.param == "sqlite":
        return StoreSettings(data=tmp_path / "data")
    server = request.getfixturevalue("postgresql_server")
    return StoreSettings(data=tmp_path / "data", database_url=_new_database(server))


@pytest.fixture(params=["sqlite", "postgresql"])
def queue_settings(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    """Where a queue can be opened at once."""
    if request.param == "sqlite":
        return StoreSettings(data=tmp_path / "data")
    server, template = map(request.getfixturevalue, ("postgresql_server", "queue_template"))
    return StoreSettings(data=tmp_path / "data", database_url=_new_database(server, template))


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


@pytest.fixture(scope="session")
def s3_environment() -> Iterator[dict[str, str]]:
    """The variables that name an S3 server, as docs/settings.md has them; its listings have small pages."""
    script = [sys.executable, "-m", "tests.contract.store.s3_server", BUCKET]
    settings = {**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": "4"}
    with subprocess.Popen(script, cwd=ROOT, env=settings, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield {
            "AWS_ENDPOINT_URL": process.stdout.readline().strip(),
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "bessemer",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
        process.kill()


@pytest.fixture(params=["folder", "s3"])
def artifacts_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where no artifact was ever stored."""
    if request.param == "folder":
        return (tmp_path / "artifacts").as_uri()
    for name, value in request.getfixturevalue("s3_environment").items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def artifacts(artifacts_url: str) -> Iterator[Artifacts]:
    opened = open_artifacts(artifacts_url)
    yield opened
    opened.close()
