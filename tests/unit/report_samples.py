"""Reports for the tests of the page: a minimal one and a complete one."""

from datetime import UTC, datetime
from math import exp

from bessemer.contract.model import ModelFormat
from bessemer.contract.options import Tolerance, TuneOptions
from bessemer.contract.problem import SourcePlace
from bessemer.contract.report import (
    BaselineResult,
    BenchmarkResult,
    FunctionGap,
    FunctionTime,
    KernelChoice,
    Latency,
    MachineCeiling,
    ModelEstimate,
    OutputComparison,
    PassTime,
    PeerAbsence,
    PeerComparison,
    Report,
    RewriteResult,
    Schedules,
    SearchPoint,
    StageTime,
    TuneResult,
    TuneTask,
)
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import Layer, LayerStatus, SandboxMode, SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget, ResolvedTarget
from bessemer.contract.tensor import DType, TensorSpec

MODEL = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
CREATED_AT = datetime(2025, 3, 14, 9, 26, 53, tzinfo=UTC)
TARGET = ResolvedTarget(
    name="znver4",
    kind="llvm",
    mcpu="znver4",
    triple="x86_64-unknown-linux-gnu",
    features=("+avx512vnni",),
    cores=2,
)
VERSIONS = {
    "bessemer": "0.1.0",
    "torch": "2.13.0",
    "apache-tvm": "0.27.0.post1",
    "apache-tvm-ffi": "0.1.14.post1",
    "numpy": "2.4.6",
    "python": "3.11.2",
}


def latency(p50: float, jitter: float = 0.08, runs: int = 412) -> Latency:
    """A plausible distribution around a median in milliseconds."""
    return Latency(
        runs=runs,
        min_ms=p50 * (1 - jitter / 2),
        p50_ms=p50,
        p90_ms=p50 * (1 + jitter),
        p99_ms=p50 * (1 + 4 * jitter),
        mean_ms=p50 * (1 + jitter / 3),
        stddev_ms=p50 * jitter,
    )


def baseline(name: str, p50: float, ratio: float) -> BaselineResult:
    return BaselineResult(
        name=name,
        threads=2,
        latency=latency(p50, 0.14),
        ratio=ratio,
        ratio_p10=ratio * 0.93,
        ratio_p90=ratio * 1.09,
    )


def task(name: str, weight: int, start: float, trials: int) -> TuneTask:
    history = tuple(start * (0.35 + 0.65 * exp(-(trial - trial % 5) / 14)) for trial in range(trials))
    return TuneTask(
        name=name, weight=weight, trials=trials, failed=trials // 16, best_ms=history[-1], history_ms=history
    )


def functions(number: int) -> tuple[FunctionTime, ...]:
    times = [4.1 * 0.8**index for index in range(number)]
    return tuple(
        FunctionTime(
            name=f"fused_conv2d{index}_add{index}_relu",
            calls=1 + index % 3,
            milliseconds=time,
            share=time / sum(times),
        )
        for index, time in enumerate(times)
    )


def peer_comparison() -> PeerComparison:
    return PeerComparison(
        beats=("torch-eager",),
        loses_to=("torch-compile",),
        undecided=(),
        fastest="torch-compile",
        ratio=1.14,
        absent=(PeerAbsence(name="openvino", reason="the worker has no package 'openvino'"),),
        ceiling=MachineCeiling(
            flops_per_second=2.1e11,
            memory_bytes_per_second=1.9e10,
            cache_bytes_per_second=1.6e11,
            cache_bytes=4 << 20,
        ),
        holding_back=tuple(
            FunctionGap(
                name=f"fused_conv2d{i}_add_relu",
                calls=1 + i,
                milliseconds=4.0 / (i + 1),
                share=0.2 / (i + 1),
                ceiling_ms=1.6 / (i + 1),
                ceiling_share=0.4,
                bound="memory" if i % 2 else "arithmetic",
                could_save_ms=2.0 / (i + 1),
            )
            for i in range(4)
        ),
        could_save_ms=4.2,
    )


def comparison(name: str = "logits", max_absolute_error: float = 3.6e-7) -> OutputComparison:
    return OutputComparison(
        name=name,
        shape=(1, 1000),
        dtype=DType.FLOAT32,
        tolerance=Tolerance(relative=1e-4, absolute=1e-5),
        max_absolute_error=max_absolute_error,
        max_relative_error=8.1e-6,
        worst_index=(0, 417),
        worst_value=1.2345679,
        worst_reference=1.2345676,
        mismatches=0,
        elements=1000,
    )


def minimal_report() -> Report:
    """No baselines, functions, passes, tasks, stages or layers."""
    return Report(
        bessemer="0.1.0",
        versions=VERSIONS,
        created_at=CREATED_AT,
        model=MODEL,
        model_format=ModelFormat.PT2,
        model_parameters=0,
        request=CompilationRequest(model=MODEL, target=PresetTarget(preset="host")),
        target=TARGET,
        inputs=(),
        outputs=(),
        verified=True,
        comparisons=(),
        operators={},
        passes=(),
        tune=TuneResult(trials=0, seconds=0, tasks=()),
        benchmark=BenchmarkResult(
            latency=latency(0.0421),
            threads=2,
            library_bytes=18_000,
            peak_memory_bytes=48 << 20,
            baselines=(),
            functions=(),
        ),
        stages=(),
        sandbox=SandboxStatus(mode=SandboxMode.OFF, layers=()),
        processor="AMD EPYC 9R14",
    )


def rich_report() -> Report:
    """A tuned convolutional network with a loss to one peer and a win over another."""
    image = TensorSpec(name="image", shape=(1, 3, 224, 224))
    seconds = (0.61, 0.42, 1.9, 58.2, 1.4, 0.21, 0.55)
    return minimal_report().model_copy(
        update={
            "model_format": ModelFormat.TORCHSCRIPT,
            "model_parameters": 11_689_512,
            "request": CompilationRequest(
                model=MODEL,
                target=PresetTarget(preset="znver4", cores=2),
                inputs=(image,),
                tune=TuneOptions(trials=512),
            ),
            "inputs": (image,),
            "outputs": tuple(TensorSpec(name=name, shape=(1, 1000)) for name in ("logits", "features")),
            "comparisons": (comparison(), comparison("features", 1.2e-6)),
            "operators": {"relax.nn.conv2d": 20, "relax.add": 28, "relax.nn.relu": 17, "relax.matmul": 1},
            "passes": tuple(
                PassTime(phase=phase, name=name, seconds=0.013 * (index + 1), functions=1 + 6 * index)
                for index, (phase, name) in enumerate(
                    [
                        ("fold", "FoldConstant"),
                        ("fold", "FoldBatchnormToConv2D"),
                        ("legalize", "LegalizeOps"),
                        ("legalize", "AnnotateTIROpPattern"),
                        ("fuse", "FuseOps"),
                        ("fuse", "FuseTIR"),
                    ]
                )
            ),
            "rewrites": (
                RewriteResult(
                    name="gelu_erf",
                    source="worker.compiler.rewrites.gelu:REWRITES",
                    count=3,
                    places=(
                        SourcePlace(
                            operator="aten.mul.Tensor", module_path="layers.0", file="model.py", line=12
                        ),
                        SourcePlace(operator="aten.mul.Tensor"),
                    ),
                ),
                RewriteResult(
                    name="attention", source="worker.compiler.rewrites.attention_rewrites:REWRITES", count=0
                ),
            ),
            "kernels": (
                KernelChoice(
                    workload="linear[1x784,784x128,128]",
                    kernel="openblas",
                    symbol="bessemer_openblas_linear_bias",
                    calls=2,
                    used=True,
                    kernel_ms=0.021,
                    own_ms=0.024,
                ),
                KernelChoice(workload="relu[1x128]", kernel="c", symbol="bessemer_relu", calls=1, used=False),
            ),
            "tune": TuneResult(
                trials=512,
                seconds=57.9,
                kept=Schedules.DEFAULT,
                search_ms=1.31,
                default_ms=1.27,
                estimate=ModelEstimate(latency_ms=19.6, untuned_ms=25.4, peers_ms={"onnxruntime": 90.0}),
                curve=tuple(
                    SearchPoint(seconds=3 * i, trials=27 * i, latency_ms=19.5 + 6 * exp(-i / 4))
                    for i in range(20)
                ),
                unclaimed=1,
                unclaimed_functions=("fused_sort_take",),
                tasks=tuple(
                    task(f"fused_conv2d{i}_add_relu", 1 + i % 4, 3.0 / (i + 1), 64) for i in range(8)
                ),
            ),
            "benchmark": BenchmarkResult(
                latency=latency(19.4),
                threads=2,
                library_bytes=46_812_000,
                peak_memory_bytes=171 << 20,
                baselines=(baseline("torch-eager", 27.1, 0.716), baseline("torch-compile", 17.0, 1.14)),
                functions=functions(24),
                comparison=peer_comparison(),
            ),
            "stages": tuple(
                StageTime(stage=stage, seconds=time) for stage, time in zip(Stage, seconds, strict=False)
            ),
            "sandbox": SandboxStatus(
                mode=SandboxMode.REQUIRED,
                layers=tuple(
                    LayerStatus(
                        layer=layer,
                        holds=layer is not Layer.UID,
                        required=layer is not Layer.UID,
                        note="" if layer is not Layer.UID else "the supervisor is not root",
                    )
                    for layer in Layer
                ),
            ),
        }
    )
