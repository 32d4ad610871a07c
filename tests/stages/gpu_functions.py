"""Functions of TensorIR that operators of Relax become for a GPU, and what their kernels look like."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, s_tir, tirx
from tvm.relax import transform

from bessemer.contract.report import GpuKernel
from tests.gpu.run import GPU
from worker.compiler.codegen.cuda.kernels import GpuCode, lower_for_gpu
from worker.compiler.codegen.cuda.machine_code import compile_cuda
from worker.compiler.pipeline.optimize import legalize_by_rules
from worker.compiler.schedules.blocks import REFUSALS
from worker.compiler.schedules.gpu import GPU_FAMILIES, schedule_for_gpu
from worker.compiler.schedules.gpu.chips import writing_for
from worker.compiler.schedules.inline import inline_blocks
from worker.compiler.schedules.plans import PlanChooser

Kind = tuple[tuple[int, ...], str]
Build = Callable[..., relax.Expr]

_PASSES = (
    legalize_by_rules,
    transform.LegalizeOps(),
    transform.AnnotateTIROpPattern(),
    transform.FuseOps(),
    transform.FuseTIR(),
    transform.RewriteDataflowReshape(),
    transform.DeadCodeElimination(["main"]),
)


def module_of(build: Build, *kinds: Kind) -> tvm.IRModule:
    """A module whose ``main`` returns what ``build`` makes of its parameters."""
    builder = relax.BlockBuilder()
    parameters = [relax.Var(f"x{place}", relax.TensorType(*kind)) for place, kind in enumerate(kinds)]
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(build(*parameters))
        builder.emit_func_output(result)
    return builder.get()


def legalized(build: Build, *kinds: Kind) -> tirx.PrimFunc:
    """The one function that operators are fused to."""
    (function,) = functions_of(prepared(module_of(build, *kinds))).values()
    return function


def prepared(module: tvm.IRModule) -> tvm.IRModule:
    """A module whose operators are legalized for a GPU and fused."""
    target = tvm.target.Target({"kind": "llvm", "num-cores": 4})
    with writing_for(GPU), target, tvm.transform.PassContext(opt_level=3):
        for step in _PASSES:
            module = step(module)
    return module


def functions_of(module: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    """The TensorIR functions of a module by name."""
    return {
        str(name.name_hint): function
        for name, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }


def family_of(function: tirx.PrimFunc) -> str | None:
    """The family that claims a function; None if TVM's rules take it."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    for family in GPU_FAMILIES:
        try:
            if family.write(inline_blocks(s_tir.Schedule(module)), GPU, PlanChooser(None)) is not None:
                return family.name
        except REFUSALS:
            continue
    return None


def code_of(function: tirx.PrimFunc) -> GpuCode:
    """The CUDA of a function."""
    return lower_for_gpu({"main": schedule_for_gpu(function, GPU)}, GPU)


def kernels_of(code: GpuCode) -> str:
    """The kernels of some CUDA, without the definitions before them."""
    return code.source[code.source.index('extern "C"') :]


def usage_of(code: GpuCode, folder: Path) -> tuple[GpuKernel, ...]:
    """What ptxas says about the kernels."""
    return compile_cuda(code.source, (GPU.arch,), folder).usage


def assert_one_kernel(code: GpuCode) -> None:
    """A function is one kernel without intermediate results in global memory."""
    (launched,) = code.functions.values()
    assert len(launched.launches) == 1
    assert not launched.workspaces


def random(dtype: str, *sizes: int) -> Kind:
    """A tensor's kind."""
    assert prod(sizes) >= 0
    return tuple(sizes), dtype


def floats(*sizes: int) -> Kind:
    """A tensor of float32."""
    return tuple(sizes), "float32"


def halves(*sizes: int) -> Kind:
    """A tensor of float16."""
    return tuple(sizes), "float16"


def calls(module: tvm.IRModule) -> Any:
    """The operators that ``main`` calls, in order."""
    found: list[str] = []
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, tvm.ir.Op):
                found.append(str(binding.value.op.name).removeprefix("relax."))
    return found
