"""Tuning records over HTTP: imports, also of hostile files; lists, exports and deletions."""

import base64
import json
from typing import Any

import httpx
import pytest
from app_samples import DIGEST, MODEL_BYTES, WITH_SHAPES, request, submitted

from app.routes.cost_model import COST_MODEL
from app.service import Service
from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.cost_model import PackedPlans
from bessemer.contract.records import MAX_DATABASE_BYTES, SearchScope
from tests.inspections import inspected
from tests.tenant_data import own

PATH = "/v1/tuning/records"
COST_MODEL_PATH = "/v1/tuning/cost-model"
TARGET = {"kind": "llvm", "mcpu": "znver4", "mtriple": "x86_64-unknown-linux-gnu", "num-cores": 4}
MODULE = b'{"root_index": 0, "nodes": []}'
WORKLOAD = ["1844530", base64.b64encode(len(MODULE).to_bytes(8, "little") + MODULE).decode()]
TRACE = [[["GetSBlock", [], ["root", "main"], ["b0"]]], []]
ARGUMENTS = [["TENSOR", "float32", [1, 64]]]


def record(**changed: Any) -> list[Any]:
    parts = {"trace": TRACE, "times": [2e-5, 1e-5], "target": TARGET, "arguments": ARGUMENTS, **changed}
    return [parts.pop("number", 0), list(parts.values())]


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def database(*records: Any) -> dict[str, Any]:
    return {"workloads": lines(WORKLOAD), "records": lines(*records)}


async def test_records_are_imported_listed_exported_and_deleted(api: httpx.AsyncClient) -> None:
    failed = record(times=None)
    imported = await api.post(PATH, json=database(record(), failed))
    assert imported.status_code == 201
    assert imported.json() == {"imported": 1, "functions": 1, "failed": 1}
    (listed,) = (await api.get(PATH, params={"target": "znver4", "threads": 4})).json()["items"]
    assert (listed["workload"], listed["target"], listed["threads"]) == ("1844530", "x86_64 znver4", 4)
    assert (listed["seconds"], listed["won"], listed["compiler"]) == (1e-5, False, "")
    exported = (await api.get(f"{PATH}/export")).json()
    assert json.loads(exported["workloads"]) == WORKLOAD
    assert json.loads(exported["records"]) == record(times=[1e-5])
    assert (await api.post(PATH, json=exported)).json()["imported"] == 1
    assert (await api.delete(PATH, params={"workload": "1"})).json() == {"deleted": 0}
    assert (await api.delete(PATH)).json() == {"deleted": 1}
    assert (await api.get(PATH)).json() == {"items": [], "next": None}


@pytest.mark.parametrize(
    ("workloads", "records", "detail"),
    [
        ("{", lines(record()), "database_workload.json, line 1: not JSON"),
        ("[" * 100_000, "", "database_workload.json, line 1: not JSON"),
        (lines("x"), "", "line 1: not a pair"),
        (lines(["x", "y"]), "", "the hash is not a number"),
        (lines(["1", "\u00e9"]), "", "the module is not base64"),
        (lines(WORKLOAD), lines(record(number=1)), "there is no function 1"),
        (lines(WORKLOAD), lines(record(number=-1)), "there is no function -1"),
        (lines(WORKLOAD), lines(record(number=True)), "there is no function True"),
        (lines(WORKLOAD), lines([0, []]), "not a function's number and"),
        (lines(WORKLOAD), lines(record(target={})), "not of the kind"),
        (lines(WORKLOAD), lines(record(target={"kind": "llvm"})), "has no `mcpu`"),
        (
            lines(WORKLOAD),
            lines(record(target={**TARGET, "mcpu": "\0"})),
            "target: expected text of the form",
        ),
        (lines(WORKLOAD), lines(record(target={**TARGET, "mattr": [1]})), "`mattr` is not a list"),
        (lines(WORKLOAD), lines(record(target={**TARGET, "num-cores": 10**30})), "threads:"),
        (lines(WORKLOAD), lines(record(trace=["x" * 70_000])), "trace:"),
        (lines(WORKLOAD), lines(record()).replace("1e-05", "NaN"), "not JSON"),
        (lines(WORKLOAD), lines(record(trace=[1])).replace("[[1]", "[[1e999]"), "line 1"),
        (lines(WORKLOAD), "[0,[" + "[" * 100 + "]" * 100 + ",[1],{},[]]]", "nested more than"),
    ],
)
async def test_files_that_are_no_database_are_refused_with_their_line(
    api: httpx.AsyncClient, workloads: str, records: str, detail: str
) -> None:
    answer = await api.post(PATH, json={"workloads": workloads, "records": records})
    assert (answer.status_code, answer.json()["code"]) == (422, "records-invalid")
    assert detail in answer.json()["detail"]
    assert (await api.get(PATH)).json()["items"] == []


async def test_a_database_that_is_too_large_is_refused(api: httpx.AsyncClient) -> None:
    answer = await api.post(PATH, json={"workloads": "x" * MAX_DATABASE_BYTES, "records": ""})
    assert (answer.status_code, answer.json()["code"]) == (413, "request-too-large")


@pytest.mark.parametrize(
    "params", [{"threads": 0}, {"workload": "x"}, {"since": "2026"}, {"cursor": "x"}, {"unknown": "1"}]
)
async def test_bad_filters_are_refused(api: httpx.AsyncClient, params: dict[str, str]) -> None:
    answer = await api.get(PATH, params=params)
    assert (answer.status_code, answer.json()["code"]) == (422, "request-invalid")


async def test_the_cost_model_that_learned_is_shown_with_its_accuracy(
    api: httpx.AsyncClient, front: Service
) -> None:
    missing = await api.get(COST_MODEL_PATH)
    assert (missing.status_code, missing.json()["code"]) == (404, "not-found")
    assert "the measured plans of 8 functions" in missing.json()["detail"]
    assert "Cost model" not in (await api.get("/console/records")).text

    await api.post(PATH, json=database(record()))  # without records and plans, a model is swept
    scope = SearchScope(target="x86_64 znver4", threads=4, compiler="", tvm_target="{}")
    front.store.cost_models.add(DEFAULT_TENANT, scope, "1.1", {WORKLOAD[0]: PackedPlans(2, b"")})
    front.store.cost_models.put(DEFAULT_TENANT, "1.1", COST_MODEL, b"{}", COST_MODEL.trained_at)

    assert (await api.get(COST_MODEL_PATH)).json() == COST_MODEL.model_dump(mode="json")
    shown = (await api.get("/console/records")).text
    assert COST_MODEL.version in shown
    assert "84.0 %" in shown


async def test_the_best_is_kept_only_of_a_search(api: httpx.AsyncClient, front: Service) -> None:
    await api.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
    inspected(front.store, DIGEST, WITH_SHAPES)
    for refused in (request(), request(tune={"trials": 8}, verification="none")):
        plain = (await api.post("/v1/compilations", json=refused)).json()["id"]
        answer = await api.post(f"/v1/compilations/{plain}/cancel", params={"keep_best": True})
        assert (answer.status_code, answer.json()["code"]) == (409, "state-conflict")
    job = await submitted(api, tune={"trials": 8})
    attempt = front.store.jobs.start(job, "w1")
    assert attempt is not None
    kept = await api.post(f"/v1/compilations/{job}/cancel", params={"keep_best": True})
    assert (kept.status_code, kept.json()["state"]) == (202, "running")
    assert front.store.jobs.best_requested(job, attempt)
    assert not front.store.jobs.cancel_requested(job, attempt)
    assert own(front.store).jobs.get(job) is not None
