"""Whatever a tenant sends, admitted by the OpenAPI document or not, the answer is one that it describes, and
tells nothing of another tenant.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from app_samples import MODEL_BYTES, WITH_SHAPES, PlayedWorker, request, worker
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from test_app_ir import FRAMES, LISTING
from test_app_tenants import WHOLE_SERVICE

from bessemer.contract.access import Scope
from bessemer.contract.ir import IR_INDEX, IR_TEXTS
from bessemer.contract.keys import KeyRequest
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
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
SCOPES = {"acme-vision": Scope.ADMIN, "acme-speech": Scope.COMPILE}
SNAPSHOTS = {IR_INDEX: json.dumps(LISTING).encode(), IR_TEXTS: b"".join(FRAMES)}
THERE = (
    "GET /v1/compilations/{id}",
    "GET /v1/compilations/{id}/artifacts",
    "GET /v1/groups/{group}",
    "GET /v1/groups/{group}/report",
    "GET /v1/compilations",
    "GET /v1/models/{digest}",
    "HEAD /v1/models/{digest}",
)
"""What is found with some of the examples, not only missed."""

ENDLESS = "/events$"
"""The events of a job that has not ended: its stream stays open."""


@dataclass(frozen=True)
class Tenant:
    """A tenant with a model, a job in each state, and an invocation of the one that succeeded.

    Attributes:
        data: what names its data.
    """

    name: str
    key: str
    digest: str
    jobs: dict[str, str]
    invocation: str
    group: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    @property
    def data(self) -> tuple[str, ...]:
        return (self.name, self.key, self.digest, self.invocation, self.group, *self.jobs.values())


@dataclass(frozen=True)
class World:
    """A running app with two tenants."""

    url: str
    tenants: dict[str, Tenant]

    def other(self, tenant: Tenant) -> Tenant:
        return next(each for each in self.tenants.values() if each is not tenant)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("schema")
    with (
        local_app(folder / "data", FOREVER | {"BESSEMER_AUTH": "required"}) as app,
        closing(open_store(StoreSettings(data=folder / "data"))) as store,
    ):
        store.workers.beat(worker())
        yield World(app.url, {name: furnished(app.url, store, folder, name) for name in SCOPES})


def furnished(url: str, store: Store, folder: Path, name: str) -> Tenant:
    """A new tenant with its data."""
    key = store.keys.create(KeyRequest(tenant=name, scope=SCOPES[name])).key
    content = MODEL_BYTES + name.encode()
    digest = sha256(content).hexdigest()
    played = PlayedWorker(store, folder)
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS, headers=headers) as api:
        assert api.put(f"/v1/models/{digest}", content=content).status_code == 201
        inspected(store, digest, WITH_SHAPES, name)
        document = request(model=digest, name=f"{name}-model", labels={"team": name}, inspect={"ir": True})
        jobs = {state: api.post("/v1/compilations", json=document).json()["id"] for state in STATES}
        attempts = {state: played.start(jobs[state]) for state in STATES[1:]}
        played.succeed(jobs["succeeded"], attempts["succeeded"])
        played.fail_with(jobs["failed"], attempts["failed"], SNAPSHOTS)
        runs = f"/v1/compilations/{jobs['succeeded']}/invocations"
        invocation = api.post(runs, content=b"arrays").json()["id"]
        several = document | {"target": ["host", "aarch64"]}
        group = api.post("/v1/compilations", json=several).json()["id"]
    return Tenant(name, key, digest, jobs, invocation, group)


def schema_for(world: World, tenant: Tenant) -> Any:
    """The document, with paths of which many lead to what one of the tenants has.

    A tenant deletes only what another has: what is its own is read by other examples.
    """
    schema = schemathesis.openapi.from_url(f"{world.url}/openapi.json").exclude(path_regex=ENDLESS)
    other = world.other(tenant)

    @schema.hook
    def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
        if path_parameters is None:
            return None
        holders = (other,) if context.operation.method.upper() == "DELETE" else (tenant, other)
        known = {
            "id": tuple(job for holder in holders for job in holder.jobs.values()),
            "digest": tuple(holder.digest for holder in holders),
            "invocation": tuple(holder.invocation for holder in holders),
            "group": tuple(holder.group for holder in holders),
            "name": ("report.json", "bundle.tar.zst"),
            "step": ("0", "1"),
        }
        return {name: chosen(value, known.get(name, ())) for name, value in path_parameters.items()}

    return schema


def chosen(value: Any, known: tuple[str, ...]) -> Any:
    """A known value or the given one, by the given one's length."""
    place = len(str(value)) % (2 * len(known)) if known else 0
    return known[place] if place < len(known) else value


@pytest.mark.sampled
@pytest.mark.fuzz
@pytest.mark.parametrize("name", SCOPES)
def test_every_answer_is_described_and_tells_nothing_of_another_tenant(world: World, name: str) -> None:
    tenant = world.tenants[name]
    refused = {}
    statuses: dict[str, set[int]] = {}
    for found in schema_for(world, tenant).get_all_operations():
        operation = found.ok()
        try:
            statuses[operation.label] = answers_to(operation, tenant, world.other(tenant))
        except (Failure, FailureGroup, AssertionError) as failure:
            refused[operation.label] = failure
    assert refused == {}
    assert {label: 200 in statuses[label] for label in THERE} == dict.fromkeys(THERE, True)
    assert is_whole(world, world.other(tenant))


def is_whole(world: World, tenant: Tenant) -> bool:
    """Whether a tenant still has its data."""
    paths = (f"/v1/models/{tenant.digest}", *(f"/v1/compilations/{job}" for job in tenant.jobs.values()))
    with httpx.Client(base_url=world.url, timeout=PATIENCE_SECONDS, headers=tenant.headers) as api:
        return all(api.get(path).status_code == 200 for path in paths)


def answers_to(operation: schemathesis.APIOperation, tenant: Tenant, other: Tenant) -> set[int]:
    """Send an operation what its schema admits; the statuses of its answers."""
    statuses = set()
    is_private = operation.path not in WHOLE_SERVICE

    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def send(case: schemathesis.Case) -> None:
        answer = case.call_and_validate(checks=CHECKS, timeout=PATIENCE_SECONDS, headers=tenant.headers)
        statuses.add(answer.status_code)
        sent = f"{answer.request.url} {answer.request.headers} {answer.request.body!r}"
        told = f"{answer.headers} {answer.content!r}"
        assert not is_private or [name for name in other.data if name in told and name not in sent] == []

    send()
    return statuses
