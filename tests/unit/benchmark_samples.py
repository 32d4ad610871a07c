"""Results of the model benchmark, as a run writes them."""

from datetime import UTC, datetime
from pathlib import Path

from report_samples import latency

from benchmarks.machine import Machine, ProcessorKind
from benchmarks.models.results import (
    GrowthResult,
    ModelResult,
    ModelsResults,
    OperatorResult,
    Ratio,
    SgemmResult,
    SideResult,
    State,
)
from bessemer.contract.stage import Stage

STAGES = (Stage.TRANSLATE, Stage.OPTIMIZE, Stage.TUNE, Stage.BUILD)


def side(name: str, milliseconds: float, ours: float, rounds: int = 20) -> SideResult:
    ratio = ours / milliseconds
    return SideResult(
        name=name,
        version="1.0",
        rounds=rounds,
        latency=latency(milliseconds),
        ratio=Ratio(p10=ratio * 0.9, median=ratio, p90=ratio * 1.1),
    )


def model(name: str, ours: float, **peers: float) -> ModelResult:
    """A model with its latency, and its peers' by name; stock TVM takes a hundred times as long."""
    return ModelResult(
        name=name,
        inputs=["x=1x784:float32"],
        gflop=1.0,
        library_bytes=1,
        unclaimed=0,
        ours=SideResult(name="bessemer", rounds=20, latency=latency(ours)),
        peers=[
            *(side(peer.replace("_", " "), time, ours) for peer, time in peers.items()),
            side("stock TVM", 100 * ours, ours, rounds=1),
            SideResult(name="OpenVINO", state=State.MISSING, note="No module named 'openvino'"),
        ],
        operators=[
            OperatorResult(
                function="fused_linear_add",
                calls=2,
                milliseconds=1.0,
                best_milliseconds=0.9,
                share=0.9,
                products="8x16 · 16x4 → 8x4",
                gflops_per_second=80.0,
                share_of_ceiling=0.8,
            ),
            OperatorResult(function="softmax", calls=1, milliseconds=0.01, share=0.01),
        ],
        stages={stage: [2.0, 1.0] for stage in STAGES},
    )


def suite(*models: ModelResult) -> ModelsResults:
    return ModelsResults(
        machine=Machine(processor="A9", cores=2, memory_gib=4.0, kernel="6.1", versions={}),
        measured_at=datetime(2026, 1, 2, tzinfo=UTC),
        minutes=3.5,
        load_before=0.1,
        threads=2,
        sgemm=[SgemmResult(size=512, torch_gflops=100.0, ours_gflops=90.0)],
        models=list(models),
        growth=[GrowthResult(kind="layers", layers=10, stages=dict.fromkeys(STAGES, 0.5))],
    )


def write(
    folder: Path, date: str, results: ModelsResults, kind: ProcessorKind = ProcessorKind.AMD_AVX2
) -> None:
    (folder / f"{date}-models-{kind.slug}.json").write_text(results.model_dump_json())
