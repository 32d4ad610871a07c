"""The console in Chromium: how soon a page paints, how long a list of 10,000 takes, and its scripts."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from app.console.static_files import FILES
from benchmarks.figure import Figure, summarize
from bessemer.client import Client
from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.options import InspectOptions
from bessemer.contract.request import CompilationRequest
from bessemer.store.settings import StoreSettings
from bessemer.store.store import open_store
from examples.local_service import local_app, local_service
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")
PAGES = ("submit", "compilations", "models", "fleet", "records")
MODEL = "resnet18"
LOADS = 10
COMPILATIONS = 10_000
PAGED = 50
DIGEST = "0" * 64
WITHOUT_SWEEPS = {"BESSEMER_SWEEP_AGE_SECONDS": "86400"}
"""Otherwise, the app would put the added compilations into the queue while pages load."""
FIRST_PAINT_AIM_MS, SCRIPTS_AIM_KIB = 500.0, 100.0
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
POLL_MS = 20


def measure_console(folder: Path) -> list[Figure]:
    """Load pages, each with a new profile, then page through a list. Without Chromium, only size scripts."""
    scripts = sum(len(file.compressed) for name, file in FILES.items() if name.endswith(".js")) / 1024
    figures = [summarize("the console's scripts, compressed", "KiB", [scripts], SCRIPTS_AIM_KIB)]
    if not CHROMIUM.exists():
        return figures
    data = folder / "console"
    compiled = _compile(data, folder / f"{MODEL}.pt2")
    _fill(data)
    with (
        local_app(data, WITHOUT_SWEEPS) as app,
        sync_playwright() as playwright,
        closing(playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)) as browser,
    ):
        figures += [
            summarize(
                f"first paint of {name}",
                "ms",
                [_first_paint(browser, f"{app.url}/console/{address}") for _ in range(LOADS)],
                FIRST_PAINT_AIM_MS,
            )
            for name, address in ({f"/console/{page}": page for page in PAGES} | compiled).items()
        ]
        milliseconds = _page_through(browser, f"{app.url}/console/compilations?limit={PAGED}")
    return [
        *figures,
        summarize(f"{PAGED} of {COMPILATIONS:,} compilations, click to shown", "ms", milliseconds),
    ]


def _compile(data: Path, model: Path) -> dict[str, str]:
    """Compile a model, and return the addresses of its pages by what they show."""
    save(EXAMPLES[MODEL], SavedAs.PT2, model)
    with local_service(data) as url, Client(url) as client:
        job = client.submit(model, inspect=InspectOptions(ir=True, assembly=True)).wait()
        largest = max(job.code().functions, key=lambda function: function.assembly.text_bytes).name
    own = f"compilations/{job.document.id}"
    return {
        f"{MODEL}'s result": own,
        f"{MODEL} after the last pass": f"{own}/compiler?view=text",
        f"{MODEL}'s largest function": f"{own}/compiler/functions/{largest}",
        f"{MODEL}'s graph": f"{own}/compiler/graph",
    }


def _fill(data: Path) -> None:
    request = CompilationRequest(model=DIGEST, target="host")
    with closing(open_store(StoreSettings(data=data))) as store:
        own = store.for_tenant(DEFAULT_TENANT)
        own.models.add(DIGEST, 1)
        for number in range(COMPILATIONS):
            own.jobs.submit(f"console-{number:08}", request)


def _first_paint(browser: Browser, url: str) -> float:
    with closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(url)
        while (milliseconds := page.evaluate(FIRST_PAINT)) is None:
            page.wait_for_timeout(POLL_MS)
        return float(milliseconds)


def _page_through(browser: Browser, url: str) -> list[float]:
    with closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(url)
        return [_next_page(page) for _ in range(COMPILATIONS // PAGED - 1)]


def _next_page(page: Page) -> float:
    before = time.perf_counter()
    page.click("a[rel=next]")
    page.wait_for_load_state("domcontentloaded")
    return (time.perf_counter() - before) * 1000
