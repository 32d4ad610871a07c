"""The store over every implementation: SQLite and PostgreSQL, a folder and S3."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
import sqlalchemy as sa
from postgresql_databases import URL_VARIABLE, Databases

from bessemer.store.blobs.artifacts import Artifacts, open_artifacts
from bessemer.store.blobs.sweep import sweep_blobs
from bessemer.store.queue.dbos_queue import open_queue
from bessemer.store.queue_port import Queue
from bessemer.store.rows.jobs import Jobs
from bessemer.store.rows.tables import METADATA
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
from examples.local_postgresql import local_postgresql

BUCKET = "artifacts"
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """Of the PostgreSQL server that TEST_POSTGRESQL_URL names, else of one that is started."""
    given = os.environ.get(URL_VARIABLE)
    with nullcontext(given) if given else local_postgresql() as url:
        made = Databases(sa.make_url(url))
        yield made
        if given:
            made.delete_all()


@pytest.fixture(scope="session")
def queue_template(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a database in which a queue was opened: to copy it takes a tenth of the time."""
    url = databases.new()
    open_queue(StoreSettings(data=tmp_path_factory.mktemp("template"), database_url=url)).close()
    return str(sa.make_url(url).database)


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh_settings(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    """Where no store was ever opened."""
    if request.param == "sqlite":
        return StoreSettings(data=tmp_path / "data")
    databases: Databases = request.getfixturevalue("databases")
    return StoreSettings(data=tmp_path / "data", database_url=databases.new())


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    """Where a queue can be opened at once."""
    if request.param == "sqlite":
        return StoreSettings(data=tmp_path / "data")
    databases, template = map(request.getfixturevalue, ("databases", "queue_template"))
    return StoreSettings(data=tmp_path / "data", database_url=databases.new(f"TEMPLATE {template}"))


@pytest.fixture
def queue(settings: StoreSettings) -> Iterator[Queue]:
    with closing(open_queue(settings)) as opened:
        yield opened


@pytest.fixture(scope="session")
def postgresql_store(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One for the session: to make a database takes longer than most tests."""
    folder = tmp_path_factory.mktemp("postgresql-store")
    opened = open_store(StoreSettings(data=folder, database_url=databases.new()))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a store that holds nothing yet: to copy it takes a tenth of the time."""
    data = tmp_path_factory.mktemp("sqlite-template") / "data"
    open_store(StoreSettings(data=data)).close()
    return data


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An open store that holds nothing yet."""
    if request.param == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        opened = open_store(StoreSettings(data=shutil.copytree(template, tmp_path / "data")))
        yield opened
        opened.close()
        return
    shared: Store = request.getfixturevalue("postgresql_store")
    with shared.database.write() as connection:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(sa.delete(table))
    for _ in range(2):  # to the trash, and out of it
        sweep_blobs(shared.database, shared.artifacts, -1, -1)
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
