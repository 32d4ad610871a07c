"""Compiles the course's products for GPUs: ``python -m benchmarks.gpu.course FOLDER sm_90``.

``measure_products`` times every step beside cuBLAS where the GPU is. A folder for each size and type has the
machine code of all its steps.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import tvm
from tvm import s_tir, te, tirx

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


def product(rows: int, columns: int, depth: int, dtype: str) -> tirx.PrimFunc:
    """The product without a schedule."""
    a, b = te.placeholder((rows, depth), dtype, name="a"), te.placeholder((depth, columns), dtype, name="b")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute(
        (rows, columns),
        lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k),
        name="product",
    )
    return te.create_prim_func([a, b, c])


def scheduled(step: course.Step, function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with the schedule of a step."""
    schedule = s_tir.Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    step(schedule)
    return schedule.mod["main"]


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
    sizes = (size, size, size)
    functions = {step.__name__: scheduled(step, product(*sizes, dtype)) for step in STEPS[dtype]}
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
        print(f"{folder.name} {one.name}: {one.registers} registers, {one.shared_bytes} bytes of shared memory, "
              f"{one.spilled_bytes} bytes spilled")  # fmt: skip


if __name__ == "__main__":
    main()
