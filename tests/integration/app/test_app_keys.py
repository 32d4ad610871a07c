"""Who may call the app: keys, tokens, scopes, failed logins and the audit log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from app_samples import take_database_away
from fastapi import FastAPI
from oidc_issuer import AUDIENCE, Issuer
from pydantic import SecretStr

from app.identity.failed_logins import LIMIT, MAX_ADDRESSES, FailedLogins
from app.identity.scopes import required_scope
from app.main import create_app
from app.service import Service
from app.settings import AppSettings, AuthMode
from bessemer.contract.access import Scope
from bessemer.contract.keys import KeyRequest
from bessemer.store.rows.tenant_models import TenantModels

ADMIN_KEY = "bsm_00000000000a_" + "a" * 43


@pytest.fixture
def settings(settings: AppSettings) -> AppSettings:
    return settings.model_copy(update={"auth": AuthMode.REQUIRED})


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def make_key(service: Service, scope: Scope = Scope.COMPILE, tenant: str = "vision") -> str:
    return service.store.keys.create(KeyRequest(tenant=tenant, scope=scope)).key


@asynccontextmanager
async def started(
    settings: AppSettings, **changes: object
) -> AsyncIterator[tuple[httpx.AsyncClient, Service]]:
    """A client without a key, and the service, under changed settings."""
    app = create_app(settings.model_copy(update=changes))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
    ):
        yield client, app.state.service


PUBLIC = ("/", "/docs", "/openapi.json", "/healthz", "/readyz")


async def test_every_route_but_the_public_ones_needs_a_key(app: FastAPI, api: httpx.AsyncClient) -> None:
    document = app.openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            response = await api.request(method, path)
            needs_key = path not in PUBLIC
            assert (response.status_code in (401, 429)) == needs_key, (method, path)
            assert bool(operation["security"]) == needs_key
    assert {"/v1/keys", "/v1/audit", "/metrics"} <= document["paths"].keys()


@pytest.mark.parametrize("path", PUBLIC)
def test_public_paths_need_no_scope(path: str) -> None:
    assert required_scope("GET", path) is None


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/models", Scope.READ),
        ("HEAD", "/v1/models/abcd", Scope.READ),
        ("PUT", "/v1/models/abcd", Scope.COMPILE),
        ("POST", "/v1/compilations", Scope.COMPILE),
        ("DELETE", "/v1/compilations/abcd", Scope.COMPILE),
        ("GET", "/v1/targets", Scope.READ),
        ("GET", "/v1/groups/abcd/report", Scope.READ),
        ("POST", "/v1/groups/abcd/cancel", Scope.COMPILE),
        ("GET", "/v1/tuning/records", Scope.READ),
        ("GET", "/v1/tuning/records/export", Scope.READ),
        ("POST", "/v1/tuning/records", Scope.COMPILE),
        ("DELETE", "/v1/tuning/records", Scope.COMPILE),
        ("GET", "/v1/devices", Scope.READ),
        ("POST", "/v1/devices", Scope.DEVICE),
        ("POST", "/v1/devices/abcd/task", Scope.DEVICE),
        ("GET", "/v1/devices/abcd/tasks/abcd/bundle", Scope.DEVICE),
        ("GET", "/v1/workers", Scope.ADMIN),
        ("GET", "/v1/audit", Scope.ADMIN),
        ("POST", "/v1/keys/abcd/rotate", Scope.ADMIN),
        ("GET", "/metrics", Scope.ADMIN),
        ("GET", "/a-new-route", Scope.ADMIN),
    ],
)
async def test_a_key_allows_what_its_scope_says(
    method: str, path: str, scope: Scope, front: Service, api: httpx.AsyncClient
) -> None:
    assert required_scope(method, path) is scope
    for given in Scope:
        response = await api.request(method, path, headers=bearer(make_key(front, given)))
        is_refused = response.status_code == 403
        assert not (is_refused and response.content) or response.json()["code"] == "forbidden"
        assert is_refused == (not given.includes(scope)), (given, response.status_code)


REFUSED = {
    "no header": ({}, "no `Authorization: Bearer`"),
    "another scheme": ({"Authorization": "Basic YTpi"}, "no `Authorization: Bearer`"),
    "no key": ({"Authorization": "Bearer "}, "no `Authorization: Bearer`"),
    "an unknown id": (bearer("bsm_ffffffffffff_" + "x" * 43), "not a valid API key"),
    "a wrong form": (bearer("bsm_x"), "not a valid API key"),
    "a token without a policy": (bearer("eyJhbGciOiJub25lIn0.e30."), "not an API key"),
    "a very long key": (bearer("bsm_ffffffffffff_" + "x" * 60_000), "not a valid API key"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_caller_without_a_valid_key_is_refused(case: str, api: httpx.AsyncClient) -> None:
    headers, reason = REFUSED[case]
    response = await api.get("/v1/models", headers=headers)
    problem = response.json()
    assert (response.status_code, problem["code"]) == (401, "unauthenticated")
    assert reason in problem["detail"]
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_a_wrong_secret_and_an_unknown_id_look_the_same(front: Service, api: httpx.AsyncClient) -> None:
    key = make_key(front)
    wrong = await api.get("/v1/models", headers=bearer(key[:-1] + ("a" if key[-1] != "a" else "b")))
    unknown = await api.get("/v1/models", headers=bearer("bsm_ffffffffffff_" + "x" * 43))
    assert (wrong.status_code, wrong.json()["detail"]) == (unknown.status_code, unknown.json()["detail"])


async def test_a_revoked_key_is_refused(front: Service, api: httpx.AsyncClient) -> None:
    key = make_key(front)
    front.store.keys.revoke(key.split("_")[1])
    response = await api.get("/v1/models", headers=bearer(key))
    assert response.status_code == 401
    assert "was revoked" in response.json()["detail"]


async def test_an_administrator_manages_keys(front: Service, api: httpx.AsyncClient) -> None:
    admin = bearer(make_key(front, Scope.ADMIN))
    created = await api.post("/v1/keys", json={"tenant": "audio", "name": "ci"}, headers=admin)
    assert created.status_code == 201
    key = created.json()
    assert (await api.get("/v1/models", headers=bearer(key["key"]))).status_code == 200
    listed = (await api.get("/v1/keys", headers=admin)).text
    assert key["id"] in listed and key["key"].split("_", 2)[2] not in listed
    rotated = (await api.post(f"/v1/keys/{key['id']}/rotate", headers=admin)).json()
    assert (rotated["tenant"], rotated["name"]) == ("audio", "ci")
    assert (await api.delete(f"/v1/keys/{rotated['id']}", headers=admin)).status_code == 204
    assert (await api.delete(f"/v1/keys/{rotated['id']}", headers=admin)).status_code == 404
    assert (await api.get("/v1/models", headers=bearer(rotated["key"]))).status_code == 401


async def test_the_database_has_no_secret(front: Service, settings: AppSettings) -> None:
    secret = make_key(front).split("_", 2)[2]
    assert all(secret.encode() not in path.read_bytes() for path in settings.folder.glob("*.sqlite*"))


async def test_failed_logins_from_one_address_are_limited_but_valid_keys_are_not(
    front: Service, api: httpx.AsyncClient
) -> None:
    key = make_key(front)
    codes = [(await api.get("/v1/models")).status_code for _ in range(LIMIT + 2)]
    assert codes == [401] * LIMIT + [429] * 2
    assert int((await api.get("/v1/models")).headers["retry-after"]) <= 60
    assert (await api.get("/v1/models", headers=bearer(key))).status_code == 200


def test_failed_logins_are_kept_for_a_bounded_number_of_addresses() -> None:
    failed = FailedLogins()
    for number in range(MAX_ADDRESSES + 10):
        assert failed.add(f"address {number}") is None
    assert len(failed._by_address) == MAX_ADDRESSES


async def test_the_audit_log_says_who_did_what(front: Service, api: httpx.AsyncClient) -> None:
    key, admin = make_key(front), make_key(front, Scope.ADMIN)
    uploaded = await api.post("/v1/models", content=b"model", headers=bearer(key))
    await api.get("/v1/models", headers=bearer(key))
    await api.post("/v1/keys", json={}, headers=bearer(key))
    await api.get("/v1/models")
    entries = (await api.get("/v1/audit", headers=bearer(admin))).json()["items"]
    seen = [(entry["subject"], entry["action"], entry["status"]) for entry in entries]
    subject = f"key:{key.split('_')[1]}"
    assert seen == [
        ("unknown", "GET /v1/models", 401),
        (subject, "POST /v1/keys", 403),
        (subject, "POST /v1/models", 201),
    ]
    assert entries[2]["resource"] == uploaded.headers["location"]
    assert (entries[2]["tenant"], entries[2]["request_id"]) == ("vision", uploaded.headers["x-request-id"])


async def test_a_change_that_cannot_be_audited_is_not_reported_as_done(
    front: Service, api: httpx.AsyncClient
) -> None:
    key = make_key(front)
    with front.store.database.write() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(FAIL, 'full'); END"
        )
    response = await api.post("/v1/models", content=b"model", headers=bearer(key))
    assert response.status_code == 500


async def test_a_change_that_ends_in_an_error_is_audited(
    app: FastAPI, front: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key(front)
    monkeypatch.setattr(TenantModels, "inspect_again", lambda *_: 1 / 0)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.post("/v1/models", content=b"model", headers=bearer(key))
    (entry,) = front.store.audit.page(10).items
    assert (response.status_code, entry.action, entry.status) == (500, "POST /v1/models", 500)


@pytest.fixture
async def ci(settings: AppSettings, issuer: Issuer, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        f"[[issuers]]\nurl = '{issuer.url}'\naudience = '{AUDIENCE}'\n"
        "[[issuers.rules]]\nclaims = { repository = 'acme/vision' }\ntenant = 'vision'\n"
    )
    async with started(settings, auth=AuthMode.AUTO, oidc_policy=policy) as (client, _):
        yield client


async def test_a_ci_job_needs_no_key(ci: httpx.AsyncClient, issuer: Issuer) -> None:
    assert (await ci.get("/v1/models")).status_code == 401
    assert (await ci.get("/v1/models", headers=bearer(issuer.token()))).status_code == 200
    expired = await ci.get("/v1/models", headers=bearer(issuer.token(exp=1)))
    assert (expired.status_code, expired.json()["detail"]) == (401, "The token has expired.")
    other = await ci.get("/v1/models", headers=bearer(issuer.token(repository="evil/fork")))
    assert (other.status_code, other.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize("route", ["/v1/models", "/metrics"])
async def test_without_keys_a_service_on_loopback_asks_for_none(
    route: str, settings: AppSettings, tmp_path: Path
) -> None:
    async with started(settings, auth=AuthMode.AUTO) as (client, _):
        assert (await client.get(route)).status_code == 200


async def test_the_first_key_counts_at_once(settings: AppSettings) -> None:
    async with started(settings, auth=AuthMode.AUTO) as (client, _):
        created = await client.post("/v1/keys", json={"scope": "admin"})
        assert created.status_code == 201
        assert (await client.get("/v1/keys")).status_code == 401
        assert (await client.get("/v1/keys", headers=bearer(created.json()["key"]))).status_code == 200


@pytest.mark.parametrize("has_key", [False, True])
async def test_nobody_is_an_administrator_without_a_key_while_the_database_is_away(
    has_key: bool, settings: AppSettings
) -> None:
    async with started(settings, auth=AuthMode.AUTO) as (client, service):
        assert (await client.get("/metrics")).status_code == 200
        if has_key:
            make_key(service)
        file = take_database_away(service)
        away = await client.get("/metrics")
        assert (away.status_code, away.json()["code"]) == (503, "unavailable")
        assert (await client.get("/healthz")).status_code == 200
        foreign = await client.get("/healthz", headers={"Host": "evil.example"})
        assert foreign.json()["code"] == "host-refused"
        assert (await client.get("/readyz")).json()["database"] is False
        file.rmdir()
        file.with_suffix(".away").rename(file)
        assert (await client.get("/metrics")).status_code == (401 if has_key else 200)


@pytest.mark.parametrize(("days", "status"), [(0, 200), (2, 503)])
async def test_a_key_that_has_expired_is_refused_while_the_database_is_away_too(
    days: int, status: int, front: Service, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.identity.login.CACHE_SECONDS", 0.0)
    created = front.store.keys.create(KeyRequest(scope=Scope.ADMIN, expires_days=1))
    assert (await api.get("/metrics", headers=bearer(created.key))).status_code == 200
    take_database_away(front)
    moment = created.created_at + timedelta(days=days)
    monkeypatch.setattr("app.identity.login.now", lambda: moment)
    assert (await api.get("/metrics", headers=bearer(created.key))).status_code == status


async def test_the_administrators_key_of_the_settings_works_until_it_is_replaced(
    settings: AppSettings,
) -> None:
    for key, replaced in ((ADMIN_KEY, None), (ADMIN_KEY.replace("0a_", "0b_"), ADMIN_KEY)):
        async with started(settings, admin_key=SecretStr(key)) as (client, _):
            assert (await client.get("/v1/keys", headers=bearer(key))).status_code == 200
            if replaced is not None:
                assert (await client.get("/v1/keys", headers=bearer(replaced))).status_code == 401
