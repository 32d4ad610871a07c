"""What every route has in common."""

import httpx
import pytest
from app_samples import DIGEST, PlayedWorker

from app.http.validation import MAX_ERRORS

DOCUMENTS = (
    "/v1/compilations",
    "/v1/compilations/{job}",
    "/v1/targets",
    "/v1/workers",
    "/v1/models",
    f"/v1/models/{DIGEST}",
)


@pytest.mark.parametrize("path", DOCUMENTS)
async def test_a_document_that_has_not_changed_is_not_sent_again(
    api: httpx.AsyncClient, job: str, played: PlayedWorker, path: str
) -> None:
    played.fail(job, played.start(job))
    first = await api.get(path.format(job=job))
    tag = first.headers["ETag"]
    again = await api.get(path.format(job=job), headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    assert "content-length" not in again.headers
    other = await api.get(path.format(job=job), headers={"If-None-Match": '"another"'})
    assert (other.status_code, other.content) == (200, first.content)


async def test_a_document_that_has_changed_has_another_tag(
    api: httpx.AsyncClient, job: str, played: PlayedWorker
) -> None:
    path = f"/v1/compilations/{job}"
    queued = await api.get(path)
    played.start(job)
    running = await api.get(path, headers={"If-None-Match": queued.headers["ETag"]})
    assert (running.status_code, running.json()["state"]) == (200, "running")


@pytest.mark.parametrize(
    "path", [*DOCUMENTS, "/v1/compilations/{job}/logs", "/v1/compilations/{job}/artifacts"]
)
async def test_head_tells_of_a_document_what_get_would(api: httpx.AsyncClient, job: str, path: str) -> None:
    got, head = await api.get(path.format(job=job)), await api.head(path.format(job=job))
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Type"] == got.headers["Content-Type"]


async def test_head_of_what_is_not_there_or_never_ends(api: httpx.AsyncClient, job: str) -> None:
    missing = await api.head("/v1/compilations/0000000000")
    stream = await api.head(f"/v1/compilations/{job}/events")
    assert (missing.status_code, missing.content) == (404, b"")
    assert (stream.status_code, stream.headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("GET", "/v1/compilations?stat=failed", "did you mean 'state'"),
        ("GET", "/v1/compilations/{job}?verbose=1", "unknown parameter"),
        ("GET", "/v1/compilations/{job}/invocations?limits=1", "did you mean 'limit'"),
        ("POST", "/v1/compilations/{job}/cancel?force=true", "unknown parameter"),
        ("DELETE", "/v1/compilations/{job}?force=true", "unknown parameter"),
        ("GET", "/v1/targets?x=1", "unknown parameter"),
    ],
)
async def test_a_parameter_that_no_route_reads_is_refused(
    api: httpx.AsyncClient, job: str, method: str, path: str, said: str
) -> None:
    response = await api.request(method, path.format(job=job))
    assert (response.status_code, response.json()["code"]) == (422, "request-invalid")
    assert said in response.json()["errors"][0]["message"]
    assert (await api.get(f"/v1/compilations/{job}")).json()["state"] == "queued"


async def test_of_very_many_unknown_parameters_only_some_are_told(api: httpx.AsyncClient) -> None:
    response = await api.get("/v1/targets", params={f"x{number}": "" for number in range(MAX_ERRORS + 1)})
    assert (response.status_code, len(response.json()["errors"])) == (422, MAX_ERRORS)


async def test_probes_may_say_what_they_like(api: httpx.AsyncClient) -> None:
    assert (await api.get("/healthz?at=1")).status_code == 200


async def test_a_submission_says_when_to_look_again(api: httpx.AsyncClient, model: str) -> None:
    response = await api.post("/v1/compilations", json={"model": model, "target": "host"})
    assert response.headers["Retry-After"] == "1"


@pytest.mark.parametrize("key", [b"", b"build\x0117", b"a\tb", b"x" * 256, "schlüssel".encode()])
async def test_a_key_that_no_log_could_show_is_refused(
    api: httpx.AsyncClient, model: str, key: bytes
) -> None:
    response = await api.post(
        "/v1/compilations",
        json={"model": model, "target": "host"},
        headers=[(b"Idempotency-Key", key)],
    )
    assert (response.status_code, response.json()["code"]) == (422, "request-invalid")
    assert [error["field"] for error in response.json()["errors"]] == ["Idempotency-Key"]
