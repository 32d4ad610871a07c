"""Retries, errors and requests of both clients, on httpx's mock transport."""

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from bessemer.client import AsyncClient, Client
from bessemer.client.steps import RETRY_DELAYS_SECONDS, retry_delay_seconds
from bessemer.client.transport import make_settings
from bessemer.contract.base import now
from bessemer.contract.job import Artifact, Compilation, JobState
from bessemer.contract.model import Model, ModelState
from bessemer.contract.options import TuneOptions
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.request import CompilationRequest
from bessemer.contract.service import WorkerList
from bessemer.errors import (
    BessemerError,
    BundleError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    NoWorkerError,
    RequestRefusedError,
    ServerFailedError,
    UnreachableError,
)

URL = "http://bessemer.test"
DATA = b"0123456789" * 100_000
DIGEST = hashlib.sha256(DATA).hexdigest()
MODEL = Model(digest=DIGEST, size_bytes=len(DATA), state=ModelState.INSPECTING, created_at=now())
JOB = Compilation(
    id="job-0001",
    state=JobState.SUCCEEDED,
    request=CompilationRequest.model_validate({"model": DIGEST, "target": "host"}),
    artifacts=(Artifact(name="data", digest=DIGEST, size_bytes=len(DATA), media_type="x/y"),),
    created_at=now(),
)

Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bessemer.client.steps.RETRY_DELAYS_SECONDS", (0.0, 0.0))


def blocking(handler: Handler) -> Client:
    return Client(URL, transport=httpx.MockTransport(handler))


def problem(code: ErrorCode) -> httpx.Response:
    document = make_problem(code, "Because.")
    return httpx.Response(document.status, content=document.model_dump_json())


@pytest.mark.parametrize(
    ("attempt", "status", "delay"),
    [
        (1, None, RETRY_DELAYS_SECONDS[0]),
        (2, 503, RETRY_DELAYS_SECONDS[1]),
        (3, None, None),
        (3, 503, None),
        (1, 200, None),
        (1, 404, None),
        (1, 500, None),
    ],
)
def test_transient_failures_are_retried_a_few_times(
    attempt: int, status: int | None, delay: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bessemer.client.steps.RETRY_DELAYS_SECONDS", RETRY_DELAYS_SECONDS)
    assert retry_delay_seconds(attempt, status) == delay


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.NOT_FOUND, NotFoundError),
        (ErrorCode.STATE_CONFLICT, ConflictError),
        (ErrorCode.REQUEST_INVALID, RequestRefusedError),
        (ErrorCode.UNAVAILABLE, ServerFailedError),
    ],
)
def test_a_problem_becomes_the_error_of_its_kind(code: ErrorCode, error: type[BessemerError]) -> None:
    with pytest.raises(error, match="Because"):
        blocking(lambda _: problem(code)).targets()


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(404, html="<h1>nginx</h1>"),
        httpx.Response(200, html="<h1>a login page</h1>"),
        httpx.Response(302, headers={"Location": "/login"}),
        httpx.Response(200, json={"items": 3}),
    ],
    ids=["another 404", "another 200", "a redirect", "another document"],
)
def test_another_server_counts_as_unreachable(response: httpx.Response) -> None:
    with pytest.raises(UnreachableError, match=URL):
        blocking(lambda _: response).targets()


def test_an_upload_that_broke_off_starts_again_from_its_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(DATA)
    bodies: list[bytes] = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(404)
        bodies.append(request.read())
        assert request.headers["Content-Length"] == str(len(DATA))
        if len(bodies) == 1:
            raise httpx.ReadError("reset")
        return httpx.Response(201, content=MODEL.model_dump_json())

    assert blocking(handler).upload(path) == MODEL
    assert bodies == [DATA, DATA]


def test_a_repeated_submission_keeps_its_key() -> None:
    keys: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) == 1:
            raise httpx.ReadError("reset")
        return httpx.Response(202, content=JOB.model_dump_json())

    blocking(handler).submit(DIGEST)
    blocking(handler).submit(DIGEST)
    assert keys[0] == keys[1] != keys[2]


def test_a_request_holds_only_given_fields() -> None:
    bodies: list[bytes] = []

    def handler(request: httpx.Request) -> httpx.Response:
        bodies.append(request.read())
        return httpx.Response(202, content=JOB.model_dump_json())

    blocking(handler).submit(DIGEST, target="znver4")
    assert bodies == [f'{{"model":"{DIGEST}","target":{{"preset":"znver4"}}}}'.encode()]


def test_a_processor_name_is_sent_as_a_target() -> None:
    bodies: list[bytes] = []

    def handler(request: httpx.Request) -> httpx.Response:
        bodies.append(request.read())
        return httpx.Response(202, content=JOB.model_dump_json())

    blocking(handler).submit(DIGEST, target="cascadelake", tune=TuneOptions(seconds=5))
    target = '{"mcpu":"cascadelake","triple":"x86_64-unknown-linux-gnu"}'
    tune = '{"trials":100000,"seconds":5.0}'
    assert bodies == [f'{{"model":"{DIGEST}","target":{target},"tune":{tune}}}'.encode()]


def test_a_missing_worker_is_reported_before_anything_is_sent() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/workers"
        return httpx.Response(200, content=WorkerList(items=()).model_dump_json())

    with pytest.raises(NoWorkerError, match="a live worker"):
        blocking(handler).require_worker(JOB.request)


def test_an_invalid_request_uploads_nothing() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise AssertionError("nothing should be sent")

    with pytest.raises(InvalidArgumentError, match="did you mean 'znver5'"):
        blocking(handler).submit(DATA, target="znver55")
    with pytest.raises(InvalidArgumentError, match="is not a model"):
        blocking(handler).submit(object())


def interrupted(data: bytes) -> httpx.Response:
    class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield data
            raise httpx.ReadError("reset")

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield data
            raise httpx.ReadError("reset")

    return httpx.Response(200, stream=Broken())


def flaky_artifact() -> Handler:
    answers = iter([interrupted(DATA[:7]), httpx.Response(503), httpx.Response(200, content=DATA)])

    def handler(request: httpx.Request) -> httpx.Response:
        if "/artifacts/" not in request.url.path:
            return httpx.Response(200, content=JOB.model_dump_json())
        return next(answers)

    return handler


def test_a_download_that_broke_off_starts_again(tmp_path: Path) -> None:
    path = blocking(flaky_artifact()).job("job-0001").download_artifact("data", tmp_path / "in" / "data")
    assert path.read_bytes() == DATA


async def test_a_download_in_an_event_loop_starts_again(tmp_path: Path) -> None:
    async with AsyncClient(URL, transport=httpx.MockTransport(flaky_artifact())) as client:
        job = await client.job("job-0001")
        assert (await job.download_artifact("data", tmp_path / "data")).read_bytes() == DATA


def test_a_download_with_a_wrong_digest_is_refused_and_not_kept(tmp_path: Path) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        found = request.url.path.endswith("/data")
        return httpx.Response(200, content=b"other" if found else JOB.model_dump_json())

    with pytest.raises(BundleError, match="damaged"):
        blocking(handler).job("job-0001").download_artifact("data", tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["nonsense", "ftp://host", "http://", "://x"])
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Client(url)


def test_the_url_comes_from_the_argument_then_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BESSEMER_URL", "http://elsewhere:1")
    assert make_settings(None, 1).url == "http://elsewhere:1"
    assert make_settings("http://here:2", 1).url == "http://here:2"
    monkeypatch.delenv("BESSEMER_URL")
    assert make_settings(None, 1).url == "http://127.0.0.1:8000"


def test_an_unreachable_server_is_named_without_its_password() -> None:
    page = httpx.MockTransport(lambda _: httpx.Response(200, html="<h1>a login page</h1>"))
    with (
        Client("http://me:secret@there:8000", transport=page) as client,
        pytest.raises(UnreachableError, match=re.escape("at http://me:[secure]@there:8000: ")) as caught,
    ):
        client.targets()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("kind", "name"), [(Client, "Client"), (AsyncClient, "AsyncClient")])
def test_a_client_shows_its_address_without_the_password(
    kind: type[Client] | type[AsyncClient], name: str
) -> None:
    assert repr(kind("http://me:secret@there:8000")) == f"{name}('http://me:[secure]@there:8000')"
