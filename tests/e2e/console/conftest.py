"""A live app and headless Chromium.

The browser serves one file of tests at a time: while Playwright runs, no other event loop can.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    expect,
    sync_playwright,
)

from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
from examples.local_service import local_app
from tests.integration.app.app_samples import PlayedWorker

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

expect.set_options(timeout=20_000)


@dataclass(frozen=True)
class LiveApp:
    """A running app without a worker, and its store.

    Attributes:
        url: its address.
        store: what the app shows; a test may write what a worker would.
        played: a worker that is played by calling the store.
    """

    url: str
    store: Store
    played: PlayedWorker


@dataclass
class Watch:
    """What a page did that no page of the console may do.

    Attributes:
        origin: the only host that a page may ask.
        faults: errors of scripts, violations of the policy, dialogs, requests to other hosts.
    """

    origin: str
    faults: list[str] = field(default_factory=list)

    def attach(self, page: Page) -> None:
        """Watch a page."""
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("console", self._on_console)
        page.on("dialog", self._on_dialog)
        page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        is_expected = "the server responded with a status of 4" in message.text or "net::" in message.text
        if message.type == "error" and not is_expected:
            self.faults.append(f"console: {message.text}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.faults.append(f"request: {request.url}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium with a fresh profile."""
    if not CHROMIUM.exists():
        pytest.skip("chromium is not installed: ci/browser installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApp]:
    """An app on a folder of its own."""
    data = tmp_path_factory.mktemp("console") / "data"
    with local_app(data) as app, closing(open_store(StoreSettings(data=data))) as store:
        yield LiveApp(app.url, store, PlayedWorker(store, tmp_path_factory.mktemp("played")))


@pytest.fixture
def page(browser: Browser, live: LiveApp) -> Iterator[Page]:
    """A page of the live app. The test fails if the page does what no page of the console may do."""
    yield from watched(browser, live.url)


@pytest.fixture
def plain(browser: Browser, live: LiveApp) -> Iterator[Page]:
    """A page of a browser that runs no scripts."""
    yield from watched(browser, live.url, java_script_enabled=False)


def watched(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """A page of a service by its URL, watched to the end; Playwright's options of a context."""
    context = browser.new_context(base_url=url, **options)
    context.set_default_timeout(20_000)
    page = context.new_page()
    watch = Watch(url)
    watch.attach(page)
    yield page
    context.close()
    assert watch.faults == []
