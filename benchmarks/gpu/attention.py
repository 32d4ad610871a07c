"""Compiles attention by many plans: ``python -m benchmarks.gpu.attention FOLDER sm_90``.

``measure_attention`` times them beside torch where the GPU is.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path

import numpy as np
import tvm
from tvm import relax, s_tir, tirx
from tvm.relax import op

from worker.compiler.codegen.cuda.kernels import lower_for_gpu
from worker.compiler.codegen.cuda.machine_code import compile_cuda
from worker.compiler.layout.attention.fuse_attention import fuse_attention
from worker.compiler.schedules import nest
from worker.compiler.schedules.families.attention.blocks import find_attention
from worker.compiler.schedules.gpu.attention.plan import attention_plans
from worker.compiler.schedules.gpu.attention.tensor_cores import TensorCoreAttention
from worker.compiler.schedules.gpu.chips import Gpu, gpu_of, writing_for
from worker.compiler.schedules.inline import inline_blocks


@dataclass(frozen=True)
class Shape:
    """Attention of as many queries as keys, ``[batch, tokens, heads, depth]``."""

    batch: int
    heads: int
    tokens: int
    depth: int
    causal: bool

    @property
    def name(self) -> str:
        """The shape as a name of a folder."""
        kind = "causal" if self.causal else "full"
        return f"{self.batch}x{self.heads}x{self.tokens}x{self.depth}-{kind}"


SHAPES = (
    Shape(32, 3, 197, 64, False),
    Shape(1, 3, 197, 64, False),
    Shape(32, 4, 32, 64, False),
    Shape(8, 12, 1024, 64, True),
    Shape(8, 12, 1024, 64, False),
    Shape(2, 16, 2048, 128, True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("arch")
    parser.add_argument("--plans", type=int, default=6)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    for shape in SHAPES:
        if chosen.only in shape.name:
            folder = chosen.folder / "attention" / shape.name
            count = _prepare(shape, gpu_of(chosen.arch), chosen.plans, folder)
            print(f"{shape.name}: {count} plans", flush=True)


def _prepare(shape: Shape, gpu: Gpu, most: int, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    function = _function(shape, gpu)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    blocks = find_attention(inline_blocks(s_tir.Schedule(module)))
    assert blocks is not None
    ranked = attention_plans(blocks, gpu)
    plans = list({(plan.warps, plan.fragments): plan for plan in reversed(ranked)}.values())[::-1]
    plans = [ranked[0], *(plan for plan in (*plans, *ranked[1:]) if plan != ranked[0])][:most]
    functions = {
        f"plan{number}": nest.with_loops(function, TensorCoreAttention(blocks, plan, gpu).statement())
        for number, plan in enumerate(plans)
    }
    code = lower_for_gpu(functions, gpu)
    binary = compile_cuda(code.source, (gpu.arch,), folder)
    document = {
        "shape": asdict(shape),
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
    (folder / "attention.json").write_text(json.dumps(document))
    for other in ("kernels.ptx", "kernels.fatbin"):
        (folder / other).unlink()
    return len(functions)


def _function(shape: Shape, gpu: Gpu) -> tirx.PrimFunc:
    """The function as the compiler makes it of queries, keys and values in bfloat16."""
    dtype, sizes = "bfloat16", (shape.batch, shape.tokens, shape.heads, shape.depth)
    parameters = [relax.Var(name, relax.TensorType(sizes, dtype)) for name in ("query", "key", "value")]
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        with builder.dataflow():
            query, key, value = (builder.emit(op.permute_dims(x, (0, 2, 1, 3))) for x in parameters)
            scores = builder.emit(op.matmul(query, builder.emit(op.permute_dims(key, (0, 1, 3, 2)))))
            scores = builder.emit(op.multiply(scores, relax.const(1 / sqrt(shape.depth), dtype)))
            if shape.causal:
                hidden = np.triu(np.full((shape.tokens, shape.tokens), -np.inf, np.float32), 1)
                scores = builder.emit(op.add(scores, relax.const(hidden, dtype)))
            result = builder.emit(op.matmul(builder.emit(op.nn.softmax(scores)), value))
            result = builder.emit_output(op.permute_dims(result, (0, 2, 1, 3)))
        builder.emit_func_output(result)
    with writing_for(gpu):
        module = fuse_attention(builder.get())
    return next(one for one in module.functions.values() if isinstance(one, tirx.PrimFunc))


if __name__ == "__main__":
    main()
