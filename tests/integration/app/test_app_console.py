"""The console's session, its problem pages and its static files."""

import asyncio
import gzip
import hashlib
import json
from collections.abc import AsyncIterator, Collection, Iterator

import httpx
import pytest
from app_samples import request
from fastapi import FastAPI

from app.console.static_files import FILES, FOLDER, address
from app.console.uploads import PART_BYTES
from app.identity.failed_logins import LIMIT
from app.identity.login import COOKIE
from app.identity.scopes import READING, required_scope
from app.main import create_app
from app.service import Service
from app.settings import AppSettings
from bessemer.contract.access import Scope
from bessemer.contract.keys import KeyRequest
from bessemer.store.blobs.upload_parts import UploadParts
from tests.console_pages import console_routes, filled

SIGN_IN = "/console/sign-in"
HOME = "/console/compilations"
SCRIPT_BYTES = 100 * 1024
"""The most script of all pages together, compressed."""


@pytest.fixture
async def visitor(guarded: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A browser, as far as cookies and origins go."""
    transport = httpx.ASGITransport(guarded, raise_app_exceptions=False)
    own = {"Sec-Fetch-Site": "same-origin"}
    base = "http://bessemer.example"
    async with httpx.AsyncClient(transport=transport, base_url=base, headers=own) as client:
        yield client


def key_of(app: FastAPI, scope: Scope = Scope.COMPILE) -> str:
    service: Service = app.state.service
    return service.store.keys.create(KeyRequest(tenant="vision", scope=scope)).key


async def sign_in(visitor: httpx.AsyncClient, key: str, next: str = HOME) -> httpx.Response:
    return await visitor.post(SIGN_IN, data={"key": key, "next": next})


async def test_a_page_without_a_key_leads_to_the_sign_in_and_back(
    guarded: FastAPI, visitor: httpx.AsyncClient
) -> None:
    refused = await visitor.get("/console/compilations?state=failed")
    assert refused.status_code == 303
    where = refused.headers["Location"]
    assert where == f"{SIGN_IN}?next=/console/compilations%3Fstate%3Dfailed"
    form = await visitor.get(where)
    assert form.status_code == 200 and 'value="/console/compilations?state=failed"' in form.text
    assert " action=" not in form.text  # with an action, browsers would lose the address's "#"
    back = await sign_in(visitor, key_of(guarded), "/console/compilations?state=failed")
    assert (back.status_code, back.headers["Location"]) == (303, "/console/compilations?state=failed")
    assert (await visitor.get(back.headers["Location"])).status_code == 200


async def test_only_http_reads_the_cookie_and_only_this_site_sends_it(
    guarded: FastAPI, visitor: httpx.AsyncClient
) -> None:
    key = key_of(guarded)
    cookie = (await sign_in(visitor, f"  {key}\n")).headers["Set-Cookie"]
    assert cookie.startswith(f"{COOKIE}={key};")
    flags = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert flags == {"httponly", "path=/", "samesite=lax"}
    visitor.headers["Origin"] = "https://bessemer.example"
    assert "secure" in (await sign_in(visitor, key)).headers["Set-Cookie"].lower()
    visitor.headers.pop("Origin")
    visitor.base_url = httpx.URL("https://bessemer.example")
    assert "secure" in (await sign_in(visitor, key)).headers["Set-Cookie"].lower()


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/console/",
        "//evil.example/console/",
        "/\\evil.example",
        "/console/\\..\\..\\evil.example",
        "javascript:alert(1)",
        "/v1/models",
        "/",
        "",
        "\thttps://evil.example",
        "/\t/evil.example/console/",
        "http:console/",
        "//[",
        "http://\u2100/",
    ],
)
async def test_a_sign_in_never_leads_to_another_site(
    wanted: str, guarded: FastAPI, visitor: httpx.AsyncClient
) -> None:
    response = await sign_in(visitor, key_of(guarded), wanted)
    assert (response.status_code, response.headers["Location"]) == (303, HOME)


@pytest.mark.parametrize("key", ["bsm_ffffffffffff_" + "x" * 43, "nonsense", " "])
async def test_a_wrong_key_is_refused_on_the_page_and_sets_no_cookie(
    key: str, visitor: httpx.AsyncClient
) -> None:
    response = await sign_in(visitor, key)
    assert response.status_code == 401
    assert 'role="alert"' in response.text and "Set-Cookie" not in response.headers
    assert key.strip() == "" or key not in response.text


async def test_after_signing_out_a_page_asks_again(guarded: FastAPI, visitor: httpx.AsyncClient) -> None:
    await sign_in(visitor, key_of(guarded))
    response = await visitor.post("/console/sign-out")
    assert (response.status_code, response.headers["Location"]) == (303, SIGN_IN)
    assert (await visitor.get(HOME)).status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://bessemer.example", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
    ],
)
async def test_no_page_of_another_site_changes_anything(
    headers: dict[str, str], guarded: FastAPI, visitor: httpx.AsyncClient
) -> None:
    await sign_in(visitor, key_of(guarded, Scope.ADMIN))
    changing = [each for each in console_routes(guarded) if each[0] not in READING]
    assert len(changing) >= 9
    for method, path in changing:
        response = await visitor.request(method, filled(path, {}), headers=headers, data={"key": "x"})
        assert response.status_code == 403 and "Set-Cookie" not in response.headers, path
        assert "It came from" in response.text, path


async def test_a_change_with_only_the_cookie_names_its_page(
    guarded: FastAPI, visitor: httpx.AsyncClient
) -> None:
    key = key_of(guarded, Scope.ADMIN)
    await sign_in(visitor, key)
    visitor.headers.pop("Sec-Fetch-Site")
    changing = [each for each in console_routes(guarded) if each[0] not in READING]
    asked = [each for each in changing if required_scope(*each) is not None]
    for method, path in [*asked, ("POST", "/v1/models"), ("DELETE", f"/v1/models/{'0' * 64}")]:
        response = await visitor.request(method, filled(path, {}))
        assert response.status_code == 403 and "origin-missing" in response.text, path
    assert (await visitor.get(HOME)).status_code == 200
    named = {"Origin": "http://bessemer.example"}
    assert (await visitor.post("/v1/models", headers=named, content=b"x")).status_code == 201
    by_key = {"Authorization": f"Bearer {key}"}
    assert (await visitor.post("/v1/models", headers=by_key, content=b"y")).status_code == 201


async def test_changes_with_false_cookies_count_as_failed_logins(
    guarded: FastAPI, visitor: httpx.AsyncClient
) -> None:
    key_of(guarded)
    visitor.headers.pop("Sec-Fetch-Site")
    headers = {"Cookie": f"{COOKIE}=false"}
    codes = [
        (await visitor.post("/v1/models", headers=headers, content=b"x")).status_code
        for _ in range(LIMIT + 1)
    ]
    assert codes == [401] * LIMIT + [429]


async def test_a_file_has_the_parts_of_its_size(guarded: FastAPI, visitor: httpx.AsyncClient) -> None:
    await sign_in(visitor, key_of(guarded))
    data = b"no model"
    digest = hashlib.sha256(data).hexdigest()
    plan = {"digest": digest, "size_bytes": len(data), "file": "net.pt2", "parts": [digest]}
    many = await visitor.post("/console/uploads", json={**plan, "parts": [digest] * 1000})
    assert many.status_code == 422 and "expected 1 parts" in many.text
    assert (await visitor.post("/console/uploads", json=plan)).json()["missing"] == [digest]
    part = await visitor.put(f"/console/uploads/parts/{digest}", content=data)
    assert part.status_code == 204
    assert (await visitor.post("/console/uploads", json=plan)).json()["model"]["digest"] == digest


async def test_requests_that_join_the_same_parts_at_once_all_get_the_model_and_read_the_parts_once(
    settings: AppSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    joined = UploadParts.joined

    def counted(parts: UploadParts, digests: Collection[str]) -> Iterator[bytes]:
        read.extend(digests)
        return joined(parts, digests)

    monkeypatch.setattr(UploadParts, "joined", counted)
    app = create_app(settings.model_copy(update={"max_upload_bytes": 4 * PART_BYTES}))
    data = bytes(range(256)) * (PART_BYTES // 128) + b"the rest"
    pieces = [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]
    digests = [hashlib.sha256(piece).hexdigest() for piece in pieces]
    digest = hashlib.sha256(data).hexdigest()
    plan = {"digest": digest, "size_bytes": len(data), "file": "net.pt2", "parts": digests}
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            for piece, each in zip(pieces, digests, strict=True):
                sent = await client.put(f"/console/uploads/parts/{each}", content=piece)
                assert sent.status_code == 204
            answers = await asyncio.gather(*(client.post("/console/uploads", json=plan) for _ in range(6)))
            assert [answer.status_code for answer in answers] == [200] * 6, [each.text for each in answers]
            assert {answer.json()["model"]["digest"] for answer in answers} == {digest}
            assert read == digests
            assert len((await client.get("/v1/models")).json()["items"]) == 1
            own = app.state.service.store.for_tenant("default")
            assert own.parts.stored_bytes() == 0
            assert b"".join(own.artifacts.stream(digest)) == data


async def test_parts_that_are_sent_after_the_model_is_stored_are_deleted(
    guarded: FastAPI, visitor: httpx.AsyncClient
) -> None:
    await sign_in(visitor, key_of(guarded))
    data = b"sent twice"
    digest = hashlib.sha256(data).hexdigest()
    plan = {"digest": digest, "size_bytes": len(data), "file": "net.pt2", "parts": [digest]}
    for _ in range(2):
        await visitor.put(f"/console/uploads/parts/{digest}", content=data)
        assert (await visitor.post("/console/uploads", json=plan)).json()["model"]["digest"] == digest
    assert guarded.state.service.store.for_tenant("vision").parts.stored_bytes() == 0


async def test_head_answers_as_get_does_without_a_body(guarded: FastAPI, visitor: httpx.AsyncClient) -> None:
    await sign_in(visitor, key_of(guarded, Scope.ADMIN))
    pages = [path for method, path in console_routes(guarded) if method == "GET"]
    assert len(pages) > 20
    for path in pages:
        address = filled(path, {"name": "console.css"})
        head, got = await visitor.head(address), await visitor.get(address)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        assert head.headers.get("Content-Type") == got.headers.get("Content-Type"), path


async def test_a_form_is_read_within_limits(guarded: FastAPI, visitor: httpx.AsyncClient) -> None:
    await sign_in(visitor, key_of(guarded, Scope.ADMIN))
    large = {f"{number}": "x" * (1 << 19) for number in range(5)}
    files = {"file": b"x" * (3 << 20)}
    for path in (SIGN_IN, "/console/admin/keys", *(f"{HOME}/0/{each}" for each in ("again", "cancel"))):
        for body in ({"data": large}, {"files": files}):
            response = await visitor.post(path, **body)  # type: ignore[arg-type]
            assert response.status_code == 413, path


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", SIGN_IN, None),
        ("POST", SIGN_IN, None),
        ("POST", "/console/sign-out", None),
        ("GET", "/console/static/console.css", None),
        ("GET", "/console/submit", Scope.READ),
        ("POST", "/console/submit", Scope.COMPILE),
        ("PUT", "/console/uploads/parts/abcd", Scope.COMPILE),
    ],
)
def test_the_console_asks_for_the_scopes_of_the_api(method: str, path: str, scope: Scope | None) -> None:
    assert required_scope(method, path) is scope


async def test_a_reader_sees_pages_and_gets_a_page_for_what_it_may_not_do(
    guarded: FastAPI, visitor: httpx.AsyncClient
) -> None:
    await sign_in(visitor, key_of(guarded, Scope.READ))
    assert (await visitor.get(HOME)).status_code == 200
    response = await visitor.post("/console/compilations/abcd1234/cancel")
    assert (response.status_code, response.headers["Content-Type"]) == (403, "text/html; charset=utf-8")
    assert "needs the scope" in response.text


async def test_problems_are_pages_below_the_console_and_documents_elsewhere(api: httpx.AsyncClient) -> None:
    page = await api.get("/console/compilations/abcd1234")
    assert (page.status_code, page.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert "<h1>" in page.text
    document = await api.get("/v1/compilations/abcd1234")
    assert document.headers["Content-Type"] == "application/problem+json"


async def test_a_defect_is_a_page_with_the_requests_id_below_the_console(
    app: FastAPI, api: httpx.AsyncClient
) -> None:
    app.state.service = None
    response = await api.get("/console/compilations", headers={"X-Request-Id": "asked-for"})
    assert (response.status_code, response.headers["Content-Type"]) == (500, "text/html; charset=utf-8")
    assert response.headers["X-Request-Id"] == "asked-for" and "asked-for" in response.text
    assert "NoneType" not in response.text


async def test_a_refused_host_is_a_page_below_the_console(api: httpx.AsyncClient) -> None:
    response = await api.get("/console/compilations", headers={"Host": "evil.example"})
    assert (response.status_code, response.headers["Content-Type"]) == (421, "text/html; charset=utf-8")


async def test_a_script_that_asks_for_json_gets_the_problem(api: httpx.AsyncClient) -> None:
    response = await api.post("/console/uploads", json={}, headers={"Accept": "application/json"})
    assert (response.status_code, response.json()["code"]) == (422, "request-invalid")


async def test_a_switched_off_console_has_no_pages(settings: AppSettings) -> None:
    app = create_app(settings.model_copy(update={"console": False}))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/")).headers["Location"] == "/docs"
            for path in (HOME, SIGN_IN, address("console.css")):
                assert (await client.get(path)).status_code == 404
            assert (await client.get("/v1/models")).status_code == 200


async def test_a_page_runs_the_services_scripts_only(api: httpx.AsyncClient, model: str) -> None:
    await api.post("/v1/compilations", json=request())
    page = await api.get(HOME)
    policy = page.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy and "http" not in policy
    assert " style=" not in page.text and "<style" not in page.text and " onclick" not in page.text
    assert page.headers["Cache-Control"] == "private, no-cache"


@pytest.mark.parametrize("name", sorted(FILES))
async def test_a_static_file_is_its_hash_and_never_changes(name: str, api: httpx.AsyncClient) -> None:
    response = await api.get(address(name), headers={"Accept-Encoding": "gzip"})
    assert (response.status_code, response.content) == (200, (FOLDER / name).read_bytes())
    assert response.headers["Content-Encoding"] == "gzip" and "immutable" in response.headers["Cache-Control"]
    plain = await api.get(address(name), headers={"Accept-Encoding": "identity"})
    assert plain.content == response.content and "Content-Encoding" not in plain.headers


@pytest.mark.parametrize("version", ["", "?v=0123456789abcdef"])
async def test_another_version_of_a_static_file_is_not_kept(version: str, api: httpx.AsyncClient) -> None:
    response = await api.get(f"/console/static/console.css{version}")
    assert (response.status_code, response.headers["Cache-Control"]) == (200, "no-cache")


@pytest.mark.parametrize("path", ["/console", "/console/"])
async def test_the_consoles_own_address_leads_to_its_first_page(path: str, api: httpx.AsyncClient) -> None:
    assert (await api.get(path)).headers["Location"] == HOME


@pytest.mark.parametrize(
    "wanted",
    ["//evil.example", "https://evil.example", "/v1/models", "\t/console/x", f"/console/{'x' * 4096}"],
)
async def test_signing_in_leads_to_pages_of_the_console_only(
    wanted: str, guarded: FastAPI, visitor: httpx.AsyncClient
) -> None:
    form = {"key": key_of(guarded), "next": wanted}
    assert (await visitor.post(SIGN_IN, data=form)).headers["Location"] == HOME


async def test_a_change_after_the_session_ended_leads_to_a_page(visitor: httpx.AsyncClient) -> None:
    response = await visitor.post(f"{HOME}/abcd1234/cancel")
    assert response.headers["Location"] == f"{SIGN_IN}?next={HOME}"


async def test_empty_parts_count_against_the_limit_of_a_form(api: httpx.AsyncClient) -> None:
    part = '--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'
    response = await api.post(
        "/console/submit",
        content=part * 20_000 + "--b--\r\n",
        headers={"Content-Type": "multipart/form-data; boundary=b"},
    )
    assert response.status_code == 413


async def test_a_form_from_no_compilation_is_empty(api: httpx.AsyncClient) -> None:
    assert (await api.get("/console/submit?from=%00")).status_code == 200


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("tune.trils=500", "unknown field; did you mean &#39;tune.trials&#39;?"),
        ("tune.trials=many", "expected a whole number"),
        ("target=", "required: choose a target"),
        ("target.cores=-1", "expected at least 1"),
        ("from=abcd1234", "no compilation has this id"),
        ("model=123", "no such model is stored"),
        ("tune.trials=500", None),
    ],
)
async def test_the_address_of_a_form_is_checked_at_once(
    query: str, expected: str | None, api: httpx.AsyncClient
) -> None:
    response = await api.get(f"/console/submit?{query}")
    assert response.status_code == 200
    assert expected is None or expected in response.text
    assert ('role="alert"' in response.text) is (expected is not None)


@pytest.mark.parametrize(
    "name", ["..%2Frendering.py", "../rendering.py", "vendor/vendored.json", "no.js", ""]
)
async def test_other_files_are_not_served(name: str, api: httpx.AsyncClient) -> None:
    assert (await api.get(f"/console/static/{name}")).status_code == 404


def test_vendored_files_are_what_was_vendored_and_have_their_licenses() -> None:
    folder = FOLDER / "vendor"
    vendored = json.loads((folder / "vendored.json").read_text())
    for entry in vendored:
        data = (folder / entry["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"], entry["file"]
        assert (folder / f"{entry['file'].partition('.')[0]}.LICENSE").read_text().strip()
    known = {entry["file"] for entry in vendored}
    assert {path.name for path in folder.iterdir() if path.suffix in (".js", ".css")} == known


def test_all_scripts_together_are_small() -> None:
    scripts = list(FOLDER.rglob("*.js"))
    assert scripts
    assert sum(len(gzip.compress(path.read_bytes())) for path in scripts) <= SCRIPT_BYTES
