"""Submitting, reading, listing and cancelling compilations."""

import asyncio
import json

import httpx
import pytest
from app_samples import DIGEST, WITH_SHAPES, WITHOUT_SHAPES, PlayedWorker, request, submitted, worker

from app.http.bodies import MAX_DOCUMENT_BYTES
from app.service import Service
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.problem import ErrorCode, make_problem
from tests.inspections import inspected

KEY = {"Idempotency-Key": "build 17"}
IMAGE = {"name": "x", "shape": [1, 784]}


async def test_a_submitted_compilation_is_queued_and_has_an_address(
    api: httpx.AsyncClient, front: Service, model: str
) -> None:
    response = await api.post("/v1/compilations", json=request(tune={"trials": 3}))
    job = Compilation.model_validate_json(response.content)
    assert (response.status_code, response.headers["Location"]) == (202, f"/v1/compilations/{job.id}")
    assert (job.state, job.request.tune.trials) == (JobState.QUEUED, 3)
    assert front.store.jobs.unenqueued(0) == ()
    assert (await api.get(response.headers["Location"])).json() == response.json()


async def test_a_model_that_was_never_uploaded_is_named(api: httpx.AsyncClient) -> None:
    response = await api.post("/v1/compilations", json=request())
    assert (response.status_code, response.json()["code"]) == (422, "model-missing")
    assert DIGEST in response.json()["detail"]


async def test_a_rejected_model_is_refused_with_what_its_inspection_said(
    api: httpx.AsyncClient, front: Service, model: str
) -> None:
    inspected(front.store, model, make_problem(ErrorCode.MODEL_UNSAFE_ARCHIVE, "a bomb"))
    response = await api.post("/v1/compilations", json=request())
    assert (response.status_code, response.json()["code"]) == (422, "model-unsafe-archive")
    assert response.json()["detail"] == "a bomb"


async def test_inputs_that_the_format_does_not_tell_are_asked_for(
    api: httpx.AsyncClient, front: Service, model: str
) -> None:
    inspected(front.store, model, WITHOUT_SHAPES)
    without = await api.post("/v1/compilations", json=request())
    named = await api.post("/v1/compilations", json=request(inputs=[IMAGE]))
    assert (without.status_code, without.json()["code"]) == (422, "inputs-missing")
    assert named.status_code == 202


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"name": "y", "shape": [1, 784]}, "inputs[0].name"),
        ({"name": "x", "shape": [784]}, "inputs[0].shape"),
        ({"name": "x", "shape": [1, 784], "dtype": "int64"}, "inputs[0].dtype"),
    ],
)
async def test_inputs_that_contradict_the_signature_are_refused(
    api: httpx.AsyncClient, front: Service, model: str, spec: dict[str, object], field: str
) -> None:
    inspected(front.store, model, WITH_SHAPES)
    response = await api.post("/v1/compilations", json=request(inputs=[spec]))
    assert (response.status_code, response.json()["code"]) == (422, "inputs-mismatch")
    assert response.json()["errors"][0]["field"] == field


@pytest.mark.parametrize(
    ("change", "field", "hint"),
    [
        ({"tune": {"trails": 3}}, "tune.trails", "trials"),
        ({"tunes": {}}, "tunes", "tune"),
        ({"target": "x86-64-v9"}, "target", "x86-64-v"),
        ({"target": {"mcpu": "znver4", "feature": []}}, "target.feature", "features"),
        ({"inputs": [{"name": "x", "shape": [1], "dtype": "float31"}]}, "inputs[0].dtype", "float32"),
        ({"benchmark": {"baselines": ["torch-eage"]}}, "benchmark.baselines[0]", "torch-eager"),
    ],
)
async def test_an_unknown_word_is_answered_with_the_nearest_known_one(
    api: httpx.AsyncClient, model: str, change: dict[str, object], field: str, hint: str
) -> None:
    response = await api.post("/v1/compilations", json=request(**change))
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["field"] == field
    assert f"did you mean '{hint}" in error["message"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("NaN", "expected a finite number"),
        ("1e400", "expected a finite number"),
        (str(2**63), "expected a whole number of 64 bits"),
        ("[1]", "expected a number, a boolean, a text or null"),
    ],
)
@pytest.mark.parametrize("place", ["constants", "entries.first.constants"])
async def test_a_constant_that_no_library_holds_is_refused(
    api: httpx.AsyncClient, model: str, place: str, value: str, message: str
) -> None:
    constants = f'{{"constants": {{"x": {value}}}}}'
    body = constants if place == "constants" else f'{{"entries": {{"first": {constants}}}}}'
    text = json.dumps(request())[:-1] + f", {body[1:]}"
    response = await api.post("/v1/compilations", content=text, headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert response.json()["errors"] == [{"field": f"{place}.x", "message": message}]


@pytest.mark.parametrize(
    "target", ["arm64e", "vulkan", "llvm -mcpu=cortex-m4", {"kind": "rocm", "mcpu": "gfx90a"}]
)
async def test_a_target_that_is_not_compiled_for_is_answered_with_what_is_supported(
    api: httpx.AsyncClient, model: str, target: object
) -> None:
    response = await api.post("/v1/compilations", json=request(target=target))
    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, "target-unsupported")
    assert "Bessemer supports x86-64, 64-bit Arm and 64-bit RISC-V on Linux" in problem["detail"]
    assert "NVIDIA GPUs on Linux: `cuda-sm_90`" in problem["detail"]
    assert [error["field"] for error in problem["errors"]] == ["target"]


ARM = {"mcpu": "cortex-a72", "triple": "aarch64-unknown-linux-gnu"}
RISCV = {"mcpu": "generic-rv64", "triple": "riscv64-unknown-linux-gnu"}


@pytest.mark.parametrize(
    ("target", "code", "field", "part"),
    [
        ({"mcpu": "znver9"}, "request-invalid", "mcpu", "did you mean 'znver5'?"),
        (
            {"mcpu": "cuda"},
            "request-invalid",
            "mcpu",
            "is a GPU, not a processor: name it as the target, 'cuda'",
        ),
        ({"mcpu": "cortex-a72"}, "request-invalid", "mcpu", "no processor 'cortex-a72' for x86_64"),
        ({"mcpu": "cortex-m4"}, "target-unsupported", "mcpu", "'cortex-m4' is an Arm target"),
        ({"mcpu": "i686"}, "target-unsupported", "mcpu", "an x86 processor without 64-bit code"),
        ({"mcpu": "native"}, "request-invalid", "mcpu", "LLVM knows no processor 'native'"),
        ({"triple": "llvm"}, "request-invalid", "triple", "did you mean 'x86_64-unknown-linux-gnu'?"),
        ({"triple": "x86-64-linux-gnu"}, "request-invalid", "triple", "no architecture 'x86'"),
        ({"triple": "wasm32-unknown-linux-gnu"}, "target-unsupported", "triple", "is not supported"),
        ({"triple": "i686-unknown-linux-gnu"}, "target-unsupported", "triple", "without 64-bit code"),
        ({"triple": "x86_64-apple-darwin"}, "request-invalid", "triple", "write 'x86_64-apple-macos11.0'"),
        ({"triple": "x86_64-unknown-freebsd"}, "request-invalid", "triple", "Linux, macOS and Windows"),
        ({"triple": "x86_64-unknown-linux-android"}, "request-invalid", "triple", "gnu.2.28 or musl"),
        ({"triple": "x86_64-unknown-linux-gnu.2.5"}, "request-invalid", "triple", "with gnu.2.17"),
        ({"triple": "arm64-apple-macos11.0"}, "request-invalid", "triple", "mean 'aarch64-apple-macos11.0'"),
        ({"triple": "x86_64-apple-macos10.9"}, "request-invalid", "triple", "need macOS 11.0 or newer"),
        ({"triple": "aarch64-apple-ios"}, "target-unsupported", "triple", "an Apple target without macOS"),
        ({"triple": "aarch64-pc-windows-gnu"}, "request-invalid", "triple", "builds for x86_64 only"),
        ({"triple": "x86_64-pc-windows"}, "request-invalid", "triple", "write 'x86_64-pc-windows-gnu'"),
        ({"triple": "mips64-unknown-linux-gnu"}, "target-unsupported", "triple", "is not supported"),
        ({"triple": "powerpc64le-unknown-linux-gnu"}, "target-unsupported", "triple", "is not supported"),
        ({"triple": "x86_64-unknown-linux-gnux32"}, "request-invalid", "triple", "end it with gnu"),
        ({"triple": "aarch64-unknown-linux-gnu"}, "request-invalid", "mcpu", "no processor 'znver4'"),
        ({"features": ["+avx2", "+avx9"]}, "request-invalid", "features[1]", "did you mean '+avx'?"),
        ({"features": ["-help"]}, "request-invalid", "features[0]", "LLVM knows no feature '-help'"),
        ({"features": ["-avx2", "+avx512f"]}, "request-invalid", "features[1]", "contradicts '-avx2'"),
        ({"features": ["+fma", "-fma"]}, "request-invalid", "features[0]", "contradicts '-fma'"),
        ({"features": ["-sse2"]}, "request-invalid", "features[0]", "every library for x86_64 uses sse2"),
        ({"features": ["+soft-float"]}, "request-invalid", "features[0]", "leave it out"),
        (ARM | {"features": ["+sve", "-neon"]}, "request-invalid", "features[1]", "aarch64 uses neon"),
        (ARM | {"features": ["-fp-armv8"]}, "request-invalid", "features[0]", "aarch64 uses fp-armv8"),
        (
            ARM | {"features": ["+sve2", "-sve"]},
            "request-invalid",
            "features[0]",
            "needs sve and contradicts",
        ),
        (ARM | {"features": ["+avx2"]}, "request-invalid", "features[0]", "LLVM knows no feature '+avx2'"),
        (RISCV | {"features": []}, "request-invalid", "features", "add '+d', or name the preset 'riscv64'"),
        (RISCV | {"features": ["+v", "-d"]}, "request-invalid", "features[0]", "needs d and contradicts"),
        (RISCV | {"features": ["+d", "+zfinx"]}, "request-invalid", "features[1]", "leave it out"),
    ],
)
async def test_a_target_that_llvm_does_not_know_is_refused_before_it_is_queued(
    api: httpx.AsyncClient, model: str, target: dict[str, object], code: str, field: str, part: str
) -> None:
    response = await api.post("/v1/compilations", json=request(target={"mcpu": "znver4", **target}))
    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, code)
    (error,) = problem["errors"]
    assert error["field"] == f"target.{field}"
    assert part in error["message"]
    assert (await api.get("/v1/compilations")).json()["items"] == []


@pytest.mark.parametrize(
    "target",
    [
        {"mcpu": "znver4", "features": ["-avx512f", "+prefer-256-bit"]},
        {"mcpu": "cortex-a72", "triple": "aarch64-unknown-linux-gnu"},
        {"mcpu": "cortex-a72", "triple": "aarch64-unknown-linux-gnu.2.28", "features": ["+dotprod"]},
        {"mcpu": "neoverse-v2", "triple": "aarch64-unknown-linux-musl"},
        {"mcpu": "generic-rv64", "triple": "riscv64-unknown-linux-gnu", "features": ["+v"]},
    ],
)
async def test_a_target_in_llvms_own_words_is_queued(
    api: httpx.AsyncClient, model: str, target: dict[str, object]
) -> None:
    assert (await api.post("/v1/compilations", json=request(target=target))).status_code == 202


@pytest.mark.parametrize(
    "target",
    [
        "apple-m1",
        {"preset": "x86-64-v3", "triple": "x86_64-pc-windows-msvc"},
        {"preset": "aarch64", "triple": "aarch64-apple-macos14.2", "features": ["+dotprod"]},
    ],
)
async def test_a_target_without_workers_is_queued_only_without_verification(
    api: httpx.AsyncClient, model: str, target: object
) -> None:
    refused = await api.post("/v1/compilations", json=request(target=target))
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "target-not-runnable")
    assert problem["errors"][0]["field"] == "verification"
    assert "cannot be run by any worker here: ask for `verification: none`" in problem["detail"]

    accepted = await api.post("/v1/compilations", json=request(target=target, verification="none"))
    assert accepted.status_code == 202


@pytest.mark.parametrize(
    ("target", "verification", "status"),
    [("apple-m1", "none", 422), ("host", "none", 422), ("host", "required", 202)],
)
@pytest.mark.parametrize(
    ("option", "field"),
    [
        ({"benchmark": {"compare": True}}, "benchmark.compare"),
        ({"tune": {"trials": 8, "publish_early": True}}, "tune.publish_early"),
    ],
)
async def test_what_only_a_workers_processor_measures_needs_a_target_that_it_runs(
    api: httpx.AsyncClient,
    model: str,
    target: object,
    verification: str,
    status: int,
    option: dict[str, object],
    field: str,
) -> None:
    asked = request(target=target, verification=verification, **option)
    answer = await api.post("/v1/compilations", json=asked)
    assert answer.status_code == status, answer.text
    if status == 422:
        assert [error["field"] for error in answer.json()["errors"]] == [field]


@pytest.mark.parametrize(
    "target", ["", " ", {"mcpu": ""}, {"preset": ""}, {"mcpu": "znver4", "mattr": ["+avx2"]}]
)
async def test_an_empty_or_malformed_target_is_refused(
    api: httpx.AsyncClient, model: str, target: object
) -> None:
    response = await api.post("/v1/compilations", json=request(target=target))
    assert (response.status_code, response.json()["code"]) == (422, "request-invalid")


async def test_a_target_among_other_mistakes_is_one_of_the_fields(api: httpx.AsyncClient, model: str) -> None:
    problem = (await api.post("/v1/compilations", json=request(target="rocm", tunes={}))).json()
    assert problem["code"] == "request-invalid"
    assert {error["field"] for error in problem["errors"]} == {"target", "tunes"}


async def test_the_same_key_and_request_give_the_same_compilation(api: httpx.AsyncClient, model: str) -> None:
    answers = await asyncio.gather(
        *(api.post("/v1/compilations", json=request(), headers=KEY) for _ in range(8))
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1


async def test_the_same_key_with_another_request_is_a_conflict(api: httpx.AsyncClient, model: str) -> None:
    await api.post("/v1/compilations", json=request(), headers=KEY)
    other = await api.post("/v1/compilations", json=request(tune={"trials": 1}), headers=KEY)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency-conflict")


async def test_a_repeated_submission_is_answered_even_if_its_model_was_rejected_meanwhile(
    api: httpx.AsyncClient, front: Service, model: str
) -> None:
    first = await api.post("/v1/compilations", json=request(), headers=KEY)
    inspected(front.store, model, make_problem(ErrorCode.MODEL_DAMAGED, "no"))
    again = await api.post("/v1/compilations", json=request(), headers=KEY)
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])


async def test_without_a_key_every_submission_is_a_new_compilation(
    api: httpx.AsyncClient, model: str
) -> None:
    ids = {await submitted(api) for _ in range(3)}
    assert len(ids) == 3


async def test_a_list_is_read_page_by_page_newest_first(api: httpx.AsyncClient, model: str) -> None:
    made = [await submitted(api) for _ in range(5)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await api.get("/v1/compilations", params={"limit": 2, **cursor})).json()
        seen += [job["id"] for job in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert seen == made[::-1]


async def test_a_list_can_be_narrowed_to_a_state(api: httpx.AsyncClient, job: str) -> None:
    for state, expected in (("queued", [job]), ("failed", [])):
        page = (await api.get("/v1/compilations", params={"state": state})).json()
        assert [item["id"] for item in page["items"]] == expected


async def test_a_cursor_that_no_page_gave_is_refused(api: httpx.AsyncClient) -> None:
    response = await api.get("/v1/compilations", params={"cursor": "nonsense"})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "cursor"


@pytest.mark.parametrize("path", ["", "/events", "/artifacts", "/artifacts/x", "/report"])
@pytest.mark.parametrize("job_id", ["0" * 32, "short", "UPPER-CASE-ID", "%00%00%00%00%00%00%00%00"])
async def test_a_compilation_that_does_not_exist_is_not_found(
    api: httpx.AsyncClient, job_id: str, path: str
) -> None:
    response = await api.get(f"/v1/compilations/{job_id}{path}")
    assert (response.status_code, response.json()["code"]) == (404, "not-found")


async def test_a_queued_compilation_is_cancelled_at_once_and_again_without_harm(
    api: httpx.AsyncClient, job: str
) -> None:
    for _ in range(2):
        response = await api.post(f"/v1/compilations/{job}/cancel")
        assert (response.status_code, response.json()["state"]) == (200, "cancelled")


async def test_a_running_compilation_is_asked_to_stop(
    api: httpx.AsyncClient, front: Service, played: PlayedWorker, job: str
) -> None:
    attempt = played.start(job)
    front.store.workers.beat(worker())
    response = await api.post(f"/v1/compilations/{job}/cancel")
    assert (response.status_code, response.json()["state"]) == (202, "running")
    assert front.store.jobs.cancel_requested(job, attempt)


@pytest.mark.parametrize("ending", ["succeed", "fail"])
async def test_what_has_ended_cannot_be_cancelled(
    api: httpx.AsyncClient, played: PlayedWorker, job: str, ending: str
) -> None:
    getattr(played, ending)(job, played.start(job))
    response = await api.post(f"/v1/compilations/{job}/cancel")
    assert (response.status_code, response.json()["code"]) == (409, "state-conflict")


async def test_a_document_of_unreasonable_size_is_refused(api: httpx.AsyncClient, model: str) -> None:
    response = await api.post(
        "/v1/compilations",
        content=b" " * (MAX_DOCUMENT_BYTES + 1),
        headers={"Content-Type": "application/json"},
    )
    assert (response.status_code, response.json()["code"]) == (413, "request-too-large")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"priority": 1' + b"0" * 5000 + b"}", "too many digits"),
    ],
)
async def test_a_body_that_no_reader_of_json_takes_is_told_why(
    api: httpx.AsyncClient, body: bytes, said: str
) -> None:
    response = await api.post("/v1/compilations", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert [(error["field"], said in error["message"]) for error in response.json()["errors"]] == [
        ("body", True)
    ]


async def test_a_field_that_a_document_has_twice_is_refused(api: httpx.AsyncClient) -> None:
    body = b'{"priority": 1, "tune": {"trials": 1, "trials": 2}}'
    response = await api.post("/v1/compilations", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error == {"field": "trials", "message": "given 2 times; it takes one value"}


async def test_a_body_that_is_not_declared_as_json_is_told_so(api: httpx.AsyncClient) -> None:
    response = await api.post("/v1/compilations", content=b"{}", headers={"Content-Type": "text/plain"})
    assert response.status_code == 422
    assert "Content-Type: application/json" in response.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'"\\ud800"',
        b'{"\\ud800": 1}',
        b"[" * 100_000,
        b'{"tune": {"trials": 1' + b"0" * 5000 + b"}}",
        b'{"model": "' + DIGEST.encode() + b'", "target": "\\ud800"}',
        b'{"model": "' + DIGEST.encode() + b'", "target": "host", "timeout_seconds": NaN}',
        b'{"model": "' + DIGEST.encode() + b'", "target": "host", "timeout_seconds": 1e999}',
        b'{"model": "' + DIGEST.encode() + b'", "target": "host", "inputs": "' + b"x" * 500_000 + b'"}',
        b'{"' + b'": 1, "'.join(str(n).encode() for n in range(50_000)) + b'": 1}',
    ],
    ids=range(14),
)
async def test_no_body_however_odd_breaks_the_service(
    api: httpx.AsyncClient, model: str, body: bytes
) -> None:
    response = await api.post("/v1/compilations", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (422, "request-invalid")
    assert len(response.content) < 100_000


@pytest.mark.parametrize(
    "labels",
    [
        {"": "x"},
        {"Team": "x"},
        {"team-": "x"},
        {"a" * 64: "x"},
        {"team": "ü"},
        {"team": "x" * 129},
        {"team": "a\nb"},
        {"team": 7},
        {f"label-{number}": "" for number in range(33)},
    ],
)
async def test_labels_that_no_compilation_has_are_refused(
    api: httpx.AsyncClient, model: str, labels: dict[str, object]
) -> None:
    response = await api.post("/v1/compilations", json=request(labels=labels))
    assert (response.status_code, response.json()["code"]) == (422, "request-invalid")


async def test_a_list_is_filtered_by_labels_model_target_and_time(api: httpx.AsyncClient, model: str) -> None:
    ours = (await api.post("/v1/compilations", json=request(labels={"team": "a=b"}))).json()
    other = (await api.post("/v1/compilations", json=request(target="x86-64-v3"))).json()

    async def listed(**params: object) -> list[str]:
        page = (await api.get("/v1/compilations", params=params)).json()  # type: ignore[arg-type]
        return [item["id"] for item in page["items"]]

    assert await listed(label="team=a=b") == [ours["id"]]
    assert await listed(label=["team", "team=c"]) == []
    assert await listed(model=model, target="x86-64-v3") == [other["id"]]
    assert await listed(created_after=ours["created_at"], limit=5) == [other["id"]]
    assert await listed(created_before=ours["created_at"]) == []


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"label": "Team"}, "label[0]"),
        ({"model": "abc"}, "model"),
        ({"created_after": "2026-11-01T00:00:00"}, "created_after"),
        ({"created_after": "yesterday"}, "created_after"),
        ({"created_after": "20261101"}, "created_after"),
        ({"created_before": "-1.5"}, "created_before"),
        ({"created_after": "9999-12-31T23:59:59-23:59"}, "created_after"),
        ({"created_before": "0001-01-01T00:00:00+23:59"}, "created_before"),
        ({"state": ["failed", "queued"]}, "state"),
        ({"stat": "failed"}, "stat"),
        ({"limit": 0}, "limit"),
    ],
)
async def test_a_filter_that_cannot_hold_is_refused_by_name(
    api: httpx.AsyncClient, params: dict[str, str | list[str]], field: str
) -> None:
    response = await api.get("/v1/compilations", params=params)
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == [field]
