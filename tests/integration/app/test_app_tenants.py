"""Every route of the OpenAPI document, attacked by one tenant for what another has."""

import hashlib
import json
import pkgutil
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
from app_samples import DIGEST, MODEL_BYTES, WITH_SHAPES, PlayedWorker, request
from callers import client_of
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from test_app_code import FRAMES as CODE_FRAMES
from test_app_code import LISTING as CODE
from test_app_ir import FRAMES, LISTING

from app import routes
from app.main import create_app
from app.routes.cost_model import COST_MODEL
from app.service import OperatorDep, Service
from app.settings import AppSettings, AuthMode
from bessemer.contract.code import CODE_INDEX, CODE_TEXTS
from bessemer.contract.cost_model import PackedPlans
from bessemer.contract.device import DeviceTask
from bessemer.contract.ir import IR_INDEX, IR_TEXTS
from bessemer.contract.job import Artifact
from bessemer.contract.records import SearchScope
from bessemer.store.rows.device_tasks import Wanted, new_task_id
from tests.inspections import inspected
from tests.tenant_data import started

VICTIM, ATTACKER = "victim", "attacker"
KEY = {"Idempotency-Key": "build-17"}
LABELS = {"team": "victims-team"}
EXTENSION_BYTES = b"REWRITES = ()"
EXTENSION_DIGEST = hashlib.sha256(EXTENSION_BYTES).hexdigest()
NAME = "victims-model"


@dataclass(frozen=True)
class Names:
    """What names the victim's data, or data that does not exist."""

    digest: str
    extension: str
    done: str
    failed: str
    queued: str
    run: str
    group: str
    device: str
    task: str
    cursor: str

    def shortened(self) -> "Names":
        """The same by prefix."""
        short = {each.name: getattr(self, each.name)[:12] for each in fields(self)}
        return Names(**{**short, "cursor": self.cursor})

    def hidden_in(self, text: str) -> str:
        """A text without the names, to compare it with that for other names."""
        for each in fields(self):
            text = text.replace(getattr(self, each.name), f"<{each.name}>")
        return text


UNKNOWN = Names(
    digest="e" * 64,
    extension="f" * 64,
    done="1" * 32,
    failed="2" * 32,
    queued="3" * 32,
    run="4" * 32,
    group="5" * 32,
    device="6" * 32,
    task="7" * 32,
    cursor="none",
)


@dataclass(frozen=True)
class Hidden:
    """The answer is that for data that does not exist."""

    path: str
    content: bytes | None = None
    json: dict[str, Any] | None = None
    status: int = 404


@dataclass(frozen=True)
class Empty:
    """No query lists anything of the victim's."""

    path: str
    asked: tuple[dict[str, str], ...]


@dataclass(frozen=True)
class New:
    """An upload is received whole and makes a model of the attacker's own."""

    path: str


@dataclass(frozen=True)
class NewExtension:
    """An upload is received whole and makes an extension of the attacker's own."""

    path: str


@dataclass(frozen=True)
class NewDevice:
    """A device becomes the attacker's own, even under the name of a victim's device."""

    path: str


@dataclass(frozen=True)
class OwnRecords:
    """An export, an import or a deletion is about the attacker's own records."""

    path: str


@dataclass(frozen=True)
class Operators:
    """The answer is 403 to a caller who is not an administrator."""

    path: str


@dataclass(frozen=True)
class Shared:
    """The answer is about the service, and says nothing about a tenant."""

    path: str


@dataclass(frozen=True)
class Own:
    """The answer is about the caller's tenant only."""

    path: str


JOB, FAILED, QUEUED = "/v1/compilations/{done}", "/v1/compilations/{failed}", "/v1/compilations/{queued}"
RUN = JOB + "/invocations/{run}"
MODEL = "/v1/models/{digest}"
EXTENSION = "/v1/extensions/{extension}"
GROUP = "/v1/groups/{group}"
DEVICE = "/v1/devices/{device}"
DEVICE_TASK = DEVICE + "/tasks/{task}"
RECORDS = "/v1/tuning/records"
COST_MODEL_PATH = "/v1/tuning/cost-model"
DATABASE = {
    "workloads": '["1844530", "AgAAAAAAAAB7fQ=="]',
    "records": '[0, [[[], []], [1e-5], {"kind": "llvm", "mcpu": "znver4", "num-cores": 4}, []]]',
    "shared": True,
}
BOARD = {"name": "victims-board", "platform": "aarch64", "cores": 4, "memory_bytes": 1 << 30}
ROUTES: dict[str, Hidden | Empty | New | NewExtension | NewDevice | OwnRecords | Operators | Shared | Own] = {
    "POST /v1/models": New("/v1/models"),
    "PUT /v1/models/{digest}": New(MODEL),
    "GET /v1/models": Empty("/v1/models", ({}, {"name": NAME}, {"state": "ready"}, {"format": "pt2"})),
    "GET /v1/models/{digest}": Hidden(MODEL),
    "HEAD /v1/models/{digest}": Hidden(MODEL),
    "DELETE /v1/models/{digest}": Hidden(MODEL),
    "PUT /v1/extensions/{digest}": NewExtension(EXTENSION),
    "GET /v1/extensions": Empty("/v1/extensions", ({},)),
    "GET /v1/extensions/{digest}": Hidden(EXTENSION),
    "HEAD /v1/extensions/{digest}": Hidden(EXTENSION),
    "DELETE /v1/extensions/{digest}": Hidden(EXTENSION),
    "POST /v1/compilations": Hidden(
        "/v1/compilations", json={"model": "{digest}", "target": "host"}, status=422
    ),
    "GET /v1/compilations": Empty(
        "/v1/compilations",
        (
            {},
            {"state": "queued"},
            {"name": NAME},
            {"model": "{digest}"},
            {"label": "team"},
            {"label": "team=victims-team"},
            {"target": "host"},
            {"group": "{group}"},
            {"cursor": "{cursor}"},
        ),
    ),
    "GET /v1/compilations/{id}": Hidden(JOB),
    "DELETE /v1/compilations/{id}": Hidden(JOB),
    "GET /v1/compilations/{id}/logs": Hidden(JOB + "/logs"),
    "POST /v1/compilations/{id}/cancel": Hidden(QUEUED + "/cancel"),
    "GET /v1/compilations/{id}/events": Hidden(JOB + "/events"),
    "GET /v1/compilations/{id}/artifacts": Hidden(JOB + "/artifacts"),
    "GET /v1/compilations/{id}/artifacts/{name}": Hidden(JOB + "/artifacts/bundle.tar.zst"),
    "HEAD /v1/compilations/{id}/artifacts/{name}": Hidden(JOB + "/artifacts/bundle.tar.zst"),
    "GET /v1/compilations/{id}/report": Hidden(JOB + "/report"),
    "GET /v1/compilations/{id}/ir": Hidden(FAILED + "/ir"),
    "GET /v1/compilations/{id}/ir/{step}": Hidden(FAILED + "/ir/0"),
    "GET /v1/compilations/{id}/ir/{step}/diff": Hidden(FAILED + "/ir/1/diff"),
    "GET /v1/compilations/{id}/code": Hidden(FAILED + "/code"),
    "GET /v1/compilations/{id}/code/{function}/{kind}": Hidden(FAILED + "/code/add/assembly"),
    "POST /v1/compilations/{id}/invocations": Hidden(JOB + "/invocations", content=b"arrays"),
    "GET /v1/compilations/{id}/invocations": Hidden(JOB + "/invocations"),
    "GET /v1/compilations/{id}/invocations/{invocation}": Hidden(RUN),
    "GET /v1/compilations/{id}/invocations/{invocation}/outputs": Hidden(RUN + "/outputs"),
    "HEAD /v1/compilations/{id}/invocations/{invocation}/outputs": Hidden(RUN + "/outputs"),
    "POST /v1/compilations/{id}/invocations/{invocation}/cancel": Hidden(RUN + "/cancel"),
    "GET /v1/groups/{group}": Hidden(GROUP),
    "GET /v1/groups/{group}/report": Hidden(GROUP + "/report"),
    "POST /v1/groups/{group}/cancel": Hidden(GROUP + "/cancel"),
    "DELETE /v1/groups/{group}": Hidden(GROUP),
    "GET /v1/tuning/cost-model": Hidden(COST_MODEL_PATH),
    "GET /v1/tuning/records": Empty(RECORDS, ({}, {"target": "znver4"}, {"workload": "1844530"})),
    "POST /v1/tuning/records": OwnRecords(RECORDS),
    "DELETE /v1/tuning/records": OwnRecords(RECORDS),
    "GET /v1/tuning/records/export": OwnRecords(RECORDS + "/export"),
    "GET /v1/devices": Own("/v1/devices"),
    "POST /v1/devices": NewDevice("/v1/devices"),
    "DELETE /v1/devices/{device}": Hidden(DEVICE),
    "POST /v1/devices/{device}/task": Hidden(DEVICE + "/task"),
    "POST /v1/devices/{device}/tasks/{task}/lease": Hidden(DEVICE_TASK + "/lease"),
    "GET /v1/devices/{device}/tasks/{task}/bundle": Hidden(DEVICE_TASK + "/bundle"),
    "POST /v1/devices/{device}/tasks/{task}/result": Hidden(DEVICE_TASK + "/result", json={"failure": "no"}),
    "GET /v1/targets": Shared("/v1/targets"),
    "GET /v1/usage": Own("/v1/usage"),
    "GET /v1/workers": Operators("/v1/workers"),
    "GET /v1/keys": Operators("/v1/keys"),
    "POST /v1/keys": Operators("/v1/keys"),
    "POST /v1/keys/{id}/rotate": Operators("/v1/keys/{key}/rotate"),
    "DELETE /v1/keys/{id}": Operators("/v1/keys/{key}"),
    "GET /v1/audit": Operators("/v1/audit"),
    "GET /healthz": Shared("/healthz"),
    "GET /readyz": Shared("/readyz"),
    "GET /metrics": Operators("/metrics"),
}
WHOLE_SERVICE = {
    *("/v1/workers", "/v1/keys", "/v1/keys/{id}", "/v1/keys/{id}/rotate", "/v1/audit"),
    *("/readyz", "/metrics"),
}
"""The only routes that reach more than the caller's tenant."""


@dataclass(frozen=True)
class World:
    """A service where the victim has everything, and the attacker nothing.

    Attributes:
        secrets: parts of the victim's data that no answer to the attacker has, unless the request has them.
    """

    app: FastAPI
    victim: httpx.AsyncClient
    attacker: httpx.AsyncClient
    names: Names
    secrets: tuple[str, ...]

    @property
    def service(self) -> Service:
        service: Service = self.app.state.service
        return service

    async def victims_data(self) -> list[str]:
        """All that the victim can read, but for estimates of when its compilations start."""
        answers = [await self.victim.get(path.format(**vars(self.names))) for path in READ]
        return [re.sub(r'"queue":\{[^}]*\}', '"queue":null', answer.text) for answer in answers]

    def leaks(self, response: httpx.Response) -> list[str]:
        """The victim's secrets that an answer has and its request has not."""
        sent = response.request.content if hasattr(response.request, "_content") else b""
        asked = f"{response.request.url} {response.request.headers} {sent!r}"
        told = f"{response.headers} {response.text}"
        return [secret for secret in self.secrets if secret in told and secret not in asked]


READ = (
    *(
        "/v1/devices",
        "/v1/models",
        "/v1/extensions",
        EXTENSION,
        "/v1/compilations",
        MODEL,
        JOB,
        FAILED,
        QUEUED,
        JOB + "/events",
        JOB + "/artifacts",
    ),
    *(JOB + "/report", FAILED + "/ir", FAILED + "/ir/0", JOB + "/invocations", RUN, RUN + "/outputs"),
    *(JOB + "/artifacts/bundle.tar.zst", GROUP, GROUP + "/report", COST_MODEL_PATH),
)


@pytest.fixture
async def world(settings: AppSettings, tmp_path: Path) -> AsyncIterator[World]:
    app = create_app(settings.model_copy(update={"auth": AuthMode.REQUIRED}))
    async with (
        app.router.lifespan_context(app),
        client_of(app, VICTIM) as victim,
        client_of(app, ATTACKER) as attacker,
    ):
        names, artifacts = await furnish(victim, app.state.service, tmp_path)
        secrets = (
            *(VICTIM, NAME, LABELS["team"]),
            *(getattr(names, each.name) for each in fields(names) if each.name != "cursor"),
            *(artifact.digest for artifact in artifacts),
            COST_MODEL.version,
        )
        yield World(app, victim, attacker, names, secrets)


async def furnish(
    victim: httpx.AsyncClient, service: Service, folder: Path
) -> tuple[Names, tuple[Artifact, ...]]:
    """Give the victim a model, three compilations, an invocation and a group."""
    played = PlayedWorker(service.store, folder)
    await victim.put(f"/v1/models/{DIGEST}", params={"name": NAME}, content=MODEL_BYTES)
    inspected(service.store, DIGEST, WITH_SHAPES, VICTIM)
    await victim.put(f"/v1/extensions/{EXTENSION_DIGEST}", params={"name": NAME}, content=EXTENSION_BYTES)

    async def submitted(**wanted: object) -> str:
        document = request(name=NAME, labels=LABELS, **wanted)
        response = await victim.post("/v1/compilations", json=document)
        assert response.status_code == 202
        return str(response.json()["id"])

    done, failed = await submitted(), await submitted(inspect={"ir": True})
    artifacts = played.succeed(done, played.start(done))
    snapshots = {
        IR_INDEX: json.dumps(LISTING).encode(),
        IR_TEXTS: b"".join(FRAMES),
        CODE_INDEX: json.dumps(CODE).encode(),
        CODE_TEXTS: b"".join(CODE_FRAMES),
    }
    played.fail_with(failed, played.start(failed), snapshots)
    queued = (await victim.post("/v1/compilations", json=request(labels=LABELS), headers=KEY)).json()["id"]
    run = (await victim.post(f"/v1/compilations/{done}/invocations", content=b"x")).json()["id"]
    rows = service.store.invocations
    rows.succeed(run, started(rows, run), 1, None, (), artifacts[0])
    several = request(target=["host", "aarch64"], labels=LABELS)
    group = (await victim.post("/v1/compilations", json=several)).json()["id"]
    assert (await victim.post(RECORDS, json=DATABASE)).status_code == 201
    scope = SearchScope(target="x86_64 znver4", threads=4, compiler="", tvm_target="{}")
    service.store.cost_models.add(VICTIM, scope, "1.1", {"1844530": PackedPlans(2, b"")})
    service.store.cost_models.put(VICTIM, "1.1", COST_MODEL, b"{}", COST_MODEL.trained_at)
    device = (await victim.post("/v1/devices", json=BOARD)).json()["id"]
    task = furnish_task(service, await submitted(), device)
    cursor = (await victim.get("/v1/compilations", params={"limit": 1})).json()["next"]
    return Names(DIGEST, EXTENSION_DIGEST, done, failed, queued, run, group, device, task, cursor), artifacts


def furnish_task(service: Service, job: str, device: str) -> str:
    """Give the victim's device a task."""
    task = DeviceTask(
        id=new_task_id(),
        digest=DIGEST,
        repeat=1,
        repeat_seconds=1,
        timeout_seconds=1,
        memory_bytes=1,
        disk_bytes=1,
    )
    attempt = started(service.store.jobs, job)
    service.store.device_tasks.submit(job, attempt, task, Wanted(VICTIM, "aarch64"))
    assert service.store.for_tenant(VICTIM).devices.take(device) == task
    return task.id


def documented(app: FastAPI) -> set[str]:
    paths: dict[str, dict[str, object]] = app.openapi()["paths"]
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}


def test_every_route_of_the_document_is_attacked() -> None:
    assert set(ROUTES) == documented(create_app())


async def attack(client: httpx.AsyncClient, method: str, row: Hidden, names: Names) -> httpx.Response:
    document = row.json and {key: value.format(**vars(names)) for key, value in row.json.items()}
    return await client.request(method, row.path.format(**vars(names)), content=row.content, json=document)


def comparable(response: httpx.Response, names: Names) -> tuple[object, ...]:
    """An answer without what differs from request to request."""
    varying = {"date", "x-request-id", "etag"}
    headers = {key: value for key, value in response.headers.items() if key not in varying}
    body = response.json() if response.content else {}
    body.pop("instance", None)
    return response.status_code, names.hidden_in(str(headers)), names.hidden_in(json.dumps(body))


HIDDEN = [route for route, row in ROUTES.items() if isinstance(row, Hidden)]


@pytest.mark.parametrize("route", HIDDEN)
async def test_the_answer_about_anothers_data_is_that_about_data_that_does_not_exist(
    world: World, route: str
) -> None:
    before = await world.victims_data()
    row, method = ROUTES[route], route.partition(" ")[0]
    assert isinstance(row, Hidden)
    methods = {method, "HEAD"} if method == "GET" else {method}
    by_prefix = [] if row.json else [(world.names.shortened(), UNKNOWN.shortened())]
    for names, unknown in ((world.names, UNKNOWN), *by_prefix):
        for each in methods:
            told = await attack(world.attacker, each, row, names)
            expected = await attack(world.attacker, each, row, unknown)
            assert told.status_code == row.status or (each, told.status_code) == ("HEAD", 405)
            assert comparable(told, names) == comparable(expected, unknown)
            assert world.leaks(told) == []
    assert await world.victims_data() == before
    allowed = await attack(world.victim, method, row, world.names)
    assert allowed.status_code < 300 or allowed.json()["code"] != "not-found"


@pytest.mark.parametrize("route", [route for route, row in ROUTES.items() if isinstance(row, Empty)])
async def test_a_list_has_nothing_of_another_tenant(world: World, route: str) -> None:
    row = ROUTES[route]
    assert isinstance(row, Empty)
    for asked in row.asked:
        params = {key: value.format(**vars(world.names)) for key, value in asked.items()}
        assert (await world.victim.get(row.path, params=params)).json()["items"]
        told = await world.attacker.get(row.path, params=params)
        assert (told.json(), world.leaks(told)) == ({"items": [], "next": None}, [])


async def test_an_extension_that_another_tenant_has_is_new_and_cannot_be_named(world: World) -> None:
    before = await world.victims_data()
    path = EXTENSION.format(**vars(world.names))
    await world.attacker.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
    document = request(extensions=[EXTENSION_DIGEST])
    refused = await world.attacker.post("/v1/compilations", json=document)
    assert (refused.status_code, refused.json()["code"]) == (422, "extension-missing")
    told = await world.attacker.put(path, content=EXTENSION_BYTES)
    assert (told.status_code, told.json()["name"], world.leaks(told)) == (201, None, [])
    assert (await world.attacker.post("/v1/compilations", json=document)).status_code == 202
    assert await world.victims_data() == before


async def test_records_are_imported_exported_and_deleted_for_the_caller_only(world: World) -> None:
    before = (await world.victim.get(RECORDS)).json()
    assert (await world.attacker.get(f"{RECORDS}/export")).json() == {"workloads": "", "records": ""}
    assert (await world.attacker.delete(RECORDS)).json() == {"deleted": 0}
    assert (await world.attacker.post(RECORDS, json=DATABASE)).json()["imported"] == 1
    assert (await world.attacker.delete(RECORDS)).json() == {"deleted": 1}
    assert (await world.victim.get(RECORDS)).json() == before
    assert (await world.victim.get(f"{RECORDS}/export")).json()["records"]


async def test_a_device_of_the_name_of_another_tenants_does_not_replace_it(world: World) -> None:
    before = await world.victims_data()
    told = await world.attacker.post("/v1/devices", json=BOARD)
    assert (told.status_code, told.json()["shared"], world.leaks(told)) == (201, False, [])
    task = await world.attacker.post(f"/v1/devices/{told.json()['id']}/task")
    assert (task.status_code, task.content) == (204, b"")
    assert await world.victims_data() == before


@pytest.mark.parametrize("route", [route for route, row in ROUTES.items() if isinstance(row, New)])
async def test_an_upload_that_another_tenant_has_is_received_whole_and_is_a_new_model(
    world: World, route: str
) -> None:
    row, method, sent = ROUTES[route], route.partition(" ")[0], []
    assert isinstance(row, New)

    async def body() -> AsyncIterator[bytes]:
        for start in range(0, len(MODEL_BYTES), 10):
            sent.append(MODEL_BYTES[start : start + 10])
            yield sent[-1]

    before = await world.victims_data()
    told = await world.attacker.request(method, row.path.format(**vars(world.names)), content=body())
    model = told.json()
    assert (told.status_code, b"".join(sent)) == (201, MODEL_BYTES)
    assert (model["state"], model["name"], model["inspection"]) == ("inspecting", None, None)
    assert set(world.leaks(told)) <= {DIGEST}
    assert await world.victims_data() == before
    store = world.service.store
    sizes = [store.for_tenant(name).artifacts.size(DIGEST) for name in (VICTIM, ATTACKER)]
    assert sizes == [len(MODEL_BYTES)] * 2
    assert (await world.attacker.delete(f"/v1/models/{DIGEST}")).status_code == 204
    assert await world.victims_data() == before


@pytest.mark.parametrize("route", [route for route, row in ROUTES.items() if isinstance(row, Own)])
async def test_the_callers_own_numbers_do_not_depend_on_another_tenant(world: World, route: str) -> None:
    row = ROUTES[route]
    assert isinstance(row, Own)
    before = await world.attacker.get(row.path)
    assert (await world.victim.post("/v1/compilations", json=request())).status_code == 202
    told = await world.attacker.get(row.path)
    assert (told.json(), world.leaks(told)) == (before.json(), [])
    assert (await world.victim.get(row.path)).json() != told.json()


@pytest.mark.parametrize("route", [route for route, row in ROUTES.items() if isinstance(row, Shared)])
async def test_what_all_tenants_share_says_nothing_about_one(world: World, route: str) -> None:
    row = ROUTES[route]
    assert isinstance(row, Shared)
    told = await world.attacker.get(row.path)
    assert (told.status_code < 300 or row.path == "/readyz", world.leaks(told)) == (True, [])


@pytest.mark.parametrize("route", [route for route, row in ROUTES.items() if isinstance(row, Operators)])
async def test_a_tenants_key_does_not_open_the_operators_routes(world: World, route: str) -> None:
    row, method = ROUTES[route], route.partition(" ")[0]
    assert isinstance(row, Operators)
    victims_key = world.victim.headers["authorization"].split("_")[1]
    response = await world.attacker.request(method, row.path.format(key=victims_key))
    assert (response.status_code, response.json()["code"]) == (403, "forbidden")
    assert world.leaks(response) == []
    assert (await world.victim.get("/v1/models")).status_code == 200


def dependencies(dependant: Dependant) -> set[Callable[..., Any] | None]:
    return {dependant.call}.union(*map(dependencies, dependant.dependencies))


def test_only_the_operators_routes_reach_the_whole_service() -> None:
    whole = OperatorDep.__metadata__[0].dependency
    modules = [import_module(f"app.routes.{found.name}") for found in pkgutil.iter_modules(routes.__path__)]
    found = [route for module in modules if hasattr(module, "router") for route in module.router.routes]
    reached = [route for route in found if isinstance(route, APIRoute)]
    assert {route.partition(" ")[2] for route in documented(create_app())} > WHOLE_SERVICE
    assert {route.path for route in reached if whole in dependencies(route.dependant)} == WHOLE_SERVICE


async def test_an_idempotency_key_means_nothing_to_another_tenant(world: World) -> None:
    await world.attacker.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
    for document in (request(labels=LABELS), request(name="another")):
        told = await world.attacker.post("/v1/compilations", json=document, headers=KEY)
        assert told.status_code in (202, 409)
        assert world.leaks(told) == []
    own = (await world.attacker.get("/v1/compilations")).json()["items"]
    assert len(own) == 1 and own[0]["id"] != world.names.queued
    guesses = {hashlib.sha256(f"{VICTIM}\0build-17".encode()).hexdigest()[:32], world.names.queued}
    assert own[0]["id"] not in guesses


async def test_a_position_counts_a_tenants_own_compilations(world: World) -> None:
    for _ in range(5):
        await world.victim.post("/v1/compilations", json=request())
    await world.attacker.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
    place = (await world.attacker.post("/v1/compilations", json=request())).json()["queue"]
    assert (place["position"], place["ahead"]) == (1, 0)


async def test_a_form_makes_a_model_and_a_compilation_of_its_tenant(world: World) -> None:
    form = {"model": ("mlp.pt2", MODEL_BYTES), "request": (None, b'{"target": "host"}')}
    told = await world.attacker.post("/v1/compilations", files=form)
    assert told.status_code == 202
    path = f"/v1/compilations/{told.json()['id']}"
    assert [(await client.get(path)).status_code for client in (world.attacker, world.victim)] == [200, 404]
