"""What every page owes everyone: readers, keyboards, phones, and safety from what models say."""

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import LiveApp, watched
from playwright.sync_api import Browser, Page, expect

from app.main import create_app
from app.settings import AppSettings
from tests.console_pages import console_pages, filled
from tests.hostile_texts import PROBE, HostileRows, hostile_rows

AXE = Path(__file__).parent / "axe"
SERIOUS = frozenset({"serious", "critical"})
PAGES = console_pages(create_app(AppSettings(data=Path("never-opened"))))
PHONE_WIDTH = 390


@pytest.fixture(scope="module")
def rows(live: LiveApp) -> HostileRows:
    return hostile_rows(live.store, live.played)


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core's script."""
    known = json.loads((AXE / "vendored.json").read_text())
    script = gzip.decompress((AXE / known["file"]).read_bytes())
    assert hashlib.sha256(script).hexdigest() == known["sha256"]
    return script.decode()


@pytest.fixture(params=["light", "dark"])
def themed(request: pytest.FixtureRequest, browser: Browser, live: LiveApp) -> Iterator[Page]:
    yield from watched(browser, live.url, color_scheme=request.param)


@pytest.fixture
def phone(browser: Browser, live: LiveApp) -> Iterator[Page]:
    yield from watched(browser, live.url, viewport={"width": PHONE_WIDTH, "height": 844})


def opened(page: Page, path: str, rows: HostileRows) -> None:
    """Open a page of the compilation that succeeded, and everything on it that is folded away."""
    page.goto(filled(path, {"id": rows.succeeded, "digest": rows.model}))
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")


def is_whole(page: Page) -> bool:
    """Whether the page is a document of its own, not a part of one."""
    return page.locator("main#main").count() == 1


@pytest.mark.sampled
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_no_serious_issue(themed: Page, rows: HostileRows, axe: str, path: str) -> None:
    opened(themed, path, rows)
    if not is_whole(themed):
        pytest.skip("a part of a page")
    themed.evaluate(axe)
    found: list[dict[str, Any]] = themed.evaluate("axe.run().then((result) => result.violations)")
    serious = [
        f"{each['id']}: {node['html'][:120]} {node['failureSummary'][:200]}"
        for each in found
        if each["impact"] in SERIOUS
        for node in each["nodes"]
    ]
    assert serious == []


@pytest.mark.sampled
@pytest.mark.parametrize("path", PAGES)
def test_no_page_scrolls_sideways_on_a_phone(phone: Page, rows: HostileRows, path: str) -> None:
    opened(phone, path, rows)
    if is_whole(phone):
        assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE_WIDTH


@pytest.mark.parametrize("path", PAGES)
def test_hostile_texts_neither_run_nor_become_elements(page: Page, rows: HostileRows, path: str) -> None:
    for job in (rows.succeeded, *rows.failed[::5]) if "{id}" in path else (rows.succeeded,):
        page.goto(filled(path, {"id": job, "digest": rows.model}))
        page.wait_for_timeout(200)
        assert page.evaluate("window.hit") is None
        assert page.locator(PROBE).count() == 0


@pytest.mark.sampled
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_readable_without_scripts(plain: Page, rows: HostileRows, path: str) -> None:
    response = plain.goto(filled(path, {"id": rows.succeeded, "digest": rows.model}))
    assert response is not None and response.status < 500
    if is_whole(plain):
        assert plain.locator("main#main").inner_text().strip()
        assert plain.title()


def test_the_keyboard_reaches_the_content_first(page: Page) -> None:
    page.goto("/console/submit")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#main$"))
