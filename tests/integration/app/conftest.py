"""The app in this process, and as a process of its own; both on SQLite and a folder."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from app_samples import DIGEST, MODEL_BYTES, UPLOAD_LIMIT_BYTES, PlayedWorker, submitted
from fastapi import FastAPI
from oidc_issuer import Issuer, running_issuer
from server_process import ServerProcess, running_app

from app.main import create_app
from app.service import Service
from app.settings import AppSettings, AuthMode

SHARED_UPLOAD_LIMIT_BYTES = 16 << 20


@pytest.fixture(scope="session")
def opened_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder after the app's first start: to make its databases takes longer than most tests."""
    data = tmp_path_factory.mktemp("opened-once") / "data"

    async def start() -> None:
        app = create_app(AppSettings(data=data))
        async with app.router.lifespan_context(app):
            pass

    asyncio.run(start())
    return data


@pytest.fixture
def settings(opened_once: Path, tmp_path: Path) -> AppSettings:
    return AppSettings(
        data=shutil.copytree(opened_once, tmp_path / "data"),
        max_upload_bytes=UPLOAD_LIMIT_BYTES,
        max_inputs_bytes=UPLOAD_LIMIT_BYTES,
        max_extension_bytes=UPLOAD_LIMIT_BYTES,
        events_poll_seconds=0.01,
        sweep_seconds=3600,
    )


@pytest.fixture
async def app(settings: AppSettings) -> AsyncIterator[FastAPI]:
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
async def guarded(settings: AppSettings) -> AsyncIterator[FastAPI]:
    """An app that asks for keys."""
    app = create_app(settings.model_copy(update={"auth": AuthMode.REQUIRED}))
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
def front(app: FastAPI) -> Service:
    return app.state.service


@pytest.fixture
async def api(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.fixture
def played(front: Service, tmp_path: Path) -> PlayedWorker:
    return PlayedWorker(front.store, tmp_path)


@pytest.fixture
async def model(api: httpx.AsyncClient) -> str:
    """The digest of an uploaded model that was never inspected."""
    response = await api.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
    assert response.status_code == 201
    return DIGEST


@pytest.fixture
async def job(api: httpx.AsyncClient, model: str) -> str:
    """The id of a queued compilation."""
    return await submitted(api)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """``python -m app`` on a port of its own, for tests that stop or measure it."""
    with running_app(tmp_path) as process:
        yield process


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """``python -m app`` for all tests that leave it running."""
    settings = {"BESSEMER_MAX_UPLOAD_BYTES": str(SHARED_UPLOAD_LIMIT_BYTES)}
    with running_app(tmp_path_factory.mktemp("shared"), settings=settings) as process:
        yield process
