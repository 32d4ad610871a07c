"""``GET /metrics``: what the app counts, and what the tables say."""

import asyncio
import hashlib

from app_samples import MODEL_BYTES, PlayedWorker, take_database_away, worker
from httpx import AsyncClient
from prometheus_client.parser import text_string_to_metric_families

from app.service import Service
from bessemer.contract.access import Scope
from bessemer.contract.keys import KeyRequest


async def scraped(api: AsyncClient) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample by name and label values, these in the order of the labels' names."""
    response = await api.get("/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(text for _, text in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def test_a_compilation_is_seen_from_the_queue_to_its_end(
    api: AsyncClient, played: PlayedWorker, job: str
) -> None:
    waiting = await scraped(api)
    assert waiting["bessemer_queue_tasks", ("compile",)] == 1
    assert waiting["bessemer_queue_oldest_seconds", ("compile",)] > 0
    assert waiting["bessemer_jobs", ("queued",)] == 1
    attempt = played.start(job)
    artifacts = played.succeed(job, attempt)
    after = await scraped(api)
    assert (after["bessemer_queue_tasks", ("compile",)], after["bessemer_jobs", ("succeeded",)]) == (0, 1)
    assert after["bessemer_store_objects", ("artifact",)] == len(artifacts)
    assert after["bessemer_store_bytes", ("artifact",)] == sum(part.size_bytes for part in artifacts)
    assert after["bessemer_store_bytes", ("model",)] == len(MODEL_BYTES)


async def test_a_worker_that_lives_is_counted(api: AsyncClient, front: Service) -> None:
    front.store.workers.beat(worker())
    samples = await scraped(api)
    assert samples["bessemer_workers", ()] == 1


async def test_requests_are_counted_by_route_not_by_address(api: AsyncClient, model: str) -> None:
    for digest in (model, "0" * 64, "1" * 64):
        await api.get(f"/v1/models/{digest}")
    await api.get("/nothing/here")
    await api.request("BREW", "/v1/models/tea")
    samples = await scraped(api)
    name, route = "bessemer_http_requests_total", "/v1/models/{digest}"
    assert (samples[name, ("GET", route, "200")], samples[name, ("GET", route, "404")]) == (1, 2)
    assert samples[name, ("GET", "unmatched", "404")] == 1
    assert samples[name, ("other", route, "405")] == 1
    assert samples["bessemer_http_request_duration_seconds_count", ("GET", route)] == 3


async def test_the_bytes_of_uploads_are_counted_refused_ones_too(api: AsyncClient, model: str) -> None:
    await api.put(f"/v1/models/{hashlib.sha256(b'else').hexdigest()}", content=b"something")
    samples = await scraped(api)
    assert samples["bessemer_upload_bytes_total", ()] == len(MODEL_BYTES) + len(b"something")


async def test_an_event_stream_is_a_follower_and_no_slow_request(
    api: AsyncClient, played: PlayedWorker, job: str
) -> None:
    async def follow() -> None:
        await api.get(f"/v1/compilations/{job}/events")

    following = asyncio.create_task(follow())
    while (await scraped(api))["bessemer_event_followers", ()] == 0:
        pass
    played.fail(job, played.start(job))
    await following
    samples = await scraped(api)
    route = "/v1/compilations/{id}/events"
    assert samples["bessemer_event_followers", ()] == 0
    assert samples["bessemer_http_requests_total", ("GET", route, "200")] == 1
    assert ("bessemer_http_request_duration_seconds_count", ("GET", route)) not in samples


async def test_without_the_database_the_app_says_what_it_knows(api: AsyncClient, front: Service) -> None:
    key = front.store.keys.create(KeyRequest(scope=Scope.ADMIN)).key
    api.headers["Authorization"] = f"Bearer {key}"
    await scraped(api)
    await api.get("/healthz")
    take_database_away(front)
    samples = await scraped(api)
    assert samples["bessemer_database_up", ()] == 0
    assert samples["bessemer_http_requests_total", ("GET", "/healthz", "200")] == 1
    assert not any(name == "bessemer_jobs" for name, _ in samples)
