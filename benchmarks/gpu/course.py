"""Compiles the course's products for GPUs: ``python -m benchmarks.gpu.course FOLDER sm_90``.

``measure_products`` times every step beside cuBLAS where the GPU is. A folder for each size and type has the
machine code of all its steps.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from examples.extensions import gpu_product_steps as course
from worker.compiler.codegen.cuda.kernels import lower_for_gpu
from worker.compiler.codegen.cuda.machine_code import compile_cuda
from worker.compiler.schedules.gpu.chips import Gpu, gpu_of

STEPS = {
    "float32": (course.bound, course.registers, course.shared, course.vectors),
    "float16": (course.tensor_cores,),
}
"""The steps of each type of the factors; the product is float32."""
SIZES = (1024, 2048, 4096)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("arch")
    chosen = parser.parse_args()
    for dtype in STEPS:
        for size in SIZES:
            _prepare(size, dtype, gpu_of(chosen.arch), chosen.folder / f"{dtype}-{size}")


def _prepare(size: int, dtype: str, gpu: Gpu, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    functions = {step.__name__: course.scheduled(step, size, size, size)["product"] for step in STEPS[dtype]}
    code = lower_for_gpu(functions, gpu)
    binary = compile_cuda(code.source, (gpu.arch,), folder)
    document = {
        "shape": {"rows": size, "columns": size, "depth": size, "dtype": dtype, "result": "float32"},
        "plans": {
            name: {
                "plan": name,
                "launches": [asdict(launch) for launch in made.launches],
                "workspaces": made.workspaces,
            }
            for name, made in code.functions.items()
        },
        "usage": [one.model_dump() for one in binary.usage],
    }
    (folder / "product.json").write_text(json.dumps(document))
    for other in (binary.ptx, binary.path):
        other.unlink()
    for one in binary.usage:
        print(f"{folder.name} {one.name}: {one.registers} registers, {one.shared_bytes} bytes shared")


if __name__ == "__main__":
    main()
