"""The console's pages to compare, of models, records and the fleet, for administrators, and the guide."""

import os
import re
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from app_samples import (
    DIGEST,
    IMAGE,
    MODEL_BYTES,
    REPORT,
    REPORT_JSON,
    TARGET,
    PlayedWorker,
    post_compilation,
    submitted,
    worker,
)
from callers import client_of
from fastapi import FastAPI

from app.console import rendering
from app.console.compare import MOST
from app.identity.scopes import required_scope
from app.service import Service
from app.settings import AppSettings
from bessemer.contract.access import Scope
from bessemer.contract.device import DeviceRequest
from bessemer.contract.keys import KeyRequest
from bessemer.contract.model import Inspection, ModelFormat, Signature
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.queue import TaskKind
from bessemer.contract.report import PassTime
from bessemer.contract.service import RunningTask
from tests.compiler_files import kept, module
from tests.console_pages import console_pages, filled
from tests.inspections import inspected

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
PAGES = (
    "/console/compare",
    "/console/models",
    f"/console/models/{DIGEST}",
    "/console/models/named?name=mlp",
    "/console/records",
    "/console/fleet",
    "/console/admin",
    "/console/admin/audit",
)


class Markup(HTMLParser):
    """Collects what the policy forbids, and what a text must not become."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.headings = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        self.headings += tag == "h1"
        self.faults += [f"{tag} {name}" for name in names if name == "style" or name.startswith("on")]
        if (tag == "script" and "src" not in names) or tag in ("style", "img", "iframe"):
            self.faults.append(tag)


def checked(response: httpx.Response, status: int = 200) -> str:
    """The text of a page without anything that a user made markup."""
    assert response.status_code == status, response.text[:500]
    assert "script-src 'self'" in response.headers["Content-Security-Policy"]
    markup = Markup()
    markup.feed(response.text)
    assert markup.faults == []
    assert markup.headings == 1
    return response.text


async def finished(api: httpx.AsyncClient, played: PlayedWorker, **fields: object) -> str:
    job = await submitted(api, cache=False, **fields)
    played.succeed(job, played.start(job))
    return job


@pytest.mark.parametrize("page", PAGES)
async def test_a_page_without_any_data_says_so(api: httpx.AsyncClient, page: str) -> None:
    status = 404 if page.endswith(DIGEST) else 200
    text = checked(await api.get(page), status)
    assert status == 404 or "No " in text or "Nothing" in text


@pytest.mark.parametrize("page", PAGES)
async def test_a_page_with_hostile_texts_escapes_them(
    api: httpx.AsyncClient, front: Service, model: str, played: PlayedWorker, page: str
) -> None:
    signature = Signature(inputs=(IMAGE,), input_names=(HOSTILE,), parameters=10)
    inspected(front.store, model, Inspection(format=ModelFormat.PT2, signature=signature))
    await finished(api, played, name=HOSTILE, labels={"commit": HOSTILE})
    failed = await submitted(api, name="mlp", labels={"commit": HOSTILE})
    played.fail(failed, played.start(failed))
    busy = worker().model_copy(
        update={
            "processor": HOSTILE,
            "host": HOSTILE,
            "running": (RunningTask(kind=TaskKind.COMPILE, id=failed, began_at=REPORT.created_at),),
        }
    )
    front.store.workers.beat(busy)
    device = DeviceRequest(name="pi-4", platform="aarch64", processor=HOSTILE, cores=4, memory_bytes=1 << 30)
    front.store.for_tenant("default").devices.register(device, shared=True)
    front.store.audit.record(HOSTILE, None, HOSTILE, HOSTILE, address=HOSTILE)
    text = checked(await api.get(page))
    assert "&lt;script&gt;" in text or page in ("/console/records", "/console/models", "/console/admin")


async def test_compilations_are_compared_with_the_first(
    api: httpx.AsyncClient, model: str, played: PlayedWorker
) -> None:
    first = await finished(api, played, name="mlp", labels={"commit": "4f1d2a9"})
    second = await finished(api, played, name=HOSTILE, labels={"commit": "81c0e55"}, priority=3)
    text = checked(await api.get("/console/compare", params={"id": [first[:8], second]}))
    assert "labels.commit" in text and "81c0e55" in text and "priority" in text
    assert text.index(first) < text.index(second)
    turned = checked(await api.get("/console/compare", params={"id": [second, first]}))
    assert turned.index(second) < turned.index(first)


async def test_a_library_that_nothing_ran_is_not_shown_as_a_success_on_a_processor(
    api: httpx.AsyncClient, model: str, played: PlayedWorker
) -> None:
    jobs = [await submitted(api, verification="none", priority=priority, cache=False) for priority in (1, 2)]
    for job in jobs:
        attempt = played.start(job)
        report = REPORT.model_copy(update={"verified": False, "processor": "EPYC 9005"})
        files = (
            played._keep(attempt, "report.json", report.model_dump_json().encode(), "application/json"),
            played._keep(attempt, "bundle.tar.zst", b"bundle", "application/zstd"),
        )
        played.store.jobs.succeed(job, attempt, TARGET, False, None, files, None)
    text = checked(await api.get("/console/compare", params={"id": jobs}))
    assert '<span class="state unverified">not verified, not measured</span>' in text
    assert "EPYC" not in text and "EPYC" not in checked(await api.get(f"/console/compilations/{jobs[0]}"))


async def test_a_group_says_why_a_target_failed_and_what_to_do(
    api: httpx.AsyncClient, model: str, played: PlayedWorker
) -> None:
    made = await post_compilation(api, target=["host", "neoverse-n1"])
    assert made.status_code == 202, made.text
    first, second = (each["id"] for each in made.json()["items"])
    played.succeed(first, played.start(first))
    problem = make_problem(ErrorCode.TARGET_NOT_RUNNABLE, f"no emulator here {HOSTILE}", stage="verify")
    played.store.jobs.fail(second, played.start(second), problem)
    text = checked(await api.get("/console/compare", params={"group": made.json()["id"]}))
    assert "no emulator here &lt;script&gt;" in text and "What to do." in text
    assert all(word in text for word in problem.advice.split("`")[0].split())


async def test_a_comparison_reloads_until_all_have_ended(
    api: httpx.AsyncClient, model: str, played: PlayedWorker
) -> None:
    first, second = await finished(api, played), await submitted(api, cache=False)
    address = f"/console/compare?id={first}&id={second}"
    assert "hx-trigger" in checked(await api.get(address))
    played.fail(second, played.start(second))
    assert "hx-trigger" not in checked(await api.get(address))


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("id=abcd", 404),
        ("id=%00%00%00%00", 404),
        ("id=" + "x" * 5000, 404),
        ("group=abcd", 404),
        ("group=%00", 404),
        ("&".join(f"id=abc{index}" for index in range(MOST + 1)), 422),
        ("state=running&name=&label=", 200),
        ("state=strange", 422),
        ("label=%00", 422),
        ("id=&id=", 200),
        ("cursor=strange", 200),
    ],
)
async def test_a_query_that_cannot_be_is_a_problem_in_words(
    api: httpx.AsyncClient, query: str, status: int
) -> None:
    checked(await api.get(f"/console/compare?{query}"), status)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/console/models/xyz!", 422),
        ("/console/models/abcd", 404),
        ("/console/models/named", 422),
        ("/console/models/named?name=%00", 422),
        ("/console/models?cursor=strange", 422),
        ("/console/models?state=ready&name=&format=", 200),
        ("/console/records?threads=x", 422),
        ("/console/records?threads=&target=znver4&won=&since=2026-11-01", 200),
        ("/console/records?since=yesterday", 422),
        ("/console/admin/audit?before=0", 422),
        ("/console/admin/audit?before=99999999999999999999", 422),
    ],
)
async def test_filters_are_checked_and_empty_ones_are_none(
    api: httpx.AsyncClient, path: str, status: int
) -> None:
    checked(await api.get(path), status)


async def test_one_compilation_alone_leads_to_a_choice_of_others(
    api: httpx.AsyncClient, model: str, played: PlayedWorker
) -> None:
    first, second = await finished(api, played, name="mlp"), await finished(api, played, name="cnn")
    text = checked(await api.get(f"/console/compare?id={first}"))
    assert re.search(rf'value="{first}"[^>]* checked', text)
    assert f'value="{second}"' in text
    named = checked(await api.get(f"/console/compare?id={first}&name=mlp"))
    assert f'value="{second}"' not in named
    assert "No compilation is chosen" in checked(await api.get("/console/compare?oldest_first=true"))


@pytest.mark.parametrize("report", [b"", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"verified": NaN}'])
async def test_a_report_that_cannot_be_read_is_left_out(
    api: httpx.AsyncClient, model: str, played: PlayedWorker, report: bytes
) -> None:
    first, second = await finished(api, played), await submitted(api, cache=False)
    played.fail_with(second, played.start(second), {"report.json": report})
    checked(await api.get(f"/console/compare?id={first}&id={second}"))


@pytest.mark.parametrize("kept_bytes", [None, 0, 100], ids=["deleted", "emptied", "cut"])
async def test_pages_of_damaged_files_say_so_and_the_others_are_shown(
    app: FastAPI,
    api: httpx.AsyncClient,
    front: Service,
    settings: AppSettings,
    model: str,
    played: PlayedWorker,
    kept_bytes: int | None,
) -> None:
    first = await finished(api, played)
    second = await submitted(api, cache=False, inspect={"ir": True})
    files = kept([module("a = 1"), module("a = 2")])
    played.fail_with(
        second, played.start(second), {**files, "report.json": REPORT_JSON, "log.txt": b"x" * 999}
    )
    for blob in (settings.data / "artifacts" / "default").iterdir():
        if kept_bytes is None:
            blob.unlink()
        else:
            os.truncate(blob, kept_bytes)

    checked(await api.get(f"/console/compare?id={first}&id={second}"))
    for path in console_pages(app):
        for job in (first, second):
            page = await api.get(filled(path, {"id": job, "digest": model}))
            assert page.status_code < 500, (path, page.text[:300])
    assert "report is missing in the store" in (await api.get(f"/console/compilations/{first}")).text


async def test_reports_with_any_number_and_text_make_a_page(
    api: httpx.AsyncClient, model: str, played: PlayedWorker
) -> None:
    strange = REPORT.model_copy(
        update={
            "passes": (PassTime(phase=HOSTILE, name=HOSTILE, seconds=float("inf"), functions=10**400),),
            "model_parameters": 10**400,
            "processor": HOSTILE,
        }
    )
    first, second = await finished(api, played), await submitted(api, cache=False)
    report = strange.model_dump_json().encode().replace(b'"seconds":null', b'"seconds":1e999')
    played.fail_with(second, played.start(second), {"report.json": report})
    checked(await api.get(f"/console/compare?id={first}&id={second}"))


async def test_a_model_has_its_history_by_digest_and_by_name(
    api: httpx.AsyncClient, model: str, played: PlayedWorker
) -> None:
    found = [await finished(api, played, name="mlp", labels={"commit": str(index)}) for index in range(3)]
    for address in (f"/console/models/{DIGEST[:8]}", "/console/models/named?name=mlp"):
        text = checked(await api.get(address))
        assert "one point a compilation" in text
        assert all(f'href="/console/compilations/{job}"' in text for job in found)


async def test_a_model_leads_to_the_history_of_its_name_if_a_compilation_has_it(
    api: httpx.AsyncClient, played: PlayedWorker
) -> None:
    address = f"/console/models/{DIGEST}"
    await api.put(f"/v1/models/{DIGEST}?name=mlp", content=MODEL_BYTES)
    await finished(api, played, name="other")
    assert "the history of all compilations" not in checked(await api.get(address))
    await finished(api, played, name="mlp")
    assert "the history of all compilations" in checked(await api.get(address))


async def test_the_fleet_shows_an_administrator_more(guarded: FastAPI) -> None:
    service: Service = guarded.state.service
    service.store.workers.beat(worker().model_copy(update={"processor": "EPYC of the operator"}))
    async with (
        client_of(guarded, "vision", Scope.READ) as reader,
        client_of(guarded, "ops", Scope.ADMIN) as operator,
    ):
        read, operated = [checked(await each.get("/console/fleet")) for each in (reader, operator)]
        part = await reader.get("/console/fleet", headers={"HX-Request": "true"})
    assert "EPYC of the operator" in operated and "All tenants" in operated
    assert "EPYC of the operator" not in read and "All tenants" not in read
    assert "w1" in read
    assert part.text.lstrip().startswith('<div id="fleet"')


async def test_another_tenants_compilations_and_models_do_not_exist(guarded: FastAPI) -> None:
    async with client_of(guarded, "audio") as owner, client_of(guarded, "vision", Scope.READ) as other:
        assert (await owner.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)).status_code == 201
        job = await submitted(owner)
        for path in (f"/console/compare?id={job}", f"/console/models/{DIGEST}"):
            checked(await other.get(path), 404)
        assert job not in checked(await other.get("/console/compare"))
        assert job not in checked(await other.get("/console/fleet"))


async def test_a_key_that_may_only_read_sees_no_buttons_that_change_a_compilation(guarded: FastAPI) -> None:
    async with client_of(guarded, "vision") as owner, client_of(guarded, "vision", Scope.READ) as reader:
        assert (await owner.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)).status_code == 201
        page = f"/console/compilations/{await submitted(owner)}"
        assert f'action="{page}/cancel"' in checked(await owner.get(page))
        assert f'action="{page}/cancel"' not in checked(await reader.get(page))


@pytest.mark.parametrize("scope", [Scope.READ, Scope.COMPILE, Scope.DEVICE])
@pytest.mark.parametrize("path", ["/console/admin", "/console/admin/audit"])
async def test_only_administrators_administer(guarded: FastAPI, scope: Scope, path: str) -> None:
    async with client_of(guarded, "vision", scope) as caller:
        text = checked(await caller.get(path), 403)
        assert "needs the scope `admin`" in text
        refused = await caller.post("/console/admin/keys", data={"scope": "admin"})
        assert refused.status_code == 403
    service: Service = guarded.state.service
    assert len(service.store.keys.list()) == 1


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/console/fleet", Scope.READ),
        ("GET", "/console/administrators", Scope.READ),
        ("GET", "/console/admin", Scope.ADMIN),
        ("GET", "/console/admin/audit", Scope.ADMIN),
        ("POST", "/console/admin/keys", Scope.ADMIN),
        ("GET", "/guide", None),
        ("GET", "/guide/usage/", None),
        ("GET", "/guides", Scope.ADMIN),
    ],
)
def test_a_page_needs_the_scope_of_what_it_shows(method: str, path: str, scope: Scope | None) -> None:
    assert required_scope(method, path) is scope


async def test_the_first_key_should_be_an_administrators(api: httpx.AsyncClient) -> None:
    page = checked(await api.get("/console/admin"))
    assert "<option selected>admin" in page and "Create a key with the scope" in page
    created = checked(await api.post("/console/admin/keys", data={"scope": "read"}), 201)
    assert "No key has the scope" in created
    assert "/console/sign-in" in (await api.get("/console/admin")).headers["location"]


async def test_an_administrator_creates_keys_to_compile_by_default(guarded: FastAPI) -> None:
    async with client_of(guarded, "ops", Scope.ADMIN) as operator:
        assert "<option selected>compile" in checked(await operator.get("/console/admin"))


async def test_a_key_is_created_shown_once_and_revoked(app: FastAPI, front: Service) -> None:
    async with client_of(app, "ops", Scope.ADMIN) as operator:
        form = {"tenant": "vision", "scope": "read", "name": "ci <1>", "expires_days": "90"}
        created = await operator.post("/console/admin/keys", data=form)
        shown = re.search(r"bsm_([0-9a-f]{12})_[0-9A-Za-z_-]{32,}", checked(created, 201))
        assert shown is not None
        assert created.headers["Cache-Control"] == "no-store"
        key = front.store.keys.find(shown[0])
        assert key is not None and (key.tenant, key.scope, key.name) == ("vision", Scope.READ, "ci <1>")
        listed = checked(await operator.get("/console/admin"))
        assert shown[0] not in listed and shown[1] in listed and "ci &lt;1&gt;" in listed
        revoked = await operator.post(f"/console/admin/keys/{shown[1]}/revoke")
        assert (revoked.status_code, revoked.headers["Location"]) == (303, "/console/admin")
        again = await operator.post(f"/console/admin/keys/{shown[1]}/revoke")
        checked(again, 404)
        log = checked(await operator.get("/console/admin/audit"))
    after = front.store.keys.get(shown[1])
    assert after is not None and after.revoked_at is not None
    assert f"/v1/keys/{shown[1]}" in log and shown[0] not in log


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"tenant": "Vision!"}, "tenant"),
        ({"scope": "god"}, "scope"),
        ({"expires_days": "-1"}, "expires_days"),
        ({"expires_days": "soon"}, "expires_days"),
        ({"name": "x" * 200}, "name"),
        ({"name": "\x00"}, "name"),
    ],
)
async def test_a_key_that_cannot_be_is_refused_on_the_form(
    api: httpx.AsyncClient, front: Service, form: dict[str, str], words: str
) -> None:
    text = checked(await api.post("/console/admin/keys", data=form), 422)
    assert words in text and "Create a key" in text
    assert front.store.keys.list() == ()


async def test_another_sites_form_creates_no_key(api: httpx.AsyncClient, front: Service) -> None:
    headers = {"Origin": "https://evil.example"}
    refused = await api.post("/console/admin/keys", data={"scope": "admin"}, headers=headers)
    assert refused.status_code == 403
    assert front.store.keys.list() == ()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A documentation site of two pages."""
    monkeypatch.setattr(rendering, "SITE", tmp_path)
    (tmp_path / "usage").mkdir()
    for name in ("index.html", "usage/index.html"):
        (tmp_path / name).write_text(f"<!doctype html><script>1</script><h1>{name}</h1>" + " " * 2000)
    return tmp_path


async def test_the_guide_needs_no_key(app: FastAPI, front: Service, site: Path) -> None:
    front.store.keys.create(KeyRequest())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as visitor:
        assert (await visitor.get("/guide")).headers["Location"] == "/guide/"
        assert (await visitor.get("/guide/usage")).headers["Location"] == "/guide/usage/"
        page = await visitor.get("/guide/usage/")
        assert page.status_code == 200 and "usage/index.html" in page.text
        assert "sha256-" in page.headers["Content-Security-Policy"]
        assert page.headers["Content-Encoding"] == "gzip"
        same = await visitor.get("/guide/usage/", headers={"If-None-Match": page.headers["ETag"]})
        assert (same.status_code, same.content) == (304, b"")
        assert (await visitor.head("/guide/")).content == b""
        checked(await visitor.get("/guide/missing/"), 404)
        checked(await visitor.get("/guide/..%2f..%2fetc/passwd"), 404)
        assert (await visitor.post("/guide/")).status_code == 405


async def test_pages_link_to_the_guide(api: httpx.AsyncClient, site: Path) -> None:
    assert 'href="/guide/"' in checked(await api.get("/console/compilations"))


async def test_no_page_links_to_a_guide_that_is_not_built_and_its_address_says_how(
    api: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "SITE", tmp_path / "none")
    assert "/guide/" not in checked(await api.get("/console/compilations"))
    assert "make guide" in checked(await api.get("/guide/"), 404)
