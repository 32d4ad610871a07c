"""Several targets in one request: a group, its compilations and the comparison of their results."""

import asyncio

import httpx
import pytest
from app_samples import DIGEST, MODEL_BYTES, PlayedWorker, request
from test_app_quotas import limited, refused

from app.main import create_app
from app.service import Service
from app.settings import AppSettings
from bessemer.contract.group import Comparison, Group
from bessemer.contract.job import CompilationPage, JobState
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.store.rows.tenant_models import TenantModels
from tests.inspections import inspected

KEY = {"Idempotency-Key": "build 17"}
TARGETS = ["host", "aarch64", "riscv64"]
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def submitted(api: httpx.AsyncClient, targets: object = TARGETS, **fields: object) -> Group:
    response = await api.post("/v1/compilations", json=request(target=targets, **fields))
    assert response.status_code == 202, response.text
    group = Group.model_validate_json(response.content)
    assert response.headers["Location"] == f"/v1/groups/{group.id}"
    return group


async def compared(api: httpx.AsyncClient, group: Group) -> Comparison:
    return Comparison.model_validate_json((await api.get(f"/v1/groups/{group.id}/report")).content)


async def count(api: httpx.AsyncClient) -> int:
    return len((await api.get("/v1/compilations")).json()["items"])


async def test_several_targets_make_a_group_with_a_queued_compilation_for_each(
    api: httpx.AsyncClient, front: Service, model: str
) -> None:
    group = await submitted(api, name="mlp", tune={"trials": 3})
    assert (group.state, group.name, group.model) == (JobState.QUEUED, "mlp", DIGEST)
    assert [job.target_name for job in group.items] == TARGETS
    assert {job.request.tune.trials for job in group.items} == {3}
    assert {job.group for job in group.items} == {group.id}
    assert front.store.jobs.unenqueued(0) == ()
    assert Group.model_validate_json((await api.get(f"/v1/groups/{group.id}")).content) == group
    for job in group.items:
        assert (await api.get(f"/v1/compilations/{job.id}")).status_code == 200


async def test_a_list_of_one_target_is_a_group_of_one(api: httpx.AsyncClient, model: str) -> None:
    assert len((await submitted(api, ["host"])).items) == 1


async def test_a_form_uploads_the_model_once_for_all_targets(api: httpx.AsyncClient) -> None:
    response = await api.post(
        "/v1/compilations",
        files={"model": ("mlp.pt2", MODEL_BYTES)},
        data={"request": '{"target": ["host", "aarch64"]}'},
    )
    group = Group.model_validate_json(response.content)
    assert (response.status_code, group.model, group.name) == (202, DIGEST, "mlp")
    assert len((await api.get("/v1/models")).json()["items"]) == 1


@pytest.mark.parametrize(
    ("targets", "code", "field", "message"),
    [
        (["host", "aarch64", "host"], "request-invalid", "target", "the target 'host' is given twice"),
        ([], "request-invalid", "target", "expected at least one target"),
        (
            [{"preset": "host", "cores": cores} for cores in range(1, 18)],
            "request-invalid",
            "target",
            "expected 16 entries at most",
        ),
        (["host", "x86-64-v9"], "request-invalid", "target[1]", "unknown target"),
        (["host", {"mcpu": "znver9"}], "request-invalid", "target[1].mcpu", "did you mean 'znver5'?"),
        (["host", {"preset": "host", "core": 1}], "request-invalid", "target[1].core", "'cores'"),
        (["host", "rocm"], "target-unsupported", "target[1]", "a target for GPUs without CUDA"),
        ([["host"]], "request-invalid", "target[0]", "expected one target, not a list"),
    ],
)
async def test_a_target_that_cannot_be_is_named_and_nothing_is_queued(
    api: httpx.AsyncClient, model: str, targets: object, code: str, field: str, message: str
) -> None:
    response = await api.post("/v1/compilations", json=request(target=targets))
    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, code)
    (error,) = problem["errors"]
    assert error["field"] == field
    assert message in error["message"]
    assert await count(api) == 0


async def test_a_rejected_model_is_refused_for_all_targets(
    api: httpx.AsyncClient, front: Service, model: str
) -> None:
    inspected(front.store, model, make_problem(ErrorCode.MODEL_DAMAGED, "no"))
    response = await api.post("/v1/compilations", json=request(target=TARGETS))
    assert (response.status_code, response.json()["code"]) == (422, "model-damaged")
    assert await count(api) == 0


async def test_a_model_that_is_deleted_meanwhile_withdraws_all_compilations(
    api: httpx.AsyncClient, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TenantModels, "touch", lambda _rows, _digest: False)
    response = await api.post("/v1/compilations", json=request(target=TARGETS))
    assert (response.status_code, response.json()["code"]) == (422, "model-missing")
    assert await count(api) == 0


async def test_the_same_key_and_request_give_the_same_group(api: httpx.AsyncClient, model: str) -> None:
    document = request(target=TARGETS)
    answers = await asyncio.gather(
        *(api.post("/v1/compilations", json=document, headers=KEY) for _ in range(8))
    )
    assert {answer.status_code for answer in answers} == {202}
    groups = [Group.model_validate_json(answer.content) for answer in answers]
    assert {(group.id, *(job.id for job in group.items)) for group in groups} == {
        (groups[0].id, *(job.id for job in groups[0].items))
    }
    assert await count(api) == len(TARGETS)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (TARGETS, TARGETS[:2]),
        (TARGETS[:2], TARGETS),
        (TARGETS, TARGETS[::-1]),
        (TARGETS, "host"),
        ("host", TARGETS),
        (["host"], "host"),
    ],
)
async def test_the_same_key_with_other_targets_is_a_conflict(
    api: httpx.AsyncClient, model: str, first: object, second: object
) -> None:
    await api.post("/v1/compilations", json=request(target=first), headers=KEY)
    before = await count(api)
    other = await api.post("/v1/compilations", json=request(target=second), headers=KEY)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency-conflict")
    assert await count(api) == before


async def test_a_quota_counts_all_targets_before_any_is_queued(settings: AppSettings) -> None:
    async with limited(settings, queued_jobs=4) as (client, _):
        first = await client.post("/v1/compilations", json=request(target=TARGETS), headers=KEY)
        refusal = await client.post("/v1/compilations", json=request(target=TARGETS))
        assert first.status_code == 202
        assert refused(refusal, "queued_jobs") and "needs at least 3 more" in refusal.json()["detail"]
        assert await count(client) == len(TARGETS)
        again = await client.post("/v1/compilations", json=request(target=TARGETS), headers=KEY)
        assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
        assert (await client.post("/v1/compilations", json=request())).status_code == 202


async def test_one_that_fails_does_not_fail_the_others(
    api: httpx.AsyncClient, model: str, played: PlayedWorker
) -> None:
    group = await submitted(api)
    first, second, third = (job.id for job in group.items)
    played.succeed(first, played.start(first))
    played.fail(second, played.start(second))
    played.start(third)
    running = await compared(api, group)
    assert running.state is JobState.RUNNING
    assert [item.state for item in running.items] == ["succeeded", "failed", "running"]
    assert running.items[0].latency is not None
    assert running.items[1].problem is not None
    await api.post(f"/v1/compilations/{third}/cancel")
    answer = (await api.get(f"/v1/groups/{group.id}")).json()
    assert [item["state"] for item in answer["items"]][:2] == ["succeeded", "failed"]


async def test_a_browser_is_sent_to_the_page_of_a_groups_comparison_and_others_get_json(
    api: httpx.AsyncClient, model: str, played: PlayedWorker
) -> None:
    group = await submitted(api, name="<mlp>")
    played.succeed(group.items[0].id, played.start(group.items[0].id))
    address = f"/v1/groups/{group.id}/report"
    sent, document = await api.get(address, headers=HTML), await api.get(address)
    assert (sent.status_code, sent.headers["Location"]) == (303, f"/console/compare?group={group.id}")
    assert sent.headers["Vary"] == document.headers["Vary"] == "Accept"
    page = await api.get(sent.headers["Location"])
    assert "&lt;mlp&gt; <small>for 3 targets" in page.text and "<mlp>" not in page.text
    assert all(f">{target}</td>" in page.text for target in TARGETS)
    assert document.headers["Content-Type"] == "application/json"
    assert Comparison.model_validate_json(document.content).items[0].bundle_bytes


async def test_without_the_console_a_browser_gets_json_too(settings: AppSettings) -> None:
    app = create_app(settings.model_copy(update={"console": False}))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        await client.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
        group = await submitted(client)
        answer = await client.get(f"/v1/groups/{group.id}/report", headers=HTML)
        assert answer.headers["Content-Type"] == "application/json"
        assert (await client.get("/console/compare")).status_code == 404
        assert (await client.get("/guide/")).status_code == 404


@pytest.mark.parametrize("report", [b"", b"{}", b"[" * 100_000, b'{"verified": NaN}', b"\xff\xfe"])
async def test_a_report_that_cannot_be_read_leaves_its_figures_out(
    api: httpx.AsyncClient, front: Service, model: str, played: PlayedWorker, report: bytes
) -> None:
    group = await submitted(api, ["host"])
    (job,) = group.items
    attempt = played.start(job.id)
    played.fail_with(job.id, attempt, {"report.json": report})
    (item,) = (await compared(api, group)).items
    assert (item.execution, item.max_absolute_error, item.state) == (None, None, JobState.FAILED)
    assert (await api.get(f"/console/compare?group={group.id}")).status_code == 200


async def test_cancelling_a_group_cancels_what_has_not_ended(
    api: httpx.AsyncClient, model: str, played: PlayedWorker
) -> None:
    group = await submitted(api)
    first = group.items[0].id
    played.succeed(first, played.start(first))
    answer = await api.post(f"/v1/groups/{group.id}/cancel")
    assert answer.status_code == 200
    assert [item["state"] for item in answer.json()["items"]] == ["succeeded", "cancelled", "cancelled"]
    assert (await api.post(f"/v1/groups/{group.id}/cancel")).status_code == 200


async def test_a_group_that_has_ended_cannot_be_cancelled(
    api: httpx.AsyncClient, model: str, played: PlayedWorker
) -> None:
    group = await submitted(api, ["host"])
    played.fail(group.items[0].id, played.start(group.items[0].id))
    answer = await api.post(f"/v1/groups/{group.id}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "state-conflict")
    assert "already failed" in answer.json()["detail"]


async def test_a_group_is_deleted_with_its_compilations_once_all_have_ended(
    api: httpx.AsyncClient, model: str
) -> None:
    group = await submitted(api)
    early = await api.delete(f"/v1/groups/{group.id}")
    assert (early.status_code, early.json()["code"]) == (409, "state-conflict")
    assert await count(api) == len(TARGETS)
    await api.post(f"/v1/groups/{group.id}/cancel")
    assert (await api.delete(f"/v1/groups/{group.id}")).status_code == 204
    assert (await api.get(f"/v1/groups/{group.id}")).status_code == 404
    assert await count(api) == 0


async def test_the_compilations_of_a_group_are_listed_by_it(api: httpx.AsyncClient, model: str) -> None:
    group = await submitted(api)
    await api.post("/v1/compilations", json=request())
    page = CompilationPage.model_validate_json(
        (await api.get("/v1/compilations", params={"group": group.id})).content
    )
    assert {job.id for job in page.items} == {job.id for job in group.items}


async def test_a_group_is_found_by_a_prefix_that_only_it_has(api: httpx.AsyncClient, model: str) -> None:
    group = await submitted(api)
    assert (await api.get(f"/v1/groups/{group.id[:8]}")).json()["id"] == group.id
    for unknown in ("abc", "0" * 32, "%00", "ZZZZ", group.items[0].id):
        answer = await api.get(f"/v1/groups/{unknown}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
