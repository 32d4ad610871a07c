"""Asking for runs of a compiled library."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from app_samples import LATENCY, PlayedWorker, worker

from app.service import Service
from app.settings import AppSettings
from app.sweeper import sweep
from bessemer.contract.capability import Capability
from bessemer.contract.invocation import OUTPUTS, Invocation
from bessemer.contract.job import Artifact, JobState
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.tensor import TensorSpec
from tests.tenant_data import own, started

INPUTS = b"arrays, as far as the front end can tell"
KEY = {"Idempotency-Key": "run 3"}


@pytest.fixture
def compiled(job: str, played: PlayedWorker) -> str:
    """The path of the invocations of a compilation that has a bundle."""
    played.succeed(job, played.start(job))
    return f"/v1/compilations/{job}/invocations"


async def invoked(api: httpx.AsyncClient, path: str) -> Invocation:
    response = await api.post(path, content=INPUTS)
    assert response.status_code == 202
    return Invocation.model_validate_json(response.content)


def finish(front: Service, invocation: Invocation, folder: Path) -> Artifact:
    attempt = started(front.store.invocations, invocation.id, "w1")
    (folder / OUTPUTS).write_bytes(b"outputs")
    blob = own(front.store).artifacts.put_file(folder / OUTPUTS)
    artifact = Artifact(
        name=OUTPUTS, digest=blob.digest, size_bytes=blob.size_bytes, media_type="application/zip"
    )
    outputs = (TensorSpec(name="y", shape=(1, 10)),)
    front.store.invocations.succeed(invocation.id, attempt, 2, LATENCY, outputs, artifact)
    return artifact


async def test_inputs_are_stored_and_a_run_is_queued(
    api: httpx.AsyncClient, front: Service, compiled: str
) -> None:
    response = await api.post(compiled, content=INPUTS, params={"runs": 7})
    invocation = Invocation.model_validate_json(response.content)
    assert (response.status_code, response.headers["Location"]) == (202, f"{compiled}/{invocation.id}")
    assert (invocation.state, invocation.runs) == (JobState.QUEUED, 7)
    assert b"".join(own(front.store).artifacts.stream(invocation.inputs)) == INPUTS
    assert front.store.invocations.unenqueued(0) == ()
    read = await api.get(response.headers["Location"])
    assert (read.json(), read.headers["Retry-After"]) == (response.json(), "1")


async def test_outputs_are_downloaded_once_they_are_there(
    api: httpx.AsyncClient, front: Service, compiled: str, tmp_path: Path
) -> None:
    invocation = await invoked(api, compiled)
    path = f"{compiled}/{invocation.id}"
    early = await api.get(f"{path}/outputs")
    assert (early.status_code, early.json()["code"]) == (404, "not-found")
    artifact = finish(front, invocation, tmp_path)
    assert (await api.get(path)).json()["latency"]["runs"] == LATENCY.runs
    whole = await api.get(f"{path}/outputs")
    assert (whole.content, whole.headers["ETag"]) == (b"outputs", f'"{artifact.digest}"')
    head = await api.head(f"{path}/outputs", headers={"If-None-Match": whole.headers["ETag"]})
    assert head.status_code == 304


async def test_a_problem_of_the_run_is_in_its_document(
    api: httpx.AsyncClient, front: Service, compiled: str
) -> None:
    invocation = await invoked(api, compiled)
    attempt = started(front.store.invocations, invocation.id)
    problem = make_problem(ErrorCode.INPUTS_MISMATCH, "no input 'z'")
    front.store.invocations.fail(invocation.id, attempt, problem)
    document = (await api.get(f"{compiled}/{invocation.id}")).json()
    assert (document["state"], document["problem"]["code"]) == ("failed", "inputs-mismatch")


async def test_a_library_that_no_live_worker_runs_is_refused(
    api: httpx.AsyncClient, front: Service, compiled: str
) -> None:
    weak = Capability(architecture="x86_64", processors={"znver4": ("avx512f",)})
    front.store.workers.beat(worker().model_copy(update={"capability": weak}))
    response = await api.post(compiled, content=INPUTS)
    assert (response.status_code, response.json()["code"]) == (422, "target-not-runnable")
    assert "w1 lacks avx512f" in response.json()["detail"]


async def test_the_same_key_and_inputs_give_the_same_run(
    api: httpx.AsyncClient, settings: AppSettings, compiled: str
) -> None:
    answers = [await api.post(compiled, content=INPUTS, headers=KEY) for _ in range(2)]
    assert len({answer.json()["id"] for answer in answers}) == 1
    other = await api.post(compiled, content=b"others", headers=KEY)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency-conflict")
    others = sha256(b"others").hexdigest()
    assert not [path for path in settings.folder.rglob("*") if others in path.name]
    listed = (await api.get(compiled)).json()
    assert [item["id"] for item in listed["items"]] == [answers[0].json()["id"]]


async def test_an_invocation_is_cancelled_while_it_waits_asked_while_it_runs_and_refused_after(
    api: httpx.AsyncClient, front: Service, compiled: str, tmp_path: Path
) -> None:
    waiting, running, ended = [await invoked(api, compiled) for _ in range(3)]
    front.store.workers.beat(worker())
    attempt = started(front.store.invocations, running.id, worker().id)
    finish(front, ended, tmp_path)
    answers = [await api.post(f"{compiled}/{one.id}/cancel") for one in (waiting, running, ended)]
    assert [answer.status_code for answer in answers] == [200, 202, 409]
    assert ["Retry-After" in answer.headers for answer in answers] == [False, True, False]
    assert [answers[0].json()["state"], answers[1].json()["state"], answers[2].json()["code"]] == [
        "cancelled",
        "running",
        "state-conflict",
    ]
    assert front.store.invocations.cancel_requested(running.id, attempt)


async def test_an_invocation_belongs_to_its_clients_trace(
    api: httpx.AsyncClient, front: Service, compiled: str
) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    answer = await api.post(compiled, content=INPUTS, headers={"traceparent": trace})
    assert front.store.invocations.traceparent(answer.json()["id"]) == trace


@pytest.mark.parametrize("ends_as", ["queued", "failed"])
async def test_what_has_no_bundle_cannot_be_run(
    api: httpx.AsyncClient, played: PlayedWorker, job: str, ends_as: str
) -> None:
    if ends_as == "failed":
        played.fail(job, played.start(job))
    response = await api.post(f"/v1/compilations/{job}/invocations", content=INPUTS)
    assert (response.status_code, response.json()["code"]) == (409, "state-conflict")
    assert f"is {ends_as}" in response.json()["detail"]


@pytest.mark.parametrize(
    ("content", "params", "status", "code"),
    [
        (b"", {}, 422, "inputs-unreadable"),
        (bytes(5000), {}, 413, "inputs-too-large"),
        (INPUTS, {"runs": -1}, 422, "request-invalid"),
        (INPUTS, {"runs": 10_001}, 422, "request-invalid"),
    ],
)
async def test_a_run_that_is_refused_is_not_listed(
    api: httpx.AsyncClient, compiled: str, content: bytes, params: dict[str, int], status: int, code: str
) -> None:
    response = await api.post(compiled, content=content, params=params)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert (await api.get(compiled)).json()["items"] == []


async def test_an_invocation_is_found_under_its_own_compilation_alone(
    api: httpx.AsyncClient, compiled: str, model: str
) -> None:
    invocation = await invoked(api, compiled)
    other = (await api.post("/v1/compilations", json={"model": model, "target": "host"})).json()["id"]
    for path in (f"/v1/compilations/{other}/invocations/{invocation.id}", f"{compiled}/nonsense"):
        assert (await api.get(path)).status_code == 404


async def test_an_invocation_that_never_reached_the_queue_is_enqueued(
    front: Service, api: httpx.AsyncClient, compiled: str
) -> None:
    job_id = compiled.split("/")[3]
    own(front.store).invocations.submit("never-enqueued", job_id, "0" * 64, 1, 1)
    eager = replace(front, settings=front.settings.model_copy(update={"sweep_age_seconds": 0}))
    assert (sweep(eager), sweep(eager)) == (1, 0)
