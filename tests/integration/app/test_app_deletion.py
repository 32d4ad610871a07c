"""Deleting compilations and models, by hand and by age."""

import asyncio
from dataclasses import replace

import httpx
import pytest
from app_samples import DIGEST, MODEL_BYTES, PlayedWorker, request

from app.service import Service
from app.sweeper import delete_expired
from bessemer.store.blobs.sweep import sweep_blobs
from tests.tenant_data import own


def strict(front: Service, **settings: object) -> Service:
    """The same service with other settings."""
    return replace(front, settings=front.settings.model_copy(update=settings))


async def test_a_compilation_that_has_ended_is_deleted_once(
    api: httpx.AsyncClient, played: PlayedWorker, job: str
) -> None:
    played.succeed(job, played.start(job))
    path = f"/v1/compilations/{job}"
    gone = await api.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    for again in (await api.delete(path), await api.get(path), await api.get(f"{path}/events")):
        assert (again.status_code, again.json()["code"]) == (404, "not-found")


@pytest.mark.parametrize("starts", [False, True])
async def test_a_compilation_that_has_not_ended_is_to_be_cancelled_first(
    api: httpx.AsyncClient, played: PlayedWorker, job: str, starts: bool
) -> None:
    if starts:
        played.start(job)
    response = await api.delete(f"/v1/compilations/{job}")
    assert (response.status_code, response.json()["code"]) == (409, "state-conflict")
    assert "cancel it" in response.json()["detail"]


async def test_a_model_goes_once_no_compilation_needs_it(
    api: httpx.AsyncClient, played: PlayedWorker, job: str
) -> None:
    refused = await api.delete(f"/v1/models/{DIGEST}")
    assert (refused.status_code, refused.json()["code"]) == (409, "model-in-use")
    assert job in refused.json()["detail"]
    played.fail(job, played.start(job))
    assert (await api.delete(f"/v1/models/{DIGEST}")).status_code == 204
    assert (await api.delete(f"/v1/models/{DIGEST}")).status_code == 404
    assert (await api.get(f"/v1/compilations/{job}")).status_code == 200
    again = await api.post("/v1/compilations", json=request())
    assert again.json()["code"] == "model-missing"


async def test_submissions_and_deletions_of_a_model_at_once_never_leave_a_job_without_its_model(
    api: httpx.AsyncClient, front: Service
) -> None:
    for _ in range(5):
        await api.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
        submitted, deleted = await asyncio.gather(
            api.post("/v1/compilations", json=request()), api.delete(f"/v1/models/{DIGEST}")
        )
        assert (submitted.status_code, deleted.status_code) in {(202, 409), (422, 204)}
        if submitted.status_code == 202:
            await api.post(f"/v1/compilations/{submitted.json()['id']}/cancel")
    queued = (await api.get("/v1/compilations", params={"state": "queued"})).json()
    assert queued["items"] == []


async def test_rows_go_at_the_age_that_the_settings_say(
    api: httpx.AsyncClient, front: Service, played: PlayedWorker, job: str
) -> None:
    played.succeed(job, played.start(job))
    assert delete_expired(front) == 0
    assert delete_expired(strict(front, retention_days=1, model_retention_days=1)) == 0
    assert delete_expired(strict(front, retention_days=0, model_retention_days=0)) == 2
    assert (await api.get(f"/v1/compilations/{job}")).status_code == 404
    assert (await api.get(f"/v1/models/{DIGEST}")).status_code == 404


async def test_uploads_during_sweeps_without_grace_lose_no_model(
    api: httpx.AsyncClient, front: Service
) -> None:
    async def sweep_often() -> None:
        for _ in range(20):
            await asyncio.to_thread(sweep_blobs, front.store.database, front.store.artifacts, 0, 3600)

    async def upload(number: int) -> str:
        response = await api.post("/v1/models", content=b"model %d" % number)
        return str(response.json()["digest"])

    *digests, _ = await asyncio.gather(*map(upload, range(30)), sweep_often())
    assert all(any(own(front.store).artifacts.stream(digest)) for digest in digests)
