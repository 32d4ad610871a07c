"""Uploads for the tests of the capture stage."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bessemer.contract.dynamic import parse_dimension
from bessemer.contract.options import TranslateOptions, VerifyOptions
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.target import HOST, PresetTarget, ResolvedTarget
from bessemer.contract.tensor import parse_input_spec
from bessemer.contract.triple import LINUX_X86_64
from worker.compiler.pipeline.capture import capture
from worker.compiler.target import compile_target
from worker.compiler.values import Captured, StageContext, Upload
from worker.errors import JobError

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
"""The input of models that are traced or exported without another."""

TARGET = ResolvedTarget(name=HOST, kind="llvm", mcpu="x86-64-v3", triple=LINUX_X86_64, features=(), cores=2)


def capture_file(
    path: Path,
    *inputs: str,
    seed: int = 0,
    translate: TranslateOptions | None = None,
    dimensions: tuple[str, ...] = (),
    **request: Any,
) -> Captured:
    """Capture a file for inputs in the command line's form; ``request`` holds further fields."""
    wanted = CompilationRequest(
        model="0" * 64,
        target=PresetTarget(preset=HOST),
        inputs=tuple(parse_input_spec(text) for text in inputs),
        dimensions=dict(map(parse_dimension, dimensions)),
        translate=translate or TranslateOptions(),
        verify=VerifyOptions(seed=seed),
        **request,
    )
    return capture(
        Upload(path=path, request=wanted, target=compile_target(TARGET)), _stage_context(path.parent)
    )


def refusal(path: Path, *inputs: str, **request: Any) -> JobError:
    """The error of capturing a file."""
    with pytest.raises(JobError) as caught:
        capture_file(path, *inputs, **request)
    return caught.value


def _stage_context(folder: Path) -> StageContext:
    return StageContext(
        scratch=folder,
        output=folder,
        candidates=None,  # type: ignore[arg-type]
        sandbox=SandboxStatus(mode=SandboxMode.OFF, layers=()),
        finished_stages=lambda: (),
        left_seconds=lambda: 1800.0,
    )


class Within(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * 2


def scripted(module: nn.Module, path: Path, *_inputs: Any) -> Path:
    torch.jit.save(torch.jit.script(module), path)
    return path


def traced(module: nn.Module, path: Path, *inputs: Any) -> Path:
    torch.jit.save(torch.jit.trace(module, inputs or X, strict=False, check_trace=False), path)
    return path


def exported(module: nn.Module, path: Path, *inputs: Any, **options: Any) -> Path:
    torch.export.save(torch.export.export(module, inputs or (X,), **options), path)
    return path


def graph(module: nn.Module, path: Path, *_inputs: Any) -> Path:
    torch.save(torch.fx.symbolic_trace(module), path)
    return path
