"""Comparing, a model's history, the fleet and the guide in a browser, and the pictures of the guide."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from conftest import LiveApp, watched
from pictures import SCHEMES, SIZE, WRITES, save
from playwright.sync_api import Browser, Page, expect
from sample_data import MEDIANS, REGRESSION, Shown, fill

from app.console.guide import found
from app.console.rendering import SITE
from bessemer.contract.access import Scope
from bessemer.contract.keys import KeyRequest
from bessemer.store.settings import StoreSettings
from bessemer.store.store import open_store
from examples.local_service import local_app


@pytest.fixture(scope="module")
def shown(live: LiveApp, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return fill(live.url, live.store, tmp_path_factory.mktemp("reports"))


def test_compilations_are_chosen_by_keyboard_and_compared(page: Page, shown: Shown) -> None:
    page.goto("/console/compare")
    for job in shown.jobs[-2:]:
        page.locator(f"input[value='{job}']").focus()
        page.keyboard.press("Space")
    page.get_by_role("button", name="Compare").press("Enter")
    expect(page.get_by_role("heading", name="Compare 2 compilations")).to_be_visible()
    expect(page.get_by_role("row", name="optimize.fusion")).to_be_visible()
    expect(page.get_by_role("row", name="fuse: FuseTIR")).to_be_visible()
    expect(page.locator(".verdict")).to_have_text("slower")
    page.get_by_role("link", name="Make this the base").click()
    expect(page.locator(".card-head a").first).to_have_attribute("href", re.compile(shown.jobs[-1]))


def test_a_regression_is_marked_and_leads_to_its_comparison(page: Page, shown: Shown) -> None:
    page.goto("/console/models/named?name=resnet18")
    expect(page.locator(".chart a")).to_have_count(len(shown.jobs))
    marks = page.locator(".chart .mark.bad")
    assert marks.count() >= 1
    expect(page.locator(f".chart a[href$='{shown.jobs[REGRESSION]}'] .mark.bad")).to_have_count(1)
    page.locator(".verdicts a").last.click()
    expect(page).to_have_url(
        f"{page.url.split('?')[0]}?id={shown.jobs[REGRESSION - 1]}&id={shown.jobs[REGRESSION]}"
    )
    expect(page.locator(".verdict.slower")).to_be_visible()


def test_the_fleet_follows_its_workers(page: Page, live: LiveApp, shown: Shown) -> None:
    shown.beat(live.store)
    page.goto("/console/fleet")
    expect(page.locator(".task")).to_contain_text("tune")
    busy, _ = shown.workers
    live.store.workers.beat(busy.model_copy(update={"running": ()}))
    expect(page.locator(".task")).to_have_count(0)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "address",
    [
        "/console/compare",
        "/console/models",
        "/console/models/named?name=resnet18",
        "/console/records",
        "/console/fleet",
        "/console/admin",
        "/console/admin/audit",
    ],
)
def test_pages_fit_a_phone_and_can_be_read_without_scripts(
    browser: Browser, live: LiveApp, shown: Shown, address: str
) -> None:
    context = browser.new_context(
        base_url=live.url, viewport={"width": 390, "height": 800}, java_script_enabled=False
    )
    page = context.new_page()
    page.goto(address)
    expect(page.locator("h1")).to_be_visible()
    width = page.locator("main").bounding_box()
    context.close()
    assert width is not None and width["width"] <= 390


def test_the_guide_is_searched_under_a_strict_policy(page: Page) -> None:
    if found(SITE, "") is None:
        pytest.skip("the guide is not built: make guide")
    page.goto("/guide/")
    page.locator(".md-search__input").click()
    page.keyboard.type("quota")
    expect(page.locator(".md-search-result__item").first).to_be_visible()


FOLLOWED = ("fleet", "live")
"""Pages that follow events: their network is never idle."""
ADDRESSES = {
    "compilations": "/console/compilations",
    "compare": "/console/compare?id={0}&id={1}",
    "history": "/console/models/named?name=resnet18",
    "fleet": "/console/fleet",
    "models": "/console/models",
    "live": "/console/compilations/{2}",
} | ({"submit": "/console/submit?from={1}"} if WRITES else {})


@pytest.fixture(params=SCHEMES)
def themed(browser: Browser, live: LiveApp, request: pytest.FixtureRequest) -> Iterator[tuple[Page, str]]:
    context = browser.new_context(base_url=live.url, viewport=SIZE, color_scheme=request.param)
    yield context.new_page(), request.param
    context.close()


@pytest.mark.sampled
@pytest.mark.parametrize("name", ADDRESSES)
def test_pictures_of_the_console(
    themed: tuple[Page, str], live: LiveApp, shown: Shown, tmp_path: Path, name: str
) -> None:
    page, scheme = themed
    shown.beat(live.store)
    page.goto(ADDRESSES[name].format(shown.jobs[len(MEDIANS) - 1], shown.jobs[-1], shown.running))
    page.wait_for_load_state("load" if name in FOLLOWED else "networkidle")
    if name == "live":
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        for done, milliseconds in enumerate((8.0, 7.6, 7.2, 6.9, 6.4)):
            shown.search(live.store, 16 * done, milliseconds)
            expect(page.locator(".beat .best")).to_contain_text(f"{milliseconds:.2f} ms")
    save(page, name, scheme, tmp_path)


QUOTAS = {
    "BESSEMER_QUOTA_RUNNING_JOBS": "4",
    "BESSEMER_QUOTA_QUEUED_JOBS": "100",
    "BESSEMER_QUOTA_STORED_BYTES": str(20 << 30),
}
KEYS = (
    {"tenant": "vision", "scope": "compile", "name": "CI of resnet18", "expires_days": 90},
    {"tenant": "speech", "scope": "read", "name": "dashboard"},
)


def test_a_reload_after_creating_a_key_creates_no_other(browser: Browser, tmp_path: Path) -> None:
    with local_app(tmp_path / "data", {"BESSEMER_AUTH": "off"}) as app:
        for page in watched(browser, app.url):
            page.goto("/console/admin")
            page.get_by_label("Name").fill("deployment")
            page.get_by_role("button", name="Create").click()
            expect(page.get_by_role("heading", name="Key created")).to_be_visible()
            page.reload()
            expect(page.get_by_role("heading", name="Administration")).to_be_visible()
            expect(page.get_by_text("deployment", exact=True)).to_have_count(1)


@pytest.mark.slow
def test_pictures_of_a_service_with_keys(browser: Browser, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with closing(open_store(StoreSettings(data=data))) as store:
        secret = store.keys.create(KeyRequest(scope=Scope.ADMIN, name="on call")).key
    with local_app(data, QUOTAS) as app:
        with httpx.Client(base_url=app.url, headers={"authorization": f"Bearer {secret}"}, timeout=60) as api:
            assert [api.post("/v1/keys", json=key).status_code for key in KEYS] == [201, 201]
        for scheme in SCHEMES:
            for page in watched(browser, app.url, viewport=SIZE, color_scheme=scheme):
                page.goto("/console/admin#keys")
                save(page, "sign-in", scheme, tmp_path)
                page.get_by_label("API key").fill(secret)
                page.get_by_role("button", name="Sign in").click()
                expect(page.get_by_role("heading", name="Administration")).to_be_visible()
                assert urlsplit(page.url).fragment == "keys"
                save(page, "administration", scheme, tmp_path)
                page.get_by_role("link", name="Audit log").click()
                expect(page.get_by_role("heading", name="Audit log")).to_be_visible()
                save(page, "audit", scheme, tmp_path)
