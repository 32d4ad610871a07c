"""Compilations for the tests and pictures of the console: a model over some weeks, with one regression."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx
import sqlalchemy as sa

from bessemer.contract.base import now
from bessemer.contract.job import Artifact, Figures, Progress
from bessemer.contract.model import Inspection, ModelFormat, Signature
from bessemer.contract.queue import TaskKind
from bessemer.contract.report import FunctionTime, ModelEstimate, PassTime, Report, StageTime
from bessemer.contract.request import CompilationRequest
from bessemer.contract.service import RunningTask, Worker
from bessemer.contract.stage import Stage
from bessemer.contract.tensor import DType, TensorSpec
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.rows.tables import JOBS
from bessemer.store.store import Store
from tests.inspections import inspected
from tests.integration.app.app_samples import worker
from tests.tenant_data import started
from tests.unit.report_samples import TARGET, baseline, latency, rich_report

MEDIANS = (7.9, 7.8, 7.85, 7.1, 7.05, 7.12, 7.0, 9.4, 7.02, 6.4, 6.42, 6.38, 6.45)
"""The history: it gets faster, but for one commit."""
REGRESSION = 7
EAGER_MS = 11.2
IMAGE = TensorSpec(name="image", shape=(1, 3, 224, 224), dtype=DType.FLOAT32)
TENANT = "default"


@dataclass(frozen=True)
class Shown:
    """What the sample data has: compilations of one model, oldest first, one that runs, and workers."""

    jobs: tuple[str, ...]
    running: str
    attempt: Attempt
    workers: tuple[Worker, Worker]

    def beat(self, store: Store) -> None:
        """Keep the workers live."""
        for each in self.workers:
            store.workers.beat(each)

    def search(self, store: Store, done: int, milliseconds: float) -> None:
        """Advance the search of the compilation that runs."""
        peers = {"torch-compile": 8.3, "onnxruntime": 7.4, "openvino": 7.0}
        estimate = ModelEstimate(latency_ms=milliseconds, untuned_ms=8.0, peers_ms=peers)
        progress = Progress(stage=Stage.TUNE, done=done, total=256, detail="", estimate=estimate)
        store.jobs.progress(self.running, self.attempt, progress)


def fill(url: str, store: Store, folder: Path) -> Shown:
    """Fill an app's store as its users and workers do."""
    with httpx.Client(base_url=url, timeout=60) as api:
        model = api.post("/v1/models", params={"name": "resnet18"}, content=bytes(46_800_000)).json()[
            "digest"
        ]
        signature = Signature(inputs=(IMAGE,), input_names=("image",), parameters=11_689_512)
        inspected(store, model, Inspection(format=ModelFormat.PT2, signature=signature))
        jobs = [
            _compiled(api, store, folder, model, f"{0x4F1D2A9 + index * 0x51F3:07x}", median, index)
            for index, median in enumerate(MEDIANS)
        ]
        fused = _compiled(api, store, folder, model, "4f7c0a1", 8.8, 13, optimize={"fusion": "none"})
        running = _submitted(api, {"model": model, "target": "host", "name": "resnet18", "cache": False})
    attempt = started(store.jobs, running, "w1")
    for stage, seconds in ((Stage.CAPTURE, 0.6), (Stage.TRANSLATE, 1.1), (Stage.OPTIMIZE, 1.2)):
        store.jobs.stage_started(running, attempt, stage)
        store.jobs.stage_finished(running, attempt, StageTime(stage=stage, seconds=seconds))
    store.jobs.stage_started(running, attempt, Stage.TUNE)
    busy = worker().model_copy(
        update={
            "id": "worker-a",
            "host": "build-01",
            "processor": "AMD EPYC 9R14",
            "running": (
                RunningTask(
                    kind=TaskKind.COMPILE,
                    id=running,
                    began_at=now() - timedelta(seconds=42),
                    stage=Stage.TUNE,
                    stage_began_at=now() - timedelta(seconds=31),
                ),
            ),
        }
    )
    idle = busy.model_copy(update={"id": "worker-b", "host": "build-02", "running": ()})
    return Shown((*jobs, fused), running, attempt, (busy, idle))


def _submitted(api: httpx.Client, document: Mapping[str, object]) -> str:
    response = api.post("/v1/compilations", json=document)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def _compiled(
    api: httpx.Client,
    store: Store,
    folder: Path,
    model: str,
    commit: str,
    median: float,
    index: int,
    **options: object,
) -> str:
    labels = {"commit": commit, "branch": "main"}
    document = {"model": model, "target": "host", "labels": labels, "cache": False, **options}
    job = _submitted(api, document)
    attempt = started(store.jobs, job, "worker-a")
    report = _report(model, median, document, fused="optimize" not in options)
    assert report.benchmark is not None
    path = folder / "report.json"
    path.write_text(report.model_dump_json())
    blob = store.for_tenant(TENANT).artifacts.put_file(path)
    artifacts = tuple(
        Artifact(name=name, digest=blob.digest, size_bytes=blob.size_bytes, media_type="application/json")
        for name in ("report.json", "bundle.tar.zst")
    )
    figures = Figures(
        latency=report.benchmark.latency,
        baselines=report.benchmark.baselines,
        library_bytes=report.benchmark.library_bytes,
        peak_memory_bytes=report.benchmark.peak_memory_bytes,
        max_absolute_error=3.6e-7,
    )
    store.jobs.succeed(job, attempt, TARGET, True, figures, artifacts, None)
    at = now() - timedelta(days=2 * (len(MEDIANS) + 1 - index))
    with store.database.write() as connection:
        connection.execute(sa.update(JOBS).where(JOBS.c.id == job).values(created_at=at))
    return job


def _report(model: str, median: float, document: Mapping[str, object], fused: bool) -> Report:
    report = rich_report()
    assert report.benchmark is not None
    parts = {"fused_conv2d_add_relu": 0.44, "fused_conv2d3_add_relu1": 0.31, "fused_max_pool2d": 0.02}
    split = {"conv2d": 0.5, "conv2d3": 0.27, "relu": 0.06, "add": 0.05, "fused_max_pool2d": 0.02}
    functions = tuple(
        FunctionTime(name=name, calls=2, milliseconds=share * median, share=share)
        for name, share in (parts if fused else split).items()
    )
    passes = tuple(
        PassTime(phase="fuse", name=name, seconds=0.02, functions=21 if fused else 49)
        for name in ("FuseOps", "FuseTIR")
    )
    return report.model_copy(
        update={
            "request": CompilationRequest.model_validate_json(json.dumps(document)),
            "model": model,
            "passes": (*report.passes[:2], *passes),
            "benchmark": report.benchmark.model_copy(
                update={
                    "latency": latency(median),
                    "baselines": (
                        baseline("torch-eager", EAGER_MS, median / EAGER_MS),
                        baseline("torch-compile", 8.3, median / 8.3),
                    ),
                    "library_bytes": 46_912_000,
                    "peak_memory_bytes": 121 << 20,
                    "functions": functions,
                }
            ),
        }
    )
