"""Models and bundles for tests of the client, and a worker simulated by calling the store."""

import hashlib
import io
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import zstandard

from bessemer.bundle.manifest import ARCHIVE, CHECKSUMS, LIBRARY, MANIFEST, BundleFile, Manifest
from bessemer.client import Client
from bessemer.contract.base import now
from bessemer.contract.job import Artifact, Figures, Progress
from bessemer.contract.model import Inspection, ModelFormat, ModelState, Signature
from bessemer.contract.problem import ErrorCode, SourcePlace, make_problem
from bessemer.contract.report import BaselineResult, Latency, StageTime
from bessemer.contract.request import MAX_PRIORITY
from bessemer.contract.sandbox import Layer, LayerStatus, SandboxMode, SandboxStatus
from bessemer.contract.service import Worker
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget, resolve_target
from bessemer.contract.tensor import TensorSpec
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.store import Store
from tests.inspections import inspected
from tests.tenant_data import own, started

PATIENCE_SECONDS = 120
MODEL = b"a model, as far as anybody has looked"
DIGEST = hashlib.sha256(MODEL).hexdigest()
IMAGE = TensorSpec(name="x", shape=(1, 784))
INSPECTION = Inspection(
    format=ModelFormat.PT2, signature=Signature(inputs=(IMAGE,), input_names=("x",), parameters=7)
)
TARGET = resolve_target(PresetTarget(preset="host"), "znver4", 2)
SANDBOX = SandboxStatus(
    mode=SandboxMode.REQUIRED,
    layers=tuple(LayerStatus(layer=layer, holds=True, required=True) for layer in Layer),
)
LATENCY = Latency(runs=9, min_ms=1, p50_ms=2, p90_ms=3, p99_ms=4, mean_ms=2, stddev_ms=0.5)
FIGURES = Figures(
    latency=LATENCY,
    baselines=(
        BaselineResult(
            name="torch-eager", threads=2, latency=LATENCY, ratio=0.5, ratio_p10=0.4, ratio_p90=0.6
        ),
    ),
    library_bytes=1,
    peak_memory_bytes=1,
    max_absolute_error=0.0,
)
PLACE = SourcePlace(operator="aten.foo", module_path="encoder.layers.0", file="net.py", line=12)
PROBLEM = make_problem(
    ErrorCode.OPERATOR_UNSUPPORTED, "aten.foo has no translation.", stage="translate", places=(PLACE,)
)


def wait_for_workers(client: Client, count: int) -> None:
    """Wait until the app's queue shows this number of live workers: what it shows may be seconds old.

    The compilation that asks stands behind all others.
    """
    job = client.submit(MODEL, target="host", cache=False, priority=-MAX_PRIORITY)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (place := job.refresh().document.queue) is None or place.workers != count:
        assert time.monotonic() < deadline, place
        time.sleep(0.05)
    job.cancel()


def make_bundle() -> bytes:
    """The bytes of a small, correct ``bundle.tar.zst`` with a dummy library."""
    files = {LIBRARY: b"machine code", "lib/libtvm_runtime.so": b"runtime", "run.py": b"print()\n"}
    manifest = Manifest(
        model=DIGEST,
        target=TARGET,
        inputs=(IMAGE,),
        outputs=(TensorSpec(name="y", shape=(1, 10)),),
        versions={},
        files=tuple(
            BundleFile(path=path, digest=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
            for path, data in files.items()
        ),
        created_at=now(),
    )
    files[MANIFEST] = manifest.model_dump_json().encode()
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in files.items())
    return pack({**files, CHECKSUMS: sums.encode()})


def pack(files: dict[str, bytes]) -> bytes:
    """A ``.tar.zst`` of files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return zstandard.compress(buffer.getvalue())


@dataclass(frozen=True)
class FakeWorker:
    """Makes a worker's calls to the store."""

    store: Store
    folder: Path

    def register(self, **fields: Any) -> None:
        """Register as a live worker, so that jobs are queued."""
        self.store.workers.beat(
            Worker(
                id="w1",
                host="build-1",
                processor="EPYC",
                mcpu="znver4",
                cores=2,
                versions={"torch": "2.13.0"},
                sandbox=SANDBOX,
                seen_at=now(),
                **fields,
            )
        )

    @contextmanager
    def living(self) -> Iterator[None]:
        """Register, and stay live while the context lasts."""
        self.register()
        ended = Event()

        def beat() -> None:
            while not ended.wait(1):
                self.register()

        thread = Thread(target=beat)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.unregister()

    def unregister(self) -> None:
        """Unregister."""
        with self.store.workers.removing("w1", self.store.workers.beats()["w1"]) as gone:
            assert gone

    def inspect(self, digest: str) -> None:
        """Record that the model is a ``.pt2``, unless it is known."""
        model = own(self.store).models.get(digest)
        assert model is not None
        if model.state is not ModelState.READY:
            inspected(self.store, digest, INSPECTION)

    def reject(self, digest: str, code: ErrorCode = ErrorCode.MODEL_NOT_RECOGNIZED) -> None:
        """Reject the model."""
        problem = make_problem(code, "It starts with 'a model'.")
        inspected(self.store, digest, problem)

    def start(self, job_id: str) -> Attempt:
        """Take the job and start some stages."""
        attempt = started(self.store.jobs, job_id, "w1")
        self.store.jobs.confined(job_id, attempt, SANDBOX)
        self.store.jobs.stage_started(job_id, attempt, Stage.TUNE)
        self.store.jobs.progress(job_id, attempt, Progress(stage=Stage.TUNE, done=3, total=64))
        self.store.jobs.stage_finished(job_id, attempt, StageTime(stage=Stage.TUNE, seconds=1.5))
        return attempt

    def succeed(self, job_id: str) -> None:
        """Complete the job."""
        attempt = self.start(job_id)
        path = self.folder / ARCHIVE
        path.write_bytes(make_bundle())
        blob = own(self.store).artifacts.put_file(path)
        bundle = Artifact(
            name=ARCHIVE, digest=blob.digest, size_bytes=blob.size_bytes, media_type="application/zstd"
        )
        self.store.jobs.succeed(job_id, attempt, TARGET, True, FIGURES, (bundle,))

    def fail(self, job_id: str, **files: bytes) -> None:
        """Fail the job with an unsupported operator, after it wrote files such as ``ir_json``."""
        kept = tuple(self._keep(name.replace("_", "."), content) for name, content in files.items())
        self.store.jobs.fail(job_id, self.start(job_id), PROBLEM, kept)

    def _keep(self, name: str, content: bytes) -> Artifact:
        path = self.folder / name
        path.write_bytes(content)
        blob = own(self.store).artifacts.put_file(path)
        return Artifact(name=name, digest=blob.digest, size_bytes=blob.size_bytes, media_type="text/plain")
