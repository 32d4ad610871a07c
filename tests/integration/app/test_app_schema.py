"""Whatever a client sends, admitted by the OpenAPI document or not, the answer is one that it describes."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from app_samples import DIGEST, MODEL_BYTES, WITH_SHAPES, PlayedWorker, request, worker
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from bessemer.store.settings import StoreSettings
from bessemer.store.store import open_store
from examples.local_service import local_app
from tests.inspections import inspected

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
FOREVER = {"BESSEMER_WORKER_LIVENESS_SECONDS": "86400", "BESSEMER_WORKER_LOST_SECONDS": "86400"}
EXAMPLES = 12
PATIENCE_SECONDS = 60
STATES = ("queued", "running", "succeeded", "failed")
THERE = (
    "GET /v1/compilations/{id}",
    "GET /v1/compilations/{id}/artifacts",
    "GET /v1/compilations",
    "GET /v1/models/{digest}",
    "HEAD /v1/models/{digest}",
)
"""What is found with some of the examples, not only missed."""

ENDLESS = "/events$"
"""The events of a job that has not ended: its stream stays open."""


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The document of a running app whose store has a model and a job in each state."""
    folder = tmp_path_factory.mktemp("schema")
    with (
        local_app(folder / "data", FOREVER) as app,
        httpx.Client(base_url=app.url, timeout=PATIENCE_SECONDS) as api,
    ):
        jobs = seed(api, folder)
        schema = schemathesis.openapi.from_url(f"{app.url}/openapi.json")
        yield leading_somewhere(schema, jobs).exclude(path_regex=ENDLESS)


def seed(api: httpx.Client, folder: Path) -> dict[str, str]:
    """A model that was inspected, and a job in each state; the ids of the jobs."""
    assert api.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES).status_code == 201
    with closing(open_store(StoreSettings(data=folder / "data"))) as store:
        store.workers.beat(worker())
        inspected(store, DIGEST, WITH_SHAPES)
        jobs = {state: api.post("/v1/compilations", json=request()).json()["id"] for state in STATES}
        played = PlayedWorker(store, folder)
        attempts = {state: played.start(jobs[state]) for state in STATES[1:]}
        played.succeed(jobs["succeeded"], attempts["succeeded"])
        played.fail(jobs["failed"], attempts["failed"])
    return jobs


def leading_somewhere(schema: Any, jobs: dict[str, str]) -> Any:
    """Half of the paths lead to what is there; what is to be deleted is not what others read."""
    known = {"id": tuple(jobs.values()), "digest": (DIGEST,), "name": ("report.json", "bundle.tar.zst")}

    @schema.hook
    def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
        if path_parameters is None or context.operation.method.upper() == "DELETE":
            return path_parameters
        return {name: chosen(value, known.get(name, ())) for name, value in path_parameters.items()}

    return schema


def chosen(value: Any, known: tuple[str, ...]) -> Any:
    """A known value or the given one, by the given one's length."""
    place = len(str(value)) % (2 * len(known)) if known else 0
    return known[place] if place < len(known) else value


def test_every_answer_is_one_that_the_document_describes(schema: Any) -> None:
    refused = {}
    statuses: dict[str, set[int]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        try:
            statuses[operation.label] = answers_as_described(operation)
        except (Failure, FailureGroup) as failure:
            refused[operation.label] = failure
    assert refused == {}
    assert {label: 200 in statuses[label] for label in THERE} == dict.fromkeys(THERE, True)


def answers_as_described(operation: schemathesis.APIOperation) -> set[int]:
    """Send an operation what its schema admits, the same each time; the statuses of its answers."""
    statuses = set()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def send(case: schemathesis.Case) -> None:
        statuses.add(case.call_and_validate(checks=CHECKS, timeout=PATIENCE_SECONDS).status_code)

    send()
    return statuses
