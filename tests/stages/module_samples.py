"""Programs in TVMScript, and the stages that compile them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
from stage_samples import TARGET

from bessemer.contract.request import CompilationRequest
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.capture import capture
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.translate import translate
from worker.compiler.pipeline.tune import tune
from worker.compiler.pipeline.verify import verify
from worker.compiler.target import compile_target
from worker.compiler.values import Captured, StageContext, Upload, Verified

IMPORTS = """
import numpy as np
import torch
import tvm
from tvm.script import ir as I, relax as R, tirx as T
"""

# as a course of 2022 prints it
OLD_PRODUCT = """
import IPython
import numpy as np
import tvm
from tvm.ir.module import IRModule
from tvm.script import tir as T

@tvm.script.ir_module
class MyModule:
    @T.prim_func
    def mm_relu(A: T.Buffer[(32, 24), "float32"],
                B: T.Buffer[(24, 16), "float32"],
                C: T.Buffer[(32, 16), "float32"]):
        T.func_attr({"global_symbol": "mm_relu", "tir.noalias": True})
        Y = T.alloc_buffer((32, 16), dtype="float32")
        for i, j, k in T.grid(32, 16, 24):
            with T.block("Y"):
                vi = T.axis.spatial(32, i)
                vj = T.axis.spatial(16, j)
                vk = T.axis.reduce(24, k)
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(32, 16):
            with T.block("C"):
                vi = T.axis.spatial(32, i)
                vj = T.axis.spatial(16, j)
                C[vi, vj] = T.max(Y[vi, vj], T.float32(0))
"""

KERNELS = """
    @T.prim_func
    def relu0(x: T.handle, y: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (1, n), "float32")
        Y = T.match_buffer(y, (1, n), "float32")
        for i, j in T.grid(1, n):
            with T.block("Y"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = T.max(X[vi, vj], T.float32(0))

    @T.prim_func
    def linear0(x: T.handle, w: T.handle, b: T.handle, z: T.handle):
        m, n = T.int64(), T.int64()
        X = T.match_buffer(x, (1, m), "float32")
        W = T.match_buffer(w, (n, m), "float32")
        B = T.match_buffer(b, (n, ), "float32")
        Z = T.match_buffer(z, (1, n), "float32")
        Y = T.alloc_buffer((1, n), "float32")
        for i, j, k in T.grid(1, n, m):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + X[vi, vk] * W[vj, vk]
        for i, j in T.grid(1, n):
            with T.block("Z"):
                vi, vj = T.axis.remap("SS", [i, j])
                Z[vi, vj] = Y[vi, vj] + B[vj]
"""

# as the course's chapter on whole networks prints it: symbolic sizes, `call_tir` with `out_sinfo`
OLD_NETWORK = (
    """
import tvm
from tvm.script import tir as T, relax as R

@tvm.script.ir_module
class MyModule:
"""
    + KERNELS
    + """
    @R.function
    def main(x: R.Tensor((1, "m"), "float32"),
             w0: R.Tensor(("n", "m"), "float32"),
             b0: R.Tensor(("n", ), "float32"),
             w1: R.Tensor(("k", "n"), "float32"),
             b1: R.Tensor(("k", ), "float32")):
        m, n, k = T.int64(), T.int64(), T.int64()
        cls = MyModule
        with R.dataflow():
            lv0 = R.call_tir(cls.linear0, (x, w0, b0), out_sinfo=R.Tensor((1, n), dtype="float32"))
            lv1 = R.call_tir(cls.relu0, (lv0,), out_sinfo=R.Tensor((1, n), dtype="float32"))
            out = R.call_tir(cls.linear0, (lv1, w1, b1), out_sinfo=R.Tensor((1, k), dtype="float32"))
            R.output(out)
        return out
"""
)

# as its first edition prints it: functions by their bare names, the result's type as a shape and a dtype
OLDEST_NETWORK = (
    OLD_NETWORK.replace("cls.", "")
    .replace("        cls = MyModule\n", "")
    .replace('out_sinfo=R.Tensor((1, n), dtype="float32")', '(1, n), dtype="float32"')
    .replace('out_sinfo=R.Tensor((1, k), dtype="float32")', '(1, k), dtype="float32"')
)

SHAPES = {"x": (1, 24), "w0": (16, 24), "b0": (16,), "w1": (10, 16), "b1": (10,)}

REFERENCE = """
def reference(x, w0, b0, w1, b1):
    hidden = torch.relu(torch.nn.functional.linear(x, w0, b0))
    return torch.nn.functional.linear(hidden, w1, b1)
"""


def script(body: str) -> str:
    """A file in today's dialect, with the usual imports."""
    return IMPORTS + dedent(body)


def specs(**shapes: tuple[int | str, ...]) -> list[dict[str, Any]]:
    """The inputs of a request, all float32."""
    return [{"name": name, "shape": shape, "dtype": "float32"} for name, shape in shapes.items()]


def weights() -> dict[str, np.ndarray]:
    """Random weights for the network."""
    generator = np.random.default_rng(0)
    return {
        name: generator.standard_normal(shape, np.float32) for name, shape in SHAPES.items() if name != "x"
    }


def archive(text: str, **files: dict[str, np.ndarray]) -> bytes:
    """A module with arrays beside it: ``weights`` and ``reference``."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr("module.py", text)
        for name, arrays in files.items():
            content = io.BytesIO()
            np.savez(content, **arrays)
            made.writestr(f"{name}.npz", content.getvalue())
    return stream.getvalue()


def upload(folder: Path, content: str | bytes, **request: Any) -> Upload:
    """A module's file with a request."""
    path = folder / "model"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    wanted = CompilationRequest.model_validate({"model": "0" * 64, "target": {"preset": "host"}, **request})
    return Upload(path=path, request=wanted, target=compile_target(TARGET))


def captured(context: StageContext, content: str | bytes, **request: Any) -> Captured:
    """The module after capture."""
    return capture(upload(context.scratch, content, **request), context)


def verified(context: StageContext, content: str | bytes, **request: Any) -> Verified:
    """The module after all stages up to verify."""
    found = captured(context, content, **request)
    tuned = tune(optimize(translate(found, context), context), context)
    return verify(build(tuned, context), context)
