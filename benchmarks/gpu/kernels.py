"""What NVIDIA's assembler reports about the kernels of models, without a GPU: ``make bench-gpu-kernels``.

CASES="bert-1-bf16 resnet18-1-f32" selects other cases.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.gpu.cases import MODELS, Case, parse
from benchmarks.gpu.prepare import compile_case, target_of
from benchmarks.gpu.results import TOPIC, KernelResults, ModelKernels
from benchmarks.machine import describe
from bessemer.bundle.manifest import REPORT
from bessemer.contract.report import Report

RESULTS = Path(__file__).parents[1] / "results"
ARCHITECTURES = ("sm_80", "sm_90")
CASES = tuple(Case(model, 1, precision) for precision in ("f32", "bf16") for model in (*MODELS, "vit_b16"))


def main(names: tuple[str, ...]) -> None:
    """Compile each case for each architecture, and write what its report says."""
    cases = tuple(map(parse, names)) or CASES
    results = KernelResults(
        machine=describe(("nvidia-cuda-nvcc",)),
        measured_at=datetime.now(UTC),
        models=[_kernels(case, arch) for case in cases for arch in ARCHITECTURES],
    )
    path = RESULTS / f"{results.measured_at:%Y-%m-%d}-{TOPIC}.json"
    path.write_text(results.model_dump_json(indent=2) + "\n")
    print(f"written to {path}")


def _kernels(case: Case, arch: str) -> ModelKernels:
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / case.name
        compile_case(case, target_of(arch), bundle)
        kernels = Report.read_json((bundle / REPORT).read_bytes()).gpu_kernels
    found = ModelKernels(
        case=case.name,
        arch=arch,
        kernels=len(kernels),
        registers=max(kernel.registers for kernel in kernels),
        shared_bytes=max(kernel.shared_bytes for kernel in kernels),
        spilled_bytes=max(kernel.spilled_bytes for kernel in kernels),
        spilling=[kernel.name for kernel in kernels if kernel.spilled_bytes],
    )
    print(f"{case.name} {arch}: {found.kernels} kernels, {len(found.spilling)} spill", flush=True)
    return found


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
