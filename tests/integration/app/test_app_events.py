"""Following a compilation."""

import asyncio
import json
from typing import Any

import pytest
from app_samples import PlayedWorker
from fastapi import FastAPI
from httpx import AsyncClient
from starlette.requests import Request
from starlette.types import Message, Scope

from app.identity.authentication import is_still_admitted
from app.service import Service
from bessemer.contract import access
from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.job import Event
from bessemer.contract.keys import KeyRequest


def parsed(text: str) -> list[dict[str, str]]:
    """The events of a stream, as fields."""
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    return [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]


async def follow(api: AsyncClient, job: str, **headers: str) -> list[dict[str, str]]:
    response = await api.get(f"/v1/compilations/{job}/events", headers=headers)
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/event-stream")
    return parsed(response.text)


async def test_a_finished_compilation_is_told_from_its_start(
    api: AsyncClient, played: PlayedWorker, job: str
) -> None:
    attempt = played.start(job)
    played.tune(job, attempt, trials=2)
    played.succeed(job, attempt)
    events = await follow(api, job)
    assert [event["event"] for event in events] == [
        "queued",
        "started",
        "confined",
        "stage-started",
        "progress",
        "progress",
        "stage-finished",
        "succeeded",
    ]
    documents = [Event.model_validate_json(event["data"]) for event in events]
    assert [document.seq for document in documents] == [int(event["id"]) for event in events]
    assert [document.type.value for document in documents] == [event["event"] for event in events]


@pytest.fixture
def unremembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The app looks at keys in each request."""
    monkeypatch.setattr("app.identity.login.CACHE_SECONDS", 0.0)


async def test_a_stream_ends_after_its_key_is_revoked(
    unremembered: None, api: AsyncClient, front: Service, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = front.store.keys.create(KeyRequest(tenant=DEFAULT_TENANT, scope=access.Scope.READ))

    async def revoke_first(request: Request) -> bool:
        front.store.keys.revoke(key.id)
        return await is_still_admitted(request)

    monkeypatch.setattr("app.routes.events.ADMITTED_SECONDS", 0.0)
    monkeypatch.setattr("app.routes.events.is_still_admitted", revoke_first)
    async with asyncio.timeout(30):
        assert await follow(api, job, Authorization=f"Bearer {key.key}") == []


async def test_a_running_compilation_is_told_as_it_happens_and_ends_with_it(
    api: AsyncClient, played: PlayedWorker, job: str
) -> None:
    following = asyncio.create_task(follow(api, job, Accept="application/json"))
    attempt = await asyncio.to_thread(played.start, job)
    await asyncio.to_thread(played.tune, job, attempt, 700)
    assert not following.done()
    await asyncio.to_thread(played.fail, job, attempt)
    ids = [int(event["id"]) for event in await following]
    assert ids == list(range(1, 707))


@pytest.mark.parametrize(("last", "left"), [(0, [1, 2, 3, 4]), (2, [3, 4]), (4, []), (999, [])])
async def test_a_stream_goes_on_after_the_last_event_that_was_received(
    api: AsyncClient, played: PlayedWorker, job: str, last: int, left: list[int]
) -> None:
    played.fail(job, played.start(job))
    events = await follow(api, job, **{"Last-Event-ID": str(last)})
    assert [int(event["id"]) for event in events] == left


@pytest.mark.parametrize("last", ["-1", "x", "9" * 40, ""])
async def test_a_last_event_id_that_is_none_is_refused(api: AsyncClient, job: str, last: str) -> None:
    response = await api.get(f"/v1/compilations/{job}/events", headers={"Last-Event-ID": last})
    assert (response.status_code, response.json()["code"]) == (422, "request-invalid")
    assert response.json()["errors"][0]["field"] == "Last-Event-ID"


async def test_a_cancelled_compilation_ends_its_stream(api: AsyncClient, job: str) -> None:
    following = asyncio.create_task(follow(api, job))
    await api.post(f"/v1/compilations/{job}/cancel")
    assert [event["event"] for event in await following] == ["queued", "cancelled"]


async def test_streams_end_when_the_server_stops(api: AsyncClient, front: Service, job: str) -> None:
    following = asyncio.create_task(follow(api, job))
    await asyncio.sleep(0)
    front.stopping.set()
    assert len(await following) <= 1


async def test_a_stream_whose_reader_left_is_given_up(app: FastAPI, job: str) -> None:
    left = asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if b"event: queued" in message.get("body", b""):
            left.set()

    path = f"/v1/compilations/{job}/events"
    scope: Scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    await asyncio.wait_for(app(scope, receive, send), 30)


async def test_the_data_is_one_line_of_json(api: AsyncClient, job: str) -> None:
    await api.post(f"/v1/compilations/{job}/cancel")
    documents: list[Any] = [json.loads(event["data"]) for event in await follow(api, job)]
    assert [document["seq"] for document in documents] == [1, 2]
