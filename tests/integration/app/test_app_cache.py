"""Requests that an earlier compilation answers at once."""

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from app_samples import DIGEST, PlayedWorker, post_compilation, request, submitted, worker

from app.service import Service
from bessemer.contract.base import now
from bessemer.contract.identity import identity_of
from bessemer.contract.request import CompilationRequest
from bessemer.contract.service import Worker
from bessemer.store.rows.tables import MODELS

COMPILER, OTHER_COMPILER = "c" * 64, "d" * 64
FIRST_OF_KIND = worker().model_copy(update={"compiler": COMPILER})


@pytest.fixture
def live(front: Service) -> Worker:
    """A live worker that says what its compiler is."""
    front.store.workers.beat(FIRST_OF_KIND)
    return FIRST_OF_KIND


@pytest.fixture
async def first(api: httpx.AsyncClient, played: PlayedWorker, model: str, live: Worker) -> str:
    """The id of a compilation that the live worker has done."""
    return await compiled(api, played, live)


async def compiled(api: httpx.AsyncClient, played: PlayedWorker, made_by: Worker, **fields: object) -> str:
    job_id = await submitted(api, **fields)
    attempt = played.start(job_id)
    assert made_by.kind is not None
    wanted = CompilationRequest.model_validate_json(json.dumps(request(**fields)))
    played.succeed(job_id, attempt, identity_of(wanted, {}, made_by.kind))
    return job_id


async def test_an_identical_request_is_answered_at_once(api: httpx.AsyncClient, first: str) -> None:
    response = await post_compilation(api, name="again", labels={"run": "2"})
    document = response.json()
    assert response.status_code == 200
    assert response.headers["Location"] == f"/v1/compilations/{document['id']}"
    assert "Retry-After" not in response.headers
    assert (document["state"], document["cached"], document["original"]) == ("succeeded", True, first)
    assert (document["name"], document["request"]["labels"]) == ("again", {"run": "2"})
    assert document["id"] != first


async def test_its_files_and_events_are_served_like_any_others(api: httpx.AsyncClient, first: str) -> None:
    address = f"/v1/compilations/{(await post_compilation(api)).json()['id']}"
    theirs = f"/v1/compilations/{first}"
    for name in ("bundle.tar.zst", "report.json"):
        ours = await api.get(f"{address}/artifacts/{name}")
        assert ours.content == (await api.get(f"{theirs}/artifacts/{name}")).content
    events = (await api.get(f"{address}/events")).text
    assert [line for line in events.splitlines() if line.startswith("event:")] == [
        "event: queued",
        "event: succeeded",
    ]
    assert (await api.delete(theirs)).status_code == 204
    assert (await api.get(f"{address}/artifacts/bundle.tar.zst")).status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"cache": False},
        {"inspect": {"assembly": True}},
        {"tune": {"seed": 1}},
        {"target": "znver4"},
        {"verify": {"seed": 1}},
    ],
    ids=str,
)
async def test_a_request_that_differs_or_refuses_is_queued(
    api: httpx.AsyncClient, first: str, fields: dict[str, object]
) -> None:
    response = await post_compilation(api, **fields)
    document = response.json()
    assert (response.status_code, document["state"], document["cached"]) == (202, "queued", False)


@pytest.mark.parametrize(
    "change",
    [{"compiler": OTHER_COMPILER}, {"compiler": None}, {"mcpu": "znver5"}, {"cores": 4}],
    ids=str,
)
async def test_only_what_a_live_worker_would_make_answers(
    api: httpx.AsyncClient, front: Service, first: str, change: dict[str, Any]
) -> None:
    front.store.workers.beat(FIRST_OF_KIND.model_copy(update=change))
    response = await post_compilation(api)
    assert (response.status_code, response.json()["cached"]) == (202, False)


async def test_one_of_several_kinds_of_workers_is_enough(
    api: httpx.AsyncClient, front: Service, first: str
) -> None:
    front.store.workers.beat(FIRST_OF_KIND.model_copy(update={"id": "w2", "mcpu": "znver5"}))
    response = await post_compilation(api)
    assert (response.status_code, response.json()["original"]) == (200, first)


async def test_the_same_key_gives_the_same_answer(api: httpx.AsyncClient, first: str) -> None:
    headers = {"Idempotency-Key": "a-key-of-this-test"}
    answers = [await api.post("/v1/compilations", json=request(), headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()


async def test_a_deleted_model_is_still_missing(api: httpx.AsyncClient, first: str) -> None:
    assert (await api.delete(f"/v1/models/{DIGEST}")).status_code == 204
    response = await post_compilation(api)
    assert (response.status_code, response.json()["code"]) == (422, "model-missing")


async def test_an_answer_is_a_use_of_the_model(api: httpx.AsyncClient, front: Service, first: str) -> None:
    with front.store.database.write() as connection:
        connection.execute(sa.update(MODELS).values(used_at=now() - timedelta(days=1)))
    assert (await post_compilation(api)).status_code == 200
    assert front.store.removal.expire_uploads(3600) == 0


async def test_a_group_has_what_identical_requests_made_and_compiles_for_the_other_targets(
    api: httpx.AsyncClient, first: str
) -> None:
    response = await post_compilation(api, target=["host", "aarch64"])
    group = response.json()
    host, aarch64 = group["items"]
    assert (response.status_code, group["state"]) == (202, "running")
    assert (host["state"], host["cached"], host["original"]) == ("succeeded", True, first)
    assert (aarch64["state"], aarch64["cached"]) == ("queued", False)
    result = (await api.get(f"/v1/groups/{group['id']}/report")).json()["items"][0]
    assert (result["cached"], result["bundle_bytes"] > 0) == (True, True)


async def test_a_group_whose_targets_were_all_compiled_for_is_answered_at_once(
    api: httpx.AsyncClient, first: str
) -> None:
    response = await post_compilation(api, target=["host"])
    assert (response.status_code, response.json()["state"]) == (200, "succeeded")
    assert "Retry-After" not in response.headers
