"""Downloading what a compilation made."""

import hashlib

import pytest
from app_samples import BUNDLE, REPORT_HTML, REPORT_JSON, PlayedWorker
from httpx import AsyncClient

from app.service import Service

ETAG = f'"{hashlib.sha256(BUNDLE).hexdigest()}"'
SIZE = len(BUNDLE)


@pytest.fixture
def done(played: PlayedWorker, job: str) -> str:
    """The address of a compilation that succeeded."""
    played.succeed(job, played.start(job))
    return f"/v1/compilations/{job}"


async def test_artifacts_are_listed_with_sizes_and_digests(api: AsyncClient, done: str) -> None:
    artifacts = (await api.get(f"{done}/artifacts")).json()["items"]
    assert [artifact["name"] for artifact in artifacts] == ["bundle.tar.zst", "report.json", "report.html"]
    assert f'"{artifacts[0]["digest"]}"' == ETAG
    assert artifacts == (await api.get(done)).json()["artifacts"]


async def test_a_compilation_that_runs_has_no_artifacts(api: AsyncClient, job: str) -> None:
    assert (await api.get(f"/v1/compilations/{job}/artifacts")).json() == {"items": []}
    missing = await api.get(f"/v1/compilations/{job}/report")
    assert (missing.status_code, missing.json()["code"]) == (404, "not-found")
    assert "queued" in missing.json()["detail"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_log_that_is_not_listed_is_empty_once_the_compilation_has_ended(
    api: AsyncClient, played: PlayedWorker, job: str, method: str
) -> None:
    path = f"/v1/compilations/{job}/artifacts/log.txt"
    assert (await api.request(method, path)).status_code == 404
    played.succeed(job, played.start(job))
    response = await api.request(method, path)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["Content-Type"].startswith("text/plain")


async def test_an_artifact_is_downloaded_whole(api: AsyncClient, done: str) -> None:
    response = await api.get(f"{done}/artifacts/bundle.tar.zst")
    assert (response.status_code, response.content) == (200, BUNDLE)
    assert response.headers["ETag"] == ETAG
    assert response.headers["Content-Length"] == str(SIZE)
    assert response.headers["Content-Type"] == "application/zstd"
    assert response.headers["Accept-Ranges"] == "bytes"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Content-Disposition"].startswith('attachment; filename="bundle.tar.zst"')


async def test_the_headers_can_be_asked_for_alone(api: AsyncClient, done: str) -> None:
    head = await api.head(f"{done}/artifacts/bundle.tar.zst", headers={"Range": "bytes=0-1"})
    assert (head.status_code, head.content) == (200, b"")
    assert (head.headers["ETag"], head.headers["Content-Length"]) == (ETAG, str(SIZE))


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=10000-", 10000, SIZE),
        ("bytes=-5", SIZE - 5, SIZE),
    ],
)
async def test_a_range_is_sent_as_a_part(
    api: AsyncClient, done: str, asked: str, start: int, end: int
) -> None:
    response = await api.get(f"{done}/artifacts/bundle.tar.zst", headers={"Range": asked, "If-Range": ETAG})
    assert (response.status_code, response.content) == (206, BUNDLE[start:end])
    assert response.headers["Content-Range"] == f"bytes {start}-{end - 1}/{SIZE}"
    assert response.headers["Content-Length"] == str(end - start)


@pytest.mark.parametrize(
    "asked", [f"bytes={SIZE}-", "bytes=5-2", "bytes=-0", "bytes=x", "bytes=" + "9" * 30 + "-"]
)
async def test_a_range_without_a_byte_is_refused_with_the_size(
    api: AsyncClient, done: str, asked: str
) -> None:
    response = await api.get(f"{done}/artifacts/bundle.tar.zst", headers={"Range": asked})
    assert (response.status_code, response.json()["code"]) == (416, "range-not-satisfiable")
    assert response.headers["Content-Range"] == f"bytes */{SIZE}"


async def test_a_range_of_another_version_gives_the_whole(api: AsyncClient, done: str) -> None:
    headers = {"Range": "bytes=0-1", "If-Range": '"another"'}
    assert (await api.get(f"{done}/artifacts/bundle.tar.zst", headers=headers)).content == BUNDLE


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_what_the_client_has_is_not_sent_again(api: AsyncClient, done: str, method: str) -> None:
    response = await api.request(
        method, f"{done}/artifacts/bundle.tar.zst", headers={"If-None-Match": f'"x", W/{ETAG}'}
    )
    assert (response.status_code, response.content, response.headers["ETag"]) == (304, b"", ETAG)


@pytest.mark.parametrize("name", ["nothing", "../../bessemer.sqlite", "%2e%2e/x", "bundle.tar.zst/x"])
async def test_only_names_from_the_list_are_served(api: AsyncClient, done: str, name: str) -> None:
    response = await api.get(f"{done}/artifacts/{name}")
    assert (response.status_code, response.json()["code"]) == (404, "not-found")


async def test_an_artifact_whose_bytes_are_gone_is_not_found(
    api: AsyncClient, front: Service, done: str
) -> None:
    for path in (front.settings.folder / "artifacts").rglob(ETAG.strip('"')):
        path.unlink()
    response = await api.get(f"{done}/artifacts/bundle.tar.zst")
    assert (response.status_code, response.json()["code"]) == (404, "not-found")


@pytest.mark.parametrize(
    ("accept", "content"),
    [
        ("application/json", REPORT_JSON),
        ("*/*", REPORT_JSON),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", REPORT_HTML),
    ],
)
async def test_the_report_comes_in_the_form_that_is_preferred(
    api: AsyncClient, done: str, accept: str, content: bytes
) -> None:
    response = await api.get(f"{done}/report", headers={"Accept": accept})
    assert (response.status_code, response.content, response.headers["Vary"]) == (200, content, "Accept")


async def test_html_is_shown_but_runs_nothing(api: AsyncClient, done: str) -> None:
    response = await api.get(f"{done}/artifacts/report.html")
    assert response.headers["Content-Disposition"].startswith("inline")
    policy = response.headers["Content-Security-Policy"].split("; ")
    assert {"sandbox", "default-src 'none'"} <= set(policy)
    assert "script" not in response.headers["Content-Security-Policy"]
