"""Names and shortened ids over HTTP."""

import json

import httpx
import pytest
from app_samples import DIGEST, MODEL_BYTES, PlayedWorker, request

from app.service import Service
from bessemer.contract.request import CompilationRequest
from tests.tenant_data import own

JOBS = ("2c26b46b68ffc68ff99b453c1d304134", "2c26b46b" + "0" * 24, "f" * 32)


@pytest.fixture
async def three(api: httpx.AsyncClient, front: Service) -> tuple[str, ...]:
    """Compilations, two of which have ids that start alike."""
    await api.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
    for job_id in JOBS:
        own(front.store).jobs.submit(job_id, CompilationRequest.model_validate(request()))
    return JOBS


async def submit_form(api: httpx.AsyncClient, file: str, **fields: object) -> dict[str, object]:
    parts = {"model": (file, MODEL_BYTES), "request": (None, json.dumps({"target": "host", **fields}))}
    answer = await api.post("/v1/compilations", files=parts)
    assert answer.status_code == 202
    found: dict[str, object] = answer.json()
    return found


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("mlp.pt2", "mlp"),
        ("../../mlp.pt2", "mlp"),
        ("C:\\nets\\mlp.pt2", "mlp"),
        ("résnet 50.pt2", "résnet 50"),
        ("m" * 300, "m" * 128),
        (".pt2", None),
    ],
)
async def test_a_form_names_model_and_compilation_by_the_file(
    api: httpx.AsyncClient, file: str, name: str | None
) -> None:
    assert (await submit_form(api, file))["name"] == name
    assert (await api.get(f"/v1/models/{DIGEST}")).json()["name"] == name


async def test_a_model_keeps_its_first_name_and_a_compilation_has_its_own(api: httpx.AsyncClient) -> None:
    submitted = [
        await submit_form(api, "mlp.pt2"),
        await submit_form(api, "copy.pt2"),
        await submit_form(api, "mlp.pt2", name="nightly"),
        (await api.post("/v1/compilations", json=request())).json(),
    ]
    assert [job["name"] for job in submitted] == ["mlp", "copy", "nightly", "mlp"]
    assert (await api.get("/v1/models?name=mlp")).json()["items"][0]["digest"] == DIGEST
    listed = (await api.get("/v1/compilations?name=mlp")).json()["items"]
    assert [job["id"] for job in listed] == [submitted[3]["id"], submitted[0]["id"]]


async def test_an_upload_may_name_its_model(api: httpx.AsyncClient) -> None:
    answer = await api.put(f"/v1/models/{DIGEST}?name=mlp", content=MODEL_BYTES)
    assert answer.json()["name"] == "mlp"


@pytest.mark.parametrize("name", ["", " mlp", "a\nb", "\x1b[2J", "n" * 129, 7])
async def test_what_is_no_name_is_refused(api: httpx.AsyncClient, name: object) -> None:
    await api.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
    answer = await api.post("/v1/compilations", json=request(name=name))
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "name")
    listed = await api.get("/v1/compilations", params={"name": str(name) if name != 7 else "x\ty"})
    assert (listed.status_code, listed.json()["errors"][0]["field"]) == (422, "name")


async def test_downloads_are_called_by_name_and_target(
    api: httpx.AsyncClient, front: Service, played: PlayedWorker
) -> None:
    job = str((await submit_form(api, "rés<b>.pt2"))["id"])
    played.succeed(job, played.start(job))
    for file, kind, name in (
        ("bundle.tar.zst", "attachment", "rés-b-host.tar.zst"),
        ("report.html", "inline", "rés-b-host-report.html"),
    ):
        header = (await api.head(f"/v1/compilations/{job}/artifacts/{file}")).headers["Content-Disposition"]
        plain, quoted = name.replace("é", "_"), name.replace("é", "%C3%A9")
        assert header == f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quoted}"


@pytest.mark.parametrize("path", ["", "/events", "/logs", "/artifacts", "/invocations"])
async def test_the_start_of_an_id_names_a_compilation(
    api: httpx.AsyncClient, front: Service, three: tuple[str, ...], path: str
) -> None:
    own(front.store).jobs.request_cancel(three[2])
    whole = await api.get(f"/v1/compilations/{three[2]}{path}")
    short = await api.get(f"/v1/compilations/ffff{path}")
    assert (short.status_code, short.content) == (whole.status_code, whole.content) == (200, whole.content)


async def test_an_id_that_is_not_unique_changes_nothing(
    api: httpx.AsyncClient, front: Service, three: tuple[str, ...]
) -> None:
    asked = "/v1/compilations/2c26"
    answers = [await api.get(asked), await api.post(f"{asked}/cancel"), await api.delete(asked)]
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(409, "id-ambiguous")] * 3
    assert all(job_id in answers[0].json()["detail"] for job_id in three[:2])
    assert three[2] not in answers[0].json()["detail"]
    assert {job.state.value for job in own(front.store).jobs.page(10).items} == {"queued"}


async def test_cancel_and_delete_take_the_start_of_an_id(
    api: httpx.AsyncClient, front: Service, three: tuple[str, ...]
) -> None:
    cancelled = await api.post("/v1/compilations/2c26b46b6/cancel")
    assert (cancelled.status_code, cancelled.json()["id"]) == (200, three[0])
    assert (await api.delete("/v1/compilations/2c26b46b6")).status_code == 204
    assert {job.id for job in own(front.store).jobs.page(10).items} == set(three[1:])


@pytest.mark.parametrize(
    "given", ["2c2", "2C26", "%25%25%25%25", "____", "2c26b46b68ffc68ff99b453c1d3041345"]
)
async def test_what_starts_no_id_is_not_found(
    api: httpx.AsyncClient, three: tuple[str, ...], given: str
) -> None:
    answer = await api.get(f"/v1/compilations/{given}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


async def test_the_start_of_a_digest_names_a_model(api: httpx.AsyncClient) -> None:
    await api.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
    short = f"/v1/models/{DIGEST[:6]}"
    assert (await api.get(short)).json()["digest"] == DIGEST
    assert (await api.head(short)).status_code == 200
    assert (await api.put(short, content=MODEL_BYTES)).status_code == 422
    assert (await api.delete(short)).status_code == 204
    assert (await api.get(short)).status_code == 404


@pytest.mark.parametrize("path", ["/v1/models/2c2", "/v1/compilations?model=2c2"])
async def test_a_digest_that_is_too_short_is_refused_in_words(api: httpx.AsyncClient, path: str) -> None:
    answer = await api.get(path)
    assert answer.status_code == 422
    assert "its first 4 or more lower-case hexadecimal digits" in answer.json()["detail"]
