"""Small functions of Relax, compiled by the stages' own passes and run in the candidate server."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray
from torch.nn import functional
from tvm import relax

from bessemer.contract.triple import LINUX_X86_64
from worker.candidates.client import CandidateClient
from worker.compiler.codegen.link import link_shared
from worker.compiler.pipeline.optimize import default_phases
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.schedules.processors import machine_of

Array = NDArray[Any]

TARGETS = ("x86-64-v2", "x86-64-v3")
"""Targets that every test machine can run."""

EPILOGUES: dict[str, tuple[Callable[[relax.Expr], relax.Expr], Callable[[torch.Tensor], torch.Tensor]]] = {
    "none": (lambda x: x, lambda x: x),
    "relu": (relax.op.nn.relu, torch.relu),
    "residual": (lambda x: relax.op.add(x, relax.op.nn.relu(x)), lambda x: x + torch.relu(x)),
    "gelu": (relax.op.nn.gelu, functional.gelu),
    "silu": (relax.op.nn.silu, functional.silu),
    "tanh": (relax.op.tanh, torch.tanh),
    "clip": (lambda x: relax.op.clip(x, 0, 6), lambda x: x.clamp(0, 6)),
}

_library_numbers = itertools.count()


def fuzz(examples: int) -> settings:
    """Settings for tests that compile each of their examples."""
    return settings(
        max_examples=examples,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
    )


def numbers(*shape: int, seed: int = 0) -> Array:
    """Normal numbers of float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def followed_by(result: relax.Expr, name: str) -> relax.Expr:
    """The result behind an epilogue."""
    return EPILOGUES[name][0](result)


def exactly_followed_by(result: torch.Tensor, name: str) -> torch.Tensor:
    """What torch computes for the epilogue."""
    return EPILOGUES[name][1](result)


def target_of(mcpu: str, cores: int = 2) -> tvm.target.Target:
    """A target of this architecture."""
    return tvm.target.Target({"kind": "llvm", "mtriple": LINUX_X86_64, "mcpu": mcpu, "num-cores": cores})


def main_of(build: Callable[..., relax.Expr], *inputs: Array) -> tvm.IRModule:
    """A module whose ``main`` computes one expression of its inputs."""
    builder = relax.BlockBuilder()
    variables = [
        relax.Var(f"x{index}", relax.TensorType(values.shape, str(values.dtype)))
        for index, values in enumerate(inputs)
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(build(*variables)))
        builder.emit_func_output(result)
    return builder.get()


def optimized(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """The module after the optimize stage's passes."""
    with target, tvm.transform.PassContext(opt_level=3):
        for phase in default_phases(machine_of(target)):
            for step in phase.passes:
                module = step(module)
    return module


def scheduled(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """The module after the optimize stage's passes and the default schedules."""
    return schedule_rest(optimized(module, target), target)


def run_compiled(
    server: CandidateClient,
    module: tvm.IRModule,
    target: tvm.target.Target,
    inputs: tuple[Array, ...],
    folder: Path,
) -> Array:
    """The first output of a scheduled module that is compiled and run in a process of the server."""
    return outputs_compiled(server, module, target, inputs, folder)[0]


def outputs_compiled(
    server: CandidateClient,
    module: tvm.IRModule,
    target: tvm.target.Target,
    inputs: tuple[Array, ...],
    folder: Path,
) -> tuple[Array, ...]:
    """All outputs of the module."""
    path = folder / f"{next(_library_numbers)}.so"
    executable = tvm.compile(module, target)
    executable.export_library(str(path), fcompile=link_shared, workspace_dir=str(folder))
    with server.open_library(path, threads=2) as library:
        return tuple(map(np.asarray, library.run(inputs)))


def source_of(module: tvm.runtime.Module, kind: str = "ll") -> str:
    """The LLVM code of a module and those that it imports, or their assembly (``s``)."""
    own = module.inspect_source(kind) if module.kind == "llvm" else ""
    return own + "".join(source_of(imported, kind) for imported in module.imports)


def spills(assembly: str, pattern: str) -> list[str]:
    """The lines of the inner loops of products that touch the stack, as ``pattern`` says it."""
    blocks = re.split(r"^\.L\w+:|^\t(?:j\w+|b\.\w+)\b", assembly, flags=re.MULTILINE)
    loops = [block.splitlines() for block in blocks if _is_inner_loop(block)]
    assert loops
    return [line for loop in loops for line in loop if re.search(pattern, line)]


def _is_inner_loop(block: str) -> bool:
    """Whether at least a third of the instructions are multiply-adds, to a dozen sums or more."""
    adds = len(re.findall(r"vfn?madd231\w+|fmla", block))
    return adds >= 12 and 3 * adds >= len(block.splitlines())
