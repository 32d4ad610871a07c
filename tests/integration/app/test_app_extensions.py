"""Extensions over HTTP: uploads, and requests that name them."""

import hashlib
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from app_samples import DIGEST, MODEL_BYTES, WITH_SHAPES, request

from app.service import Service
from bessemer.contract.extension import MAX_EXTENSIONS
from bessemer.contract.problem import ErrorCode, make_problem
from tests.inspections import inspected
from tests.tenant_data import own

FILE = b"REWRITES = ()\n"
EXTENSION = hashlib.sha256(FILE).hexdigest()
PATH = f"/v1/extensions/{EXTENSION}"
REQUEST = ("request", (None, '{"target": "host"}'))
MODEL = ("model", ("mlp.pt2", MODEL_BYTES))


async def put(
    api: httpx.AsyncClient, content: bytes = FILE, path: str = PATH, **params: str
) -> httpx.Response:
    return await api.put(path, content=content, params=params)


async def ready_model(api: httpx.AsyncClient, front: Service) -> None:
    await api.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
    inspected(front.store, DIGEST, WITH_SHAPES)


async def test_an_extension_is_stored_once_and_found_by_its_digest(
    api: httpx.AsyncClient, front: Service
) -> None:
    assert (await api.head(PATH)).status_code == 404
    first, second = await put(api, name="mine.py"), await put(api, name="other.py")
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.headers["Location"] == PATH
    assert first.json() == second.json()
    assert (first.json()["digest"], first.json()["name"], first.json()["size_bytes"]) == (
        EXTENSION,
        "mine.py",
        len(FILE),
    )
    assert (await api.head(PATH)).status_code == 200
    assert (await api.get(f"/v1/extensions/{EXTENSION[:8]}")).json() == first.json()
    assert (await api.get("/v1/extensions")).json()["items"] == [first.json()]
    assert b"".join(own(front.store).artifacts.stream(EXTENSION)) == FILE


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 422, "extension-invalid"),
        (b"x" * 4097, 413, "extension-too-large"),
        (b"another file", 422, "digest-mismatch"),
    ],
)
async def test_an_upload_that_is_refused_stores_nothing(
    api: httpx.AsyncClient, front: Service, content: bytes, status: int, code: str
) -> None:
    path = PATH if status != 413 else f"/v1/extensions/{hashlib.sha256(content).hexdigest()}"
    refused = await put(api, content, path)
    assert (refused.status_code, refused.json()["code"]) == (status, code)

    async def chunks() -> AsyncIterator[bytes]:
        yield content

    streamed = await api.put(path, content=chunks())
    assert (streamed.status_code, streamed.json()["code"]) == (status, code)
    assert (await api.get("/v1/extensions")).json()["items"] == []


async def test_an_extension_is_deleted_unless_a_job_needs_it(api: httpx.AsyncClient, front: Service) -> None:
    await ready_model(api, front)
    await put(api)
    job = (await api.post("/v1/compilations", json=request(extensions=[EXTENSION]))).json()
    refused = await api.delete(PATH)
    assert (refused.status_code, refused.json()["code"]) == (409, "extension-in-use")
    assert job["id"] in refused.json()["detail"]
    await api.post(f"/v1/compilations/{job['id']}/cancel")
    assert (await api.delete(PATH)).status_code == 204
    assert (await api.delete(PATH)).status_code == 404


@pytest.mark.parametrize(
    ("extensions", "code"),
    [
        (["e" * 64], "extension-missing"),
        (["mine.py"], "request-invalid"),
        ([EXTENSION, EXTENSION], "request-invalid"),
        ([f"{number:064x}" for number in range(MAX_EXTENSIONS + 1)], "request-invalid"),
    ],
)
async def test_a_request_that_names_what_it_cannot_is_refused(
    api: httpx.AsyncClient, front: Service, extensions: list[str], code: str
) -> None:
    await ready_model(api, front)
    await put(api)
    refused = await api.post("/v1/compilations", json=request(extensions=extensions))
    assert (refused.status_code, refused.json()["code"]) == (422, code)


async def test_extensions_count_in_the_identity_of_a_request(api: httpx.AsyncClient, front: Service) -> None:
    await ready_model(api, front)
    await put(api)
    headers = {"Idempotency-Key": "build-17"}
    await api.post("/v1/compilations", json=request(), headers=headers)
    other = await api.post("/v1/compilations", json=request(extensions=[EXTENSION]), headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency-conflict")


async def test_a_form_carries_extensions_beside_those_that_its_request_names(
    api: httpx.AsyncClient, front: Service
) -> None:
    await put(api)
    parts = [("extension", (name, name.encode())) for name in ("a.py", "sub/b.py", "a.py")]
    named = ("request", (None, json.dumps({"target": "host", "extensions": [EXTENSION]})))
    answer = await api.post("/v1/compilations", files=[*parts, MODEL, named])
    digests = [hashlib.sha256(name).hexdigest() for name in (b"a.py", b"sub/b.py")]
    assert answer.json()["request"]["extensions"] == [EXTENSION, *digests]
    found = [own(front.store).extensions.get(digest) for digest in digests]
    assert [each and each.name for each in found] == ["a.py", "b.py"]


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ([("extension", ("a.py", b"")), MODEL, REQUEST], 422, "extension-invalid"),
        ([("extension", ("a.py", b"x" * 4097)), MODEL, REQUEST], 413, "extension-too-large"),
        (
            [
                *(("extension", (None, b"%d" % number)) for number in range(MAX_EXTENSIONS + 1)),
                MODEL,
                REQUEST,
            ],
            422,
            "request-invalid",
        ),
        (
            [
                ("extension", ("a.py", b"x")),
                MODEL,
                ("request", (None, '{"target": "host", "extensions": 1}')),
            ],
            422,
            "request-invalid",
        ),
    ],
    ids=["empty", "too-large", "too-many", "no-list"],
)
async def test_a_form_with_a_wrong_extension_queues_nothing(
    api: httpx.AsyncClient, fields: list[tuple[str, object]], status: int, code: str
) -> None:
    refused = await api.post("/v1/compilations", files=fields)  # type: ignore[arg-type]
    assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert (await api.get("/v1/compilations")).json()["items"] == []


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.MODEL_LOAD_FAILED, 202),
        (ErrorCode.MODEL_LEAF_UNAVAILABLE, 202),
        (ErrorCode.MODEL_OPERATOR_UNAVAILABLE, 202),
        (ErrorCode.MODEL_MODULE_INVALID, 202),
        (ErrorCode.MODEL_DAMAGED, 422),
    ],
)
async def test_an_extension_may_bring_what_a_rejected_model_lacks(
    api: httpx.AsyncClient, front: Service, code: ErrorCode, status: int
) -> None:
    await api.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
    inspected(front.store, DIGEST, make_problem(code, "no operator 'mine::op'"))
    await put(api)
    assert (await api.post("/v1/compilations", json=request())).status_code == 422
    answer = await api.post("/v1/compilations", json=request(extensions=[EXTENSION]))
    assert answer.status_code == status
