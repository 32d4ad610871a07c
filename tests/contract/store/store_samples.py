"""Documents to store."""

import base64
import zlib
from datetime import UTC, datetime

from bessemer.contract.base import now
from bessemer.contract.cost_model import LearnedCostModel
from bessemer.contract.job import Artifact, Figures
from bessemer.contract.model import Inspection, ModelFormat, Signature
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.records import MeasuredTrial, SearchScope
from bessemer.contract.report import BaselineResult, Latency
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import Layer, LayerStatus, SandboxMode, SandboxStatus
from bessemer.contract.service import Worker
from bessemer.contract.target import ExplicitTarget, ResolvedTarget
from bessemer.contract.tensor import TensorSpec
from bessemer.store.rows.tenant_records import ImportedTrial

DIGEST = "0123456789abcdef" * 4
LATENCY = Latency(runs=9, min_ms=1, p50_ms=2, p90_ms=3, p99_ms=4, mean_ms=2.5, stddev_ms=1e-9)
TARGET = ResolvedTarget(
    name="znver4",
    kind="llvm",
    mcpu="znver4",
    triple="x86_64-unknown-linux-gnu",
    features=("+avx512f",),
    cores=2,
)
FIGURES = Figures(
    latency=LATENCY,
    baselines=(
        BaselineResult(name="torch-eager", threads=2, latency=LATENCY, ratio=1, ratio_p10=0.9, ratio_p90=1.1),
    ),
    library_bytes=1,
    peak_memory_bytes=1 << 40,
    max_absolute_error=1e-7,
)
SANDBOX = SandboxStatus(
    mode=SandboxMode.REQUIRED, layers=(LayerStatus(layer=Layer.UID, holds=True, required=True),)
)
A_COST_MODEL = LearnedCostModel(
    version="4ac12b90dd2e",
    trained_at=datetime(2026, 11, 1, tzinfo=UTC),
    functions=31,
    plans=402,
    families=(),
)
ARTIFACTS = (Artifact(name="model.so", digest=DIGEST, size_bytes=1, media_type="application/x-sharedlib"),)
INSPECTION = Inspection(
    format=ModelFormat.PT2,
    signature=Signature(inputs=(TensorSpec(name="x", shape=(1, 784)),), input_names=("x",), parameters=1),
)


def a_request(cores: int = 2) -> CompilationRequest:
    return CompilationRequest(
        model=DIGEST,
        target=ExplicitTarget(mcpu="znver4", cores=cores),
        inputs=(TensorSpec(name="x", shape=(1, 784)),),
    )


SCOPE = SearchScope(
    target="x86_64 znver4",
    threads=2,
    compiler="tvm 0.27.0, schedules 1",
    tvm_target='{"kind":"llvm","mcpu":"znver4","num-cores":2}',
)
PACKED = base64.b64encode(zlib.compress(b"{}")).decode()


def a_trial(name: str, seconds: float | None = 1e-3, workload: str = "1") -> MeasuredTrial:
    """A trial whose trace has this name."""
    return MeasuredTrial(
        workload=workload,
        function="fused_add",
        space="plans",
        trace=f'[["{name}"],[]]',
        arguments="[]",
        seconds=seconds,
        failure=None if seconds else "it crashed\0",
    )


def an_import(name: str = "imported", seconds: float = 1e-3, workload: str = "1") -> ImportedTrial:
    return ImportedTrial(SCOPE, a_trial(name, seconds, workload))


def a_problem(detail: str = "broken") -> Problem:
    return make_problem(ErrorCode.TRANSLATE_FAILED, detail, stage="translate")


def a_worker(worker_id: str) -> Worker:
    return Worker(
        id=worker_id,
        host="host",
        processor="a processor",
        mcpu="znver4",
        cores=2,
        versions={"torch": "2.13.0"},
        sandbox=SANDBOX,
        seen_at=now(),
    )
