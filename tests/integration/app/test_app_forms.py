"""A model and its request in one body."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from app_samples import DIGEST, MODEL_BYTES, UPLOAD_LIMIT_BYTES, WITH_SHAPES
from fastapi import FastAPI

from app.http.forms import ENVELOPE_BYTES
from app.service import Service
from bessemer.contract.extension import MAX_EXTENSIONS
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.model import ModelState
from bessemer.contract.options import MAX_RECORDS
from tests.inspections import inspected
from tests.tenant_data import own

MODEL = ("model", ("mlp.pt2", MODEL_BYTES))
REQUEST = ("request", (None, json.dumps({"target": "host", "tune": {"trials": 3}})))


async def post(api: httpx.AsyncClient, *fields: tuple[str, object], key: str | None = None) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return await api.post("/v1/compilations", files=list(fields), headers=headers)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [(MODEL, REQUEST), (REQUEST, MODEL)])
async def test_a_form_uploads_its_model_and_queues_its_request(
    api: httpx.AsyncClient, front: Service, fields: tuple[tuple[str, object], ...]
) -> None:
    response = await post(api, *fields)
    job = Compilation.model_validate_json(response.content)
    assert (response.status_code, response.headers["Location"]) == (202, f"/v1/compilations/{job.id}")
    assert (job.state, job.request.model, job.request.tune.trials) == (JobState.QUEUED, DIGEST, 3)
    stored = own(front.store).models.get(DIGEST)
    assert stored is not None
    assert (stored.state, stored.size_bytes) == (ModelState.INSPECTING, len(MODEL_BYTES))
    assert b"".join(own(front.store).artifacts.stream(DIGEST)) == MODEL_BYTES


async def test_several_models_become_the_entries_of_their_names(api: httpx.AsyncClient) -> None:
    models = (("model", (f"{name}.pt2", MODEL_BYTES + name.encode())) for name in ("prefill", "decode"))
    job = Compilation.model_validate_json((await post(api, *models, REQUEST)).content)
    prefill, decode = (
        hashlib.sha256(MODEL_BYTES + name.encode()).hexdigest() for name in ("prefill", "decode")
    )
    assert (job.name, job.request.models) == ("prefill", (prefill, decode))
    assert {name: entry.model for name, entry in job.request.entries.items()} == {
        "prefill": prefill,
        "decode": decode,
    }


async def test_the_same_form_under_the_same_key_is_the_same_compilation(api: httpx.AsyncClient) -> None:
    answers = [await post(api, MODEL, REQUEST, key="build 17") for _ in range(2)]
    assert len({answer.json()["id"] for answer in answers}) == 1
    other = await post(api, MODEL, ("request", (None, '{"target": "x86-64-v3"}')), key="build 17")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency-conflict")


@pytest.mark.parametrize(
    ("fields", "status", "code", "field"),
    [
        ((MODEL,), 422, "request-invalid", "request"),
        ((REQUEST,), 422, "request-invalid", "model"),
        ((MODEL, MODEL), 422, "request-invalid", "model"),
        ((("model", (None, b"x")), MODEL, REQUEST), 422, "request-invalid", "model"),
        (
            (MODEL, ("model", ("other.pt2", b"x")), ("request", (None, '{"target": "host", "entries": {}}'))),
            422,
            "request-invalid",
            "model",
        ),
        (
            (MODEL, ("model", ("other.pt2", b"x")), ("request", (None, '{"target": "host", "entries": 1}'))),
            422,
            "request-invalid",
            "entries",
        ),
        (
            (
                MODEL,
                ("extension", ("a.py", b"pass")),
                ("request", (None, '{"target": "host", "extensions": [{}]}')),
            ),
            422,
            "request-invalid",
            "extensions[0]",
        ),
        (
            (
                MODEL,
                ("model", ("b.pt2", b"x")),
                ("request", (None, '{"target": "host", "entries": {"\\ud800": {}}}')),
            ),
            422,
            "request-invalid",
            "model",
        ),
        ((("modle", ("a", b"x")), REQUEST), 422, "request-invalid", "modle"),
        ((MODEL, ("request", (None, "{target: host}"))), 422, "request-invalid", "request"),
        ((MODEL, ("request", (None, "[]"))), 422, "request-invalid", "request"),
        ((MODEL, ("request", (None, "[" * 100_000))), 422, "request-invalid", "request"),
        ((MODEL, ("request", (None, '{"target": "hots"}'))), 422, "request-invalid", "target"),
        ((MODEL, ("request", (None, '{"model": 7, "target": "host"}'))), 422, "request-invalid", "model"),
        ((MODEL, ("request", (None, '{"model": null, "target": "host"}'))), 422, "request-invalid", "model"),
        (
            (("request", (None, '{"model": "\\ud800", "target": "host"}')), MODEL),
            422,
            "request-invalid",
            "model",
        ),
        (
            (("request", (None, json.dumps({"model": "0" * 64, "target": "host"}))), MODEL),
            422,
            "digest-mismatch",
            None,
        ),
        ((MODEL, ("request", (None, '{"target": "x", "target": "host"}'))), 422, "request-invalid", "target"),
        ((("model", ("a", b"")), REQUEST), 422, "model-empty", None),
        ((("model", ("a", bytes(UPLOAD_LIMIT_BYTES + 1))), REQUEST), 413, "model-too-large", None),
        ((("request", (None, " " * (1 << 20) + " ")), MODEL), 413, "request-too-large", None),
    ],
)
async def test_a_form_that_is_wrong_queues_nothing_and_says_what_is(
    api: httpx.AsyncClient,
    fields: tuple[tuple[str, object], ...],
    status: int,
    code: str,
    field: str | None,
) -> None:
    response = await post(api, *fields)
    problem = response.json()
    assert (response.status_code, problem["code"]) == (status, code)
    assert [error["field"] for error in problem["errors"]] == ([field] if field else [])
    assert (await api.get("/v1/compilations")).json()["items"] == []


async def test_a_form_that_declares_too_much_is_refused_before_it_is_read(api: httpx.AsyncClient) -> None:
    response = await api.post(
        "/v1/compilations",
        content=b"",
        headers={
            "Content-Type": "multipart/form-data; boundary=x",
            "Content-Length": str(
                (1 + MAX_EXTENSIONS + MAX_RECORDS) * UPLOAD_LIMIT_BYTES + ENVELOPE_BYTES + 1
            ),
        },
    )
    assert (response.status_code, response.json()["code"]) == (413, "model-too-large")


async def test_a_form_that_is_cut_off_keeps_nothing(api: httpx.AsyncClient, front: Service) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nhalf of a mod'
    response = await api.post(
        "/v1/compilations", content=body, headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert (response.status_code, response.json()["code"]) == (400, "upload-incomplete")
    assert not any(path.is_file() for path in (front.settings.folder / "artifacts").rglob("*"))


async def test_a_model_of_which_the_signature_is_known_is_checked_against_the_form(
    api: httpx.AsyncClient, front: Service, model: str
) -> None:
    inspected(front.store, model, WITH_SHAPES)
    wrong = {"target": "host", "inputs": [{"name": "y", "shape": [1, 784]}]}
    response = await post(api, MODEL, ("request", (None, json.dumps(wrong))))
    assert (response.status_code, response.json()["code"]) == (422, "inputs-mismatch")


def standing_still(*blocks: bytes) -> AsyncIterator[bytes]:
    """A body whose sender says no more, and does not leave either."""

    async def chunks() -> AsyncIterator[bytes]:
        for block in blocks:
            yield block
        await asyncio.Event().wait()

    return chunks()


FORM_TYPE = "multipart/form-data; boundary=b"
PART = b'--b\r\nContent-Disposition: form-data; name="request"\r\n\r\n{"target": "host"}\r\n'
MODEL_PART = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n'


@pytest.mark.parametrize(
    ("media_type", "blocks"),
    [
        (FORM_TYPE, ()),
        (FORM_TYPE, (b"--b\r\nContent-Dispo",)),
        (FORM_TYPE, (PART + b"--b\r\n",)),
        (FORM_TYPE, (PART + MODEL_PART, MODEL_BYTES)),
        ("application/json", (b'{"target": ',)),
    ],
    ids=["nothing", "within a header", "between two parts", "within the model", "within a document"],
)
async def test_a_body_that_stands_still_is_given_up(
    app: FastAPI, api: httpx.AsyncClient, front: Service, media_type: str, blocks: tuple[bytes, ...]
) -> None:
    app.state.service = replace(
        front, settings=front.settings.model_copy(update={"upload_idle_seconds": 0.1})
    )
    response = await api.post(
        "/v1/compilations", content=standing_still(*blocks), headers={"Content-Type": media_type}
    )
    assert (response.status_code, response.json()["code"]) == (400, "upload-incomplete")
    assert own(front.store).models.get(DIGEST) is None


async def test_a_form_brings_the_records_and_the_schedules_of_a_search(
    api: httpx.AsyncClient, front: Service
) -> None:
    texts = (b'["1", "x"]\n', b"[0, []]\n")
    records = [("records", (f"database_{index}.json", text)) for index, text in enumerate(texts)]
    tune = {"trials": 3, "schedules": {"fused_linear*": "my_schedule.py:tile"}}
    request = ("request", (None, json.dumps({"target": "host", "tune": tune})))
    schedule = b"pass\n"
    own(front.store).extensions.add(hashlib.sha256(schedule).hexdigest(), len(schedule), "first_name.py")
    answer = await post(api, MODEL, ("extension", ("my_schedule.py", schedule)), *records, request)
    job = Compilation.model_validate_json(answer.content)
    assert job.request.tune.records == tuple(hashlib.sha256(text).hexdigest() for text in texts)
    assert job.request.tune.schedules == tune["schedules"]
    assert job.request.extension_names == {hashlib.sha256(schedule).hexdigest(): "my_schedule.py"}
    assert all(own(front.store).extensions.get(digest) for digest in job.request.uploads)


@pytest.mark.parametrize(
    "tune", [{"schedules": {"f": "my_schedule.py"}}, {"records": ["0" * 64]}, {"schedules": {"f": "a:b:c"}}]
)
async def test_schedules_need_extensions_and_records_need_trials(
    api: httpx.AsyncClient, tune: dict[str, object]
) -> None:
    request = ("request", (None, json.dumps({"target": "host", "tune": tune})))
    refused = await post(api, MODEL, request)
    assert (refused.status_code, refused.json()["code"]) == (422, "request-invalid")


async def test_records_that_are_not_uploaded_are_refused(api: httpx.AsyncClient) -> None:
    tune = {"trials": 1, "records": ["0" * 64]}
    answer = await post(api, MODEL, ("request", (None, json.dumps({"target": "host", "tune": tune}))))
    assert answer.json()["code"] == "extension-missing"
