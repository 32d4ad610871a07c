"""``python -m app`` as the server; tests play the worker."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from client_samples import Stagehand

from bessemer.client import Client
from bessemer.store.settings import StoreSettings
from bessemer.store.store import open_store

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[str]:
    """The URL of a running app without a worker."""
    settings = {"BESSEMER_DATA": str(data), "BESSEMER_PORT": "0", "BESSEMER_STOP_SECONDS": "1"}
    with (data / "app.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "app"],
            cwd=ROOT,
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    with process.stdout:
        yield process.stdout.readline().rpartition(" ")[2].strip()
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def stagehand(server: str, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stagehand]:
    store = open_store(StoreSettings(data=data))
    yield Stagehand(store, tmp_path_factory.mktemp("stage"))
    store.close()


@pytest.fixture
def client(server: str) -> Iterator[Client]:
    with Client(server) as client:
        yield client
