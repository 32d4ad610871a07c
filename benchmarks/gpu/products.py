"""Compiles matrix products by many plans: ``python -m benchmarks.gpu.products FOLDER sm_90``.

``measure`` times them beside cuBLAS where the GPU is.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import tvm
from tvm import relax, s_tir, tirx

from worker.compiler.codegen.cuda.kernels import lower_for_gpu
from worker.compiler.codegen.cuda.machine_code import compile_cuda
from worker.compiler.layout.gpu.weights_along_depth import multiplied
from worker.compiler.pipeline.optimize import legalize_by_rules
from worker.compiler.schedules.gpu.chips import Gpu, gpu_of
from worker.compiler.schedules.gpu.products import Precision, product_plans, write_product


@dataclass(frozen=True)
class Shape:
    """``left[rows, depth] * right[depth, columns]``; in tf32 the right factor is stored transposed."""

    rows: int
    columns: int
    depth: int
    dtype: str

    @property
    def name(self) -> str:
        """The shape as a name of a file."""
        return f"{self.dtype}-{self.rows}x{self.columns}x{self.depth}"

    @property
    def is_transposed(self) -> bool:
        """Whether the right factor has its columns first, as the compiler lays it out."""
        return self.dtype == "tf32"


_HALF = (
    (1024,) * 3,
    (2048,) * 3,
    (4096,) * 3,
    (8192, 8192, 4096),
    (128, 3072, 768),
    (128, 768, 3072),
    (6304, 768, 3072),
    (6304, 3072, 768),
    (4096, 1024, 256),
    (2048, 256, 1024),
    (1, 4096, 4096),
    (16, 4096, 4096),
)
_FLOAT = (
    (1024,) * 3,
    (2048,) * 3,
    (4096,) * 3,
    (64, 1024, 256),
    (64, 256, 1024),
    (197, 768, 192),
    (1, 4096, 4096),
)
SHAPES = (
    *(Shape(*size, "bfloat16") for size in _HALF),
    *(Shape(*size, "float32") for size in _FLOAT),
    *(Shape(*size, "tf32") for size in _FLOAT[:3]),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("arch")
    parser.add_argument("--plans", type=int, default=8)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    for shape in SHAPES:
        if chosen.only in shape.name:
            count = _prepare(
                shape, gpu_of(chosen.arch), chosen.plans, chosen.folder / "products" / shape.name
            )
            print(f"{shape.name}: {count} plans", flush=True)


def _prepare(shape: Shape, gpu: Gpu, most: int, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    function, precision = _legalized(shape), Precision(tf32=shape.dtype == "tf32")
    functions = {}
    plans = product_plans(function, gpu, precision)[:most]
    for number, plan in enumerate(plans):
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        written = write_product(s_tir.Schedule(module), gpu, plan, precision)
        if written is not None:
            functions[f"plan{number}"] = written
    code = lower_for_gpu(functions, gpu)
    binary = compile_cuda(code.source, (gpu.arch,), folder)
    document = {
        "shape": {**asdict(shape), "transposed": shape.is_transposed},
        "plans": {
            name: {
                "plan": str(plans[int(name[4:])]),
                "launches": [asdict(launch) for launch in made.launches],
                "workspaces": made.workspaces,
            }
            for name, made in code.functions.items()
        },
        "usage": [one.model_dump() for one in binary.usage],
    }
    (folder / "product.json").write_text(json.dumps(document))
    for other in ("kernels.ptx", "kernels.fatbin"):
        (folder / other).unlink()
    return len(functions)


def _legalized(shape: Shape) -> tirx.PrimFunc:
    """The function as the compiler makes it of a linear layer without a bias."""
    dtype = "float32" if shape.dtype == "tf32" else shape.dtype
    left = relax.Var("left", relax.TensorType((shape.rows, shape.depth), dtype))
    sizes = (shape.columns, shape.depth) if shape.is_transposed else (shape.depth, shape.columns)
    right = relax.Var("right", relax.TensorType(sizes, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [left, right]):
        product = (
            builder.call_te(multiplied, left, right) if shape.is_transposed else relax.op.matmul(left, right)
        )
        builder.emit_func_output(builder.emit(product))
    module = relax.transform.LegalizeOps()(legalize_by_rules(builder.get()))
    return next(one for one in module.functions.values() if isinstance(one, tirx.PrimFunc))


if __name__ == "__main__":
    main()
