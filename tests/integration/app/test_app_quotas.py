"""Quotas over HTTP: what is refused, with which answer, and what is not."""

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from app_samples import DIGEST, MODEL_BYTES, PlayedWorker, request, submitted
from callers import client_of
from fastapi import FastAPI

from app.main import create_app
from app.routes.records import DATABASE
from app.settings import AppSettings, AuthMode
from bessemer.contract.access import Scope
from bessemer.contract.usage import Quota, Usage
from bessemer.store.quotas import QuotaFileError
from tests.tenant_data import started

KEY = {"Idempotency-Key": "build-17"}


@asynccontextmanager
async def limited(settings: AppSettings, **quota: int) -> AsyncIterator[tuple[httpx.AsyncClient, FastAPI]]:
    """A client of the tenant ``vision``, which has uploaded a model, and the app."""
    changes = {"auth": AuthMode.REQUIRED, **{f"quota_{name}": value for name, value in quota.items()}}
    app = create_app(settings.model_copy(update=changes))
    async with app.router.lifespan_context(app), client_of(app, "vision") as client:
        assert (await client.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)).status_code == 201
        yield client, app


def refused(response: httpx.Response, quota: str) -> bool:
    body = response.json()
    return (response.status_code, body["code"]) == (429, "quota-exceeded") and f"`{quota}`" in body["detail"]


async def test_queued_jobs_are_limited_and_an_idempotent_repetition_is_not_refused(
    settings: AppSettings,
) -> None:
    async with limited(settings, queued_jobs=2) as (client, app):
        first = await client.post("/v1/compilations", json=request(), headers=KEY)
        assert (await client.post("/v1/compilations", json=request())).status_code == 202
        third = await client.post("/v1/compilations", json=request())
        assert refused(third, "queued_jobs") and third.headers["retry-after"] == "10"
        again = await client.post("/v1/compilations", json=request(), headers=KEY)
        assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
        started(app.state.service.store.jobs, first.json()["id"])
        assert (await client.post("/v1/compilations", json=request())).status_code == 202


async def test_an_import_that_exceeds_the_bytes_of_records_is_refused_whole(settings: AppSettings) -> None:
    async with limited(settings, record_bytes=100) as (client, app):
        answer = await client.post("/v1/tuning/records", json=DATABASE.model_dump(mode="json"))
        assert refused(answer, "record_bytes") and "Delete records" in answer.json()["detail"]
        assert app.state.service.store.for_tenant("vision").usage.record_bytes() == 0
        used = (await client.get("/v1/usage")).json()["record_bytes"]
        assert used == {"used": 0, "limit": 100}


async def test_a_model_that_exceeds_the_stored_bytes_is_refused_before_and_after_it_is_received(
    settings: AppSettings,
) -> None:
    async with limited(settings, stored_bytes=len(MODEL_BYTES) + 10) as (client, app):
        declared = await client.post("/v1/models", content=os.urandom(11))

        unseen = os.urandom(11)

        async def chunks() -> AsyncIterator[bytes]:
            yield unseen

        streamed = await client.post("/v1/models", content=chunks())
        assert refused(declared, "stored_bytes") and refused(streamed, "stored_bytes")
        own = app.state.service.store.for_tenant("vision")
        assert own.artifacts.size(hashlib.sha256(unseen).hexdigest()) is None
        assert (await client.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)).status_code == 200
        assert (await client.post("/v1/compilations", json=request())).status_code == 202
        assert (await client.post("/v1/models", content=os.urandom(10))).status_code == 201
        full = await client.post("/v1/compilations", json=request())
        assert refused(full, "stored_bytes") and full.headers["retry-after"] == "60"
        assert own.usage.stored_bytes() == len(MODEL_BYTES) + 10


async def test_invocations_count_as_queued_jobs_and_store_bytes(
    settings: AppSettings, tmp_path: Path
) -> None:
    async with limited(settings, queued_jobs=1, stored_bytes=100_000) as (client, app):
        played = PlayedWorker(app.state.service.store, tmp_path)
        job = await submitted(client)
        played.succeed(job, played.start(job))
        path = f"/v1/compilations/{job}/invocations"
        stored = app.state.service.store.for_tenant("vision").usage.stored_bytes
        used = stored()
        first = await client.post(path, content=b"arrays", headers=KEY)
        assert (first.status_code, stored()) == (202, used + len(b"arrays"))
        assert refused(await client.post(path, content=b"others"), "queued_jobs")
        again = await client.post(path, content=b"arrays", headers=KEY)
        assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
        started(app.state.service.store.invocations, first.json()["id"])
        limited_to = replace(app.state.service.quotas, default=Quota(stored_bytes=stored() + 5))
        app.state.service = replace(app.state.service, quotas=limited_to)
        assert refused(await client.post(path, content=b"others"), "stored_bytes")


async def test_a_tenant_that_has_used_its_worker_time_waits_for_the_next_day(settings: AppSettings) -> None:
    async with limited(settings, worker_seconds=60) as (client, app):
        app.state.service.store.worker_time.add("other", 1000.0)
        assert (await client.post("/v1/compilations", json=request())).status_code == 202
        app.state.service.store.worker_time.add("vision", 60.0)
        for response in (
            await client.post("/v1/compilations", json=request()),
            await client.post("/v1/models", content=b"new"),
        ):
            assert refused(response, "worker_seconds")
            assert 0 < int(response.headers["retry-after"]) <= 86_401
        assert (await client.get("/v1/compilations")).status_code == 200


async def test_a_priority_above_the_tenants_highest_is_refused_and_names_it(settings: AppSettings) -> None:
    async with limited(settings, highest_priority=10) as (client, _):
        assert (await client.post("/v1/compilations", json=request(priority=10))).status_code == 202
        higher = await client.post("/v1/compilations", json=request(priority=11))
        assert (higher.status_code, higher.json()["code"]) == (422, "request-invalid")
        assert higher.json()["errors"] == [
            {"field": "priority", "message": "11 is higher than your tenant's highest priority, 10"}
        ]


async def test_usage_is_that_of_the_callers_tenant_and_needs_only_a_key_that_reads(
    settings: AppSettings,
) -> None:
    async with limited(settings, queued_jobs=5, running_jobs=2, stored_bytes=1000) as (client, app):
        jobs = [await submitted(client) for _ in range(3)]
        started(app.state.service.store.jobs, jobs[0])
        app.state.service.store.worker_time.add("vision", 7.9)
        async with client_of(app, "vision", Scope.READ) as reader:
            usage = Usage.model_validate_json((await reader.get("/v1/usage")).content)
    assert (usage.tenant, usage.highest_priority) == ("vision", 100)
    uses = (usage.running_jobs, usage.queued_jobs, usage.uploads, usage.stored_bytes, usage.worker_seconds)
    assert [(use.used, use.limit) for use in uses] == [
        *((1, 2), (2, 5), (0, 16), (len(MODEL_BYTES), 1000), (7, None))
    ]


def test_an_app_does_not_start_with_a_file_that_has_a_mistake(settings: AppSettings) -> None:
    path = settings.data / "quotas.toml"
    path.write_text("[tenants.vision]\njobs = 1")
    with pytest.raises(QuotaFileError, match=r"tenants\.vision\.jobs"):
        create_app(settings.model_copy(update={"quotas": path}))
