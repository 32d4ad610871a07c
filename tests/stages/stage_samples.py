"""Small captured models for the tests of the later stages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bessemer.contract.model import ModelFormat
from bessemer.contract.report import TuneResult
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.target import HOST, PresetTarget, ResolvedTarget
from bessemer.contract.tensor import TensorSpec
from bessemer.contract.triple import LINUX_X86_64
from worker.compiler.frontend.outputs import flatten_outputs
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.translate import translate
from worker.compiler.pipeline.tune import tune
from worker.compiler.pipeline.verify import verify
from worker.compiler.target import compile_target, host_mcpu
from worker.compiler.values import Built, Captured, Optimized, StageContext, Tuned, Upload, Verified
from worker.tensors import as_array

CORES = 2
TARGET = ResolvedTarget(
    name="host", kind="llvm", mcpu=host_mcpu(), triple=LINUX_X86_64, features=(), cores=CORES
)


class Function(nn.Module):
    """A model from a function of its parts and its inputs."""

    def __init__(self, body: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.body = body
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> Any:
        return self.body(self, x) if y is None else self.body(self, x, y)


class Perceptron(nn.Module):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 8)
        self.second = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def capture_module(
    module: nn.Module, *inputs: torch.Tensor, target: ResolvedTarget = TARGET, **request: Any
) -> Captured:
    """Capture a module without a file; ``request`` holds further fields of the request."""
    module.eval()
    with torch.inference_mode():
        outputs = flatten_outputs(module(*inputs))
    program = torch.export.export(module, inputs)
    wanted = CompilationRequest.model_validate(
        {"model": "0" * 64, "target": PresetTarget(preset=target.name if target.gpus else HOST), **request}
    )
    return Captured(
        upload=Upload(path=Path("unused"), request=wanted, target=compile_target(target)),
        format=ModelFormat.PT2,
        program=program,
        input_specs=_specs("input", inputs),
        output_specs=_specs("output", outputs),
        inputs=tuple(map(as_array, inputs)),
        references=tuple(np.array(as_array(output)) for output in outputs),
        parameters=0,
    )


def optimized(captured: Captured, context: StageContext) -> Optimized:
    """The result of the stages up to optimize."""
    return optimize(translate(captured, context), context)


def untuned(captured: Captured, context: StageContext) -> Tuned:
    """The optimized module, its functions as TVM writes them."""
    ready = optimized(captured, context)
    return Tuned(ready, ready.module, TuneResult(trials=0, seconds=0, tasks=()), None)


def compile_to_library(captured: Captured, context: StageContext) -> Built:
    """The result of the stages up to build."""
    return build(tune(optimized(captured, context), context), context)


def compile_and_verify(captured: Captured, context: StageContext) -> Verified:
    """The result of the stages up to verify."""
    return verify(compile_to_library(captured, context), context)


def make_context(folder: Path, candidates: Any = None) -> StageContext:
    """A context in a folder."""
    scratch, output = folder / "scratch", folder / "output"
    scratch.mkdir(parents=True, exist_ok=True)
    output.mkdir(exist_ok=True)
    return StageContext(
        scratch=scratch,
        output=output,
        candidates=candidates,
        sandbox=SandboxStatus(mode=SandboxMode.OFF, layers=()),
        finished_stages=lambda: (),
        left_seconds=lambda: 1800.0,
    )


def _specs(prefix: str, tensors: tuple[torch.Tensor, ...]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec.model_validate(
            {
                "name": f"{prefix}_{index}",
                "shape": tuple(tensor.shape),
                "dtype": str(tensor.dtype).removeprefix("torch."),
            }
        )
        for index, tensor in enumerate(tensors)
    )
