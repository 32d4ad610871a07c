"""Documents for tests of the front end, and a worker that is played by calling the store as one does."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from fastapi import FastAPI

from app.queue_position import QueuePositions
from app.service import Service
from bessemer.contract.base import now
from bessemer.contract.job import Artifact, Figures, Progress
from bessemer.contract.model import Inspection, ModelFormat, Signature
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.report import Latency, Report, StageTime
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import Layer, LayerStatus, SandboxMode, SandboxStatus
from bessemer.contract.service import Worker
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget, resolve_target
from bessemer.contract.tensor import DType, TensorSpec
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.store import Store
from tests.tenant_data import started
from tests.workers import some_worker

UPLOAD_LIMIT_BYTES = 4096
MODEL_BYTES = b"a model, as far as the front end can tell"
DIGEST = hashlib.sha256(MODEL_BYTES).hexdigest()
IMAGE = TensorSpec(name="x", shape=(1, 784), dtype=DType.FLOAT32)
WITH_SHAPES = Inspection(
    format=ModelFormat.PT2, signature=Signature(inputs=(IMAGE,), input_names=("x",), parameters=10)
)
WITHOUT_SHAPES = Inspection(
    format=ModelFormat.TORCHSCRIPT, signature=Signature(input_names=("x",), parameters=10)
)
CONFINED = SandboxStatus(
    mode=SandboxMode.REQUIRED,
    layers=tuple(LayerStatus(layer=layer, holds=True, required=True) for layer in Layer),
)
LATENCY = Latency(runs=3, min_ms=1, p50_ms=1, p90_ms=1, p99_ms=1, mean_ms=1, stddev_ms=0)
FIGURES = Figures(latency=LATENCY, baselines=(), library_bytes=1, peak_memory_bytes=1, max_absolute_error=0.0)
TARGET = resolve_target(PresetTarget(preset="host"), "znver4", 2)
REPORT = Report(
    bessemer="0.1.0",
    versions={},
    created_at=now(),
    model=DIGEST,
    model_format=ModelFormat.PT2,
    model_parameters=10,
    request=CompilationRequest(model=DIGEST, target=PresetTarget(preset="host")),
    target=TARGET,
    inputs=(IMAGE,),
    outputs=(IMAGE,),
    verified=True,
    comparisons=(),
    operators={},
    passes=(),
    stages=(),
    sandbox=CONFINED,
    processor="p",
)
REPORT_JSON = REPORT.model_dump_json().encode()
REPORT_HTML = b"<!doctype html><script>alert(1)</script>"
BUNDLE = bytes(range(256)) * 40


def request(**fields: object) -> dict[str, object]:
    """A request's JSON for the model of ``DIGEST``."""
    return {"model": DIGEST, "target": "host", **fields}


async def post_compilation(api: httpx.AsyncClient, **fields: object) -> httpx.Response:
    """The answer to a request for a compilation."""
    return await api.post("/v1/compilations", json=request(**fields))


async def submitted(api: httpx.AsyncClient, **fields: object) -> str:
    """The id of a queued compilation."""
    response = await post_compilation(api, **fields)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def worker(sandbox: SandboxStatus = CONFINED) -> Worker:
    """A worker that was seen just now."""
    return some_worker(sandbox=sandbox)


@dataclass(frozen=True)
class PlayedWorker:
    """Does to the store what a supervisor does."""

    store: Store
    folder: Path

    def start(self, job_id: str) -> Attempt:
        """Take the job and confine it."""
        attempt = started(self.store.jobs, job_id, "w1")
        self.store.jobs.confined(job_id, attempt, CONFINED)
        return attempt

    def tune(self, job_id: str, attempt: Attempt, trials: int) -> None:
        """Run a stage with some progress."""
        self.store.jobs.stage_started(job_id, attempt, Stage.TUNE)
        for done in range(1, trials + 1):
            self.store.jobs.progress(job_id, attempt, Progress(stage=Stage.TUNE, done=done, total=trials))
        self.store.jobs.stage_finished(job_id, attempt, StageTime(stage=Stage.TUNE, seconds=1))

    def succeed(self, job_id: str, attempt: Attempt, identity: str | None = None) -> tuple[Artifact, ...]:
        """End the job well, with a bundle and a report."""
        artifacts = (
            self._keep(attempt, "bundle.tar.zst", BUNDLE, "application/zstd"),
            self._keep(attempt, "report.json", REPORT_JSON, "application/json"),
            self._keep(attempt, "report.html", REPORT_HTML, "text/html; charset=utf-8"),
        )
        self.store.jobs.succeed(job_id, attempt, TARGET, True, FIGURES, artifacts, identity)
        return artifacts

    def fail_with(self, job_id: str, attempt: Attempt, files: dict[str, bytes]) -> None:
        """End the job with a problem, with what it left."""
        artifacts = tuple(self._keep(attempt, name, content, "text/plain") for name, content in files.items())
        self.store.jobs.fail(job_id, attempt, make_problem(ErrorCode.OPTIMIZE_FAILED, "no"), artifacts)

    def fail(self, job_id: str, attempt: Attempt) -> None:
        """End the job with a problem."""
        self.store.jobs.fail(job_id, attempt, make_problem(ErrorCode.CAPTURE_FAILED, "no"))

    def _keep(self, attempt: Attempt, name: str, content: bytes, media_type: str) -> Artifact:
        path = self.folder / name
        path.write_bytes(content)
        blob = self.store.for_tenant(attempt.tenant).artifacts.put_file(path)
        return Artifact(name=name, digest=blob.digest, size_bytes=blob.size_bytes, media_type=media_type)


def take_database_away(service: Service) -> Path:
    """Put a folder in the place of the database's file; the file is beside it, as ``.away``."""
    file = service.settings.folder / "bessemer.sqlite"
    file.rename(file.with_suffix(".away"))
    file.mkdir()
    service.store.database.close()
    return file


def look_anew(app: FastAPI) -> None:
    """Have the next answer read the queue; else it may show it as it was seconds ago."""
    service: Service = app.state.service
    positions = QueuePositions(
        service.store, service.queue, service.settings.worker_liveness_seconds, lambda _tenant: None
    )
    app.state.service = replace(service, queue_positions=positions)
