"""Small libraries built without the pipeline, with the results of the stages before package."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tvm
from bundle_samples import unpacked
from stage_samples import compile_and_verify
from tvm import relax
from ziglang import __file__ as zig_package

from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.model import ModelFormat
from bessemer.contract.options import Tolerance
from bessemer.contract.report import BenchmarkResult, Latency, OutputComparison, TuneResult
from bessemer.contract.request import CompilationRequest
from bessemer.contract.target import PresetTarget, ResolvedTarget
from bessemer.contract.tensor import DType, TensorSpec
from worker.compiler.pipeline.package import package
from worker.compiler.target import compile_target
from worker.compiler.values import (
    Benchmarked,
    Built,
    Captured,
    Optimized,
    StageContext,
    Tuned,
    Upload,
    Verified,
)

MODEL = "ab" * 32
TARGET = ResolvedTarget(
    name="x86-64-v2",
    kind="llvm",
    mcpu="x86-64-v2",
    triple="x86_64-unknown-linux-gnu",
    features=(),
    cores=2,
)
SHAPE = (4, 6)
SORT_IMPORT = "tvm.contrib.sort.argsort"


def add_module() -> tvm.IRModule:
    """``main(x) = x + 1``."""
    return _module(lambda x: relax.op.add(x, relax.const(1.0, "float32")))


def heavy_module(elements: int) -> tvm.IRModule:
    """``main(x) = x + sum(w)`` with a constant ``w`` of ones."""
    return _module(lambda x: relax.op.add(x, relax.op.sum(relax.const(np.ones(elements, np.float32)))))


def argsort_module() -> tvm.IRModule:
    """``main(x) = argsort(x)``, which calls a function of the extra runtime library."""
    return _module(lambda x: relax.op.argsort(x, axis=-1, dtype="int64"))


def _module(build: Callable[[relax.Expr], relax.Expr]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(build(x)))
    return builder.get()


def build_library(module: tvm.IRModule, path: Path) -> Path:
    """Compile for the target of the samples and link with zig's ``ld.lld``, which every environment has."""
    target = tvm.target.Target({"kind": TARGET.kind, "mcpu": TARGET.mcpu, "mtriple": TARGET.triple})
    tvm.compile(module, target=target).export_library(
        str(path), fcompile=_link, workspace_dir=str(path.parent)
    )
    return path


def benchmarked(
    library: Path, imports: frozenset[str], output: TensorSpec, reference: np.ndarray
) -> Benchmarked:
    """A result of the benchmark stage for a library of one input and one output."""
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(SHAPE)
    request = CompilationRequest(model=MODEL, target=PresetTarget(preset=TARGET.name))
    captured = Captured(
        upload=Upload(path=library, request=request, target=compile_target(TARGET)),
        format=ModelFormat.PT2,
        program=None,
        input_specs=(TensorSpec(name="x", shape=SHAPE),),
        output_specs=(output,),
        inputs=(x,),
        references=(reference,),
        parameters=0,
    )
    optimized = Optimized(captured=captured, operators={"relax.add": 1}, module=None, passes=())
    tuned = Tuned(
        optimized=optimized, module=None, result=TuneResult(trials=0, seconds=0, tasks=()), records=None
    )
    verified = Verified(
        built=Built(tuned=tuned, library=library, imports=imports, module=None),
        captured=captured,
        comparisons=(_comparison(output),),
    )
    return Benchmarked(verified=verified, result=benchmark_result(library))


def compile_to_bundle(captured: Captured, context: StageContext) -> Path:
    """The result of all stages, unpacked beside the folder for outputs."""
    verified = compile_and_verify(captured, context)
    result = benchmark_result(verified.built.library)
    package(Benchmarked(verified, result, (result,) * len(captured.others)), context)
    return unpacked(context.output / ARCHIVE, context.output.with_name("bundle"))


def _link(output: str, objects: Sequence[str], **_: object) -> None:
    zig = Path(zig_package).parent / "zig"
    subprocess.run([zig, "ld.lld", "-shared", "-o", output, *objects], check=True)


def _comparison(output: TensorSpec) -> OutputComparison:
    exact = output.dtype is DType.INT64
    return OutputComparison(
        name=output.name,
        shape=output.shape,
        dtype=output.dtype,
        tolerance=Tolerance(relative=0 if exact else 1e-4, absolute=0 if exact else 1e-5),
        max_absolute_error=0,
        max_relative_error=0,
        worst_index=(0, 0),
        worst_value=0,
        worst_reference=0,
        mismatches=0,
        elements=24,
    )


def benchmark_result(library: Path) -> BenchmarkResult:
    """Figures for a library that is not measured."""
    latency = Latency(
        runs=20, min_ms=0.01, p50_ms=0.011, p90_ms=0.012, p99_ms=0.02, mean_ms=0.0112, stddev_ms=0.001
    )
    return BenchmarkResult(
        latency=latency,
        threads=2,
        library_bytes=library.stat().st_size,
        peak_memory_bytes=40 << 20,
        baselines=(),
        functions=(),
    )
