"""``python -m app`` as the server; tests simulate the worker."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from client_samples import MODEL, FakeWorker

from bessemer.client import Client
from bessemer.store.settings import StoreSettings
from bessemer.store.store import open_store
from examples.local_service import local_app

SETTINGS = {
    "BESSEMER_STOP_SECONDS": "1",
    "BESSEMER_WORKER_LOST_SECONDS": "600",
    "BESSEMER_WORKER_LIVENESS_SECONDS": "600",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[str]:
    """The URL of a running app without a worker; simulated workers send one heartbeat."""
    with local_app(data, SETTINGS) as app:
        yield app.url


@pytest.fixture(scope="module")
def fake_worker(server: str, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeWorker]:
    store = open_store(StoreSettings(data=data))
    yield FakeWorker(store, tmp_path_factory.mktemp("stage"))
    store.close()


@pytest.fixture
def client(server: str) -> Iterator[Client]:
    with Client(server) as client:
        yield client


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt2"
    path.write_bytes(MODEL)
    return path
