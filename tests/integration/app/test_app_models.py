"""Uploading models."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from app_samples import DIGEST, MODEL_BYTES, WITH_SHAPES

from app.service import Service
from app.settings import AppSettings
from bessemer.contract.model import Model, ModelPage, ModelState
from tests.inspections import inspected

OTHER_DIGEST = "0" * 64


def stored_files(settings: AppSettings) -> list[Path]:
    return [path for path in (settings.folder / "artifacts").rglob("*") if path.is_file()]


async def in_chunks(size_bytes: int) -> AsyncIterator[bytes]:
    for _ in range(size_bytes // 1024):
        yield bytes(1024)


async def test_an_uploaded_model_is_created_and_waits_for_its_inspection(
    api: httpx.AsyncClient, front: Service
) -> None:
    response = await api.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
    assert (response.status_code, response.headers["Location"]) == (201, f"/v1/models/{DIGEST}")
    document = Model.model_validate_json(response.content)
    assert (document.digest, document.size_bytes) == (DIGEST, len(MODEL_BYTES))
    assert document.state is ModelState.INSPECTING
    assert front.store.models.unenqueued(0) == ()


async def test_a_model_that_is_there_is_not_created_again(api: httpx.AsyncClient, model: str) -> None:
    put = await api.put(f"/v1/models/{model}", content=MODEL_BYTES)
    post = await api.post("/v1/models", content=MODEL_BYTES)
    assert (put.status_code, post.status_code) == (200, 200)


async def test_a_model_without_a_known_digest_is_given_one(api: httpx.AsyncClient) -> None:
    response = await api.post("/v1/models", content=MODEL_BYTES)
    assert (response.status_code, response.headers["Location"]) == (201, f"/v1/models/{DIGEST}")


async def test_an_inspected_model_tells_its_signature(
    api: httpx.AsyncClient, front: Service, model: str
) -> None:
    inspected(front.store, model, WITH_SHAPES)
    document = Model.model_validate_json((await api.get(f"/v1/models/{model}")).content)
    assert (document.state, document.inspection) == (ModelState.READY, WITH_SHAPES)


async def test_models_are_listed_newest_first_page_by_page(api: httpx.AsyncClient, front: Service) -> None:
    digests = [
        (await api.post("/v1/models", content=bytes([number]))).json()["digest"] for number in range(3)
    ]
    inspected(front.store, digests[1], WITH_SHAPES)
    first = ModelPage.model_validate_json((await api.get("/v1/models?limit=2")).content)
    rest = ModelPage.model_validate_json((await api.get(f"/v1/models?cursor={first.next}")).content)
    assert [model.digest for model in (*first.items, *rest.items)] == digests[::-1]
    assert rest.next is None
    ready = (await api.get("/v1/models?state=ready&format=pt2")).json()
    assert [model["digest"] for model in ready["items"]] == [digests[1]]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_whether_a_model_is_there_can_be_asked(api: httpx.AsyncClient, model: str, method: str) -> None:
    assert (await api.request(method, f"/v1/models/{model}")).status_code == 200
    assert (await api.request(method, f"/v1/models/{OTHER_DIGEST}")).status_code == 404


@pytest.mark.parametrize(
    ("path", "content", "status", "code"),
    [
        (f"/v1/models/{OTHER_DIGEST}", MODEL_BYTES, 422, "digest-mismatch"),
        (f"/v1/models/{OTHER_DIGEST}", b"", 422, "model-empty"),
        ("/v1/models", b"", 422, "model-empty"),
        ("/v1/models", bytes(5000), 413, "model-too-large"),
        ("/v1/models/ABC", MODEL_BYTES, 422, "request-invalid"),
    ],
)
async def test_an_upload_that_is_refused_leaves_nothing(
    api: httpx.AsyncClient, settings: AppSettings, path: str, content: bytes, status: int, code: str
) -> None:
    response = await api.request("PUT" if path[-1] != "s" else "POST", path, content=content)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert stored_files(settings) == []


async def test_a_declared_length_is_refused_before_anything_is_read(
    api: httpx.AsyncClient,
) -> None:
    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    response = await api.post("/v1/models", content=never(), headers={"Content-Length": "99999999"})
    assert response.json()["code"] == "model-too-large"


async def test_an_undeclared_length_is_refused_while_streaming(
    api: httpx.AsyncClient, settings: AppSettings
) -> None:
    response = await api.post("/v1/models", content=in_chunks(8192))
    assert response.json()["code"] == "model-too-large"
    assert stored_files(settings) == []
