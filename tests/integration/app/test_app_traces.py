"""One trace goes through the app, the job's row and the worker, to a collector over real HTTP."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from app_samples import DIGEST, MODEL_BYTES, request

from app.main import create_app
from app.settings import AppSettings
from bessemer.contract.job import Compilation
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.stage import Stage
from bessemer.store.store import Store
from bessemer.telemetry.traces import open_tracer, valid_traceparent
from tests.integration.otlp_collector import Collector, collecting
from worker.supervisor.tracing import traced_job

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENTS_SPAN = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{CLIENTS_SPAN}-01"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        yield collector


async def submitted(settings: AppSettings) -> tuple[Compilation, str | None]:
    """A job that a client submitted within its own span, and the trace in its row; the app has ended."""
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            await api.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
            headers = {"traceparent": TRACEPARENT}
            answer = await api.post("/v1/compilations", json=request(), headers=headers)
            await api.get("/healthz")
        store: Store = app.state.service.store
        job = Compilation.model_validate_json(answer.content)
        return job, store.jobs.traceparent(job.id)


def run(job: Compilation, parent: str | None, attempt: int) -> None:
    """What a worker does for a job that fails in its second stage."""
    tracer = open_tracer("worker")
    described = {"bessemer.job": job.id, "bessemer.attempt": attempt}
    with traced_job(tracer, parent, job.created_at, described) as trace:
        trace.stage_started(Stage.CAPTURE)
        trace.stage_finished(Stage.CAPTURE, 1)
        trace.stage_started(Stage.TRANSLATE)
        trace.problem = make_problem(ErrorCode.TRANSLATE_FAILED, "no")
    tracer.close()


async def test_one_trace_has_the_request_the_wait_the_job_and_its_stages(
    collector: Collector, settings: AppSettings
) -> None:
    job, parent = await submitted(settings)
    run(job, parent, attempt=1)
    spans = {span.name: span for span in collector.spans if span.trace == TRACE}
    submission = spans["POST /v1/compilations"]
    assert set(spans) == {submission.name, "queue", "job", "capture", "translate"}
    assert (submission.program, submission.parent) == ("bessemer-app", CLIENTS_SPAN)
    assert submission.attributes["http.response.status_code"] == 202
    above = {name: spans[name].parent for name in ("queue", "job", "capture", "translate")}
    job_span = spans["job"]
    assert above == {
        "queue": submission.id,
        "job": submission.id,
        "capture": job_span.id,
        "translate": job_span.id,
    }
    assert (job_span.program, job_span.attributes["bessemer.job"]) == ("bessemer-worker", job.id)
    assert {name for name, span in spans.items() if span.failed} == {"job", "translate"}


async def test_what_monitors_ask_is_no_trace(collector: Collector, settings: AppSettings) -> None:
    await submitted(settings)
    assert {span.name for span in collector.spans} == {"PUT /v1/models/{digest}", "POST /v1/compilations"}


async def test_without_a_collector_the_clients_trace_is_handed_on(
    settings: AppSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    _, parent = await submitted(settings)
    assert parent == TRACEPARENT


def test_without_a_collector_opentelemetrys_sender_is_not_loaded(tmp_path: Path) -> None:
    check = (
        "import sys; from app.main import create_app; from worker.supervisor import supervisor; create_app();"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exp'))])"
    )
    environment = {"BESSEMER_DATA": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}
    shown = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, env=environment)
    assert (shown.stdout, shown.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    "text", [None, "", "00-0-0-01", TRACEPARENT.replace("00-", "ff-", 1), f"00-{'0' * 32}-{CLIENTS_SPAN}-01"]
)
def test_what_is_no_traceparent_begins_a_trace_of_its_own(text: str | None) -> None:
    assert valid_traceparent(text) is None
