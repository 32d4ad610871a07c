"""Following a compilation in a browser: live to its end, through a lost connection, and without scripts."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from conftest import LiveApp, watched
from pictures import SCHEMES, SIZE, WRITES, save
from playwright.sync_api import Browser, Page, Route, expect
from saved_models import Saved

from bessemer.client import Client
from bessemer.contract.job import Progress
from bessemer.contract.options import InspectOptions, TuneOptions
from bessemer.contract.report import ModelEstimate, StageTime
from bessemer.contract.stage import Stage
from bessemer.store.rows.lifecycle import Attempt
from examples.local_service import local_service
from examples.models.save import SavedAs
from tests.integration.app.app_samples import DIGEST, MODEL_BYTES, request

WAIT_MS = 20_000
WHOLE_MS = 300_000


def submitted(live: LiveApp, **fields: object) -> str:
    """The id of a new compilation."""
    with httpx.Client(base_url=live.url, timeout=60) as client:
        client.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
        response = client.post("/v1/compilations", json=request(cache=False, **fields))
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def search(live: LiveApp, job: str, attempt: Attempt, done: int, latency_ms: float) -> None:
    """Advance a search."""
    estimate = ModelEstimate(latency_ms=latency_ms, untuned_ms=8.0, peers_ms={"onnxruntime": 5.0})
    progress = Progress(stage=Stage.TUNE, done=done, total=64, detail="trials", estimate=estimate)
    live.store.jobs.progress(job, attempt, progress)


def test_a_page_follows_a_compilation_to_its_end(page: Page, live: LiveApp) -> None:
    job = submitted(live, name="followed", tune={"trials": 64})
    page.goto(f"/console/compilations/{job}")
    expect(page.locator("#connection")).to_have_attribute("data-state", "live", timeout=WAIT_MS)
    expect(page.locator(".queue")).to_contain_text("in the queue")

    attempt = live.played.start(job)
    expect(page.locator("#state")).to_have_text("running", timeout=WAIT_MS)
    live.store.jobs.stage_started(job, attempt, Stage.CAPTURE)
    live.store.jobs.stage_finished(job, attempt, StageTime(stage=Stage.CAPTURE, seconds=1.5))
    expect(page.locator(".timeline li.done", has_text="capture")).to_contain_text("1.50 s", timeout=WAIT_MS)
    live.store.jobs.stage_started(job, attempt, Stage.TUNE)
    for done, latency_ms in ((16, 7.5), (32, 6.25), (48, 4.5)):
        search(live, job, attempt, done, latency_ms)
    expect(page.locator(".beat .best")).to_contain_text("4.50 ms", timeout=WAIT_MS)
    expect(page.locator("#curve canvas")).to_be_visible()
    assert page.locator("#curve .u-legend th").all_inner_texts() == [
        "estimated",
        "untuned",
        "ONNX Runtime",
    ]
    expect(page.get_by_role("button", name="Stop and keep the best")).to_be_visible()

    live.played.succeed(job, attempt)
    expect(page.locator("#state")).to_have_text("succeeded", timeout=WAIT_MS)
    expect(page.locator(".hero")).to_contain_text("Median latency of one run")
    expect(page.locator("#announce")).to_have_text("The compilation has succeeded.")
    expect(page.get_by_role("link", name="bundle.tar.zst")).to_be_visible()
    expect(page.locator("#connection")).to_have_count(0)


def test_the_log_is_text_as_it_grows(page: Page, live: LiveApp) -> None:
    job = submitted(live)
    attempt = live.played.start(job)
    page.goto(f"/console/compilations/{job}")

    hostile = "<img src=x onerror=alert(1)>"
    live.store.logs.write(job, attempt, f"first line\n{hostile}\n")

    expect(page.locator("#log")).to_contain_text(hostile, timeout=WAIT_MS)
    assert page.locator("#log img").count() == 0
    live.played.fail(job, attempt)
    expect(page.locator(".failure")).to_contain_text("capture-failed", timeout=WAIT_MS)


def test_a_page_cancels_a_compilation(page: Page, live: LiveApp) -> None:
    job = submitted(live, name="unwanted")
    page.goto(f"/console/compilations/{job}")

    page.get_by_role("button", name="Cancel").click()

    expect(page.locator("#state")).to_have_text("cancelled", timeout=WAIT_MS)
    expect(page.get_by_role("button", name="Retry")).to_be_visible()


def test_a_lost_connection_is_shown_and_made_again(browser: Browser, live: LiveApp) -> None:
    job = submitted(live)
    context = browser.new_context(base_url=live.url)
    page = context.new_page()

    def refuse(route: Route) -> None:
        route.fulfill(status=503, body="away")

    page.route("**/events", refuse)
    page.goto(f"/console/compilations/{job}")
    expect(page.locator("#connection")).to_contain_text("connection lost", timeout=WAIT_MS)
    page.unroute("**/events", refuse)
    expect(page.locator("#connection")).to_have_attribute("data-state", "live", timeout=WAIT_MS)

    live.played.start(job)
    expect(page.locator("#state")).to_have_text("running", timeout=WAIT_MS)
    context.close()


def test_a_result_is_readable_without_scripts(browser: Browser, live: LiveApp) -> None:
    job = submitted(live, name="plain")
    context = browser.new_context(base_url=live.url, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"/console/compilations/{job}")
    assert page.locator("meta[http-equiv=refresh]").count() == 1
    live.played.succeed(job, live.played.start(job))

    page.goto(f"/console/compilations/{job}")

    expect(page.locator(".hero")).to_contain_text("Median latency of one run")
    expect(page.get_by_role("link", name="report.json")).to_be_visible()
    context.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a worker."""
    with local_service(tmp_path_factory.mktemp("compiled") / "data") as url:
        yield url


def test_a_real_compilation_is_followed_and_another_cancelled(
    browser: Browser, service: str, saved: Saved
) -> None:
    model: Path = saved.path("mlp", SavedAs.PT2)
    with httpx.Client(base_url=service, timeout=60) as client:
        first, second = (
            client.post(
                "/v1/compilations",
                files={"model": model.read_bytes()},
                data={"request": json.dumps({"target": "host", "tune": {"trials": trials}})},
            ).json()["id"]
            for trials in (8, 100_000)
        )
    for page in watched(browser, service):
        page.goto(f"/console/compilations/{first}")
        expect(page.locator("#state")).to_have_text("succeeded", timeout=WHOLE_MS)
        expect(page.get_by_role("heading", name="Where the time goes")).to_be_visible()
        expect(page.locator(".treemap .cell").first).to_be_visible()
        expect(page.get_by_role("heading", name="Memory over a run")).to_be_visible()
        expect(page.get_by_role("link", name="bundle.tar.zst")).to_be_visible()

        page.goto(f"/console/compilations/{second}")
        expect(page.locator("#curve canvas")).to_be_visible(timeout=WHOLE_MS)
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#state")).to_have_text("cancelled", timeout=WHOLE_MS)


@pytest.mark.skipif(not WRITES, reason="writes pictures of the guide")
def test_pictures_of_a_real_compilation(browser: Browser, service: str, saved: Saved, tmp_path: Path) -> None:
    with Client(service) as client:
        compiled = client.submit(
            saved.path("cnn", SavedAs.PT2),
            tune=TuneOptions(trials=64),
            inspect=InspectOptions(ir=True, assembly=True),
            name="cnn",
        ).wait()
        job, function = compiled.document.id, compiled.code().functions[0].name
    with httpx.Client(base_url=f"{service}/v1/compilations/{job}", timeout=60) as client:
        steps = client.get("/ir").json()["items"]
    changed = next(step["step"] for step in steps[1:] if step["changed"])
    own = f"/console/compilations/{job}"
    addresses = {
        "result": own,
        "compiler": f"{own}/compiler?step={changed}",
        "function": f"{own}/compiler/functions/{function}",
        "functions": f"{own}/compiler/functions",
        "search": f"{own}/compiler/search?q=conv",
        "graph": f"{own}/compiler/graph",
        "operators": f"{own}/compiler/model",
        "records": "/console/records",
    }
    for scheme in SCHEMES:
        for page in watched(browser, service, viewport=SIZE, color_scheme=scheme):
            for name, address in addresses.items():
                page.goto(address)
                page.wait_for_load_state("networkidle")
                save(page, name, scheme, tmp_path)
