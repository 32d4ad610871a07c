"""Work that a compilation does once, however many layers a model has."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm
from capture_samples import capture_file, exported
from stage_samples import TARGET, Function, capture_module, make_context, optimized
from torch import nn
from tvm import te

from bessemer.contract.problem import ErrorCode
from worker.candidates.requests import CompileBatch, CompileOutcome
from worker.compiler.codegen.compile_functions import Compiler, Objects, compile_here
from worker.compiler.codegen.executable import build_in_shares
from worker.compiler.frontend import file_format
from worker.compiler.frontend.zip_archive import Archive
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.target import compile_target
from worker.errors import JobError

LLVM = compile_target(TARGET).llvm


class Block(nn.Module):
    """Normalized attention with a mask that the model computes, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.project = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(self.norm(x)).chunk(3, -1)
        mask = x.new_zeros(x.shape[1], x.shape[1])
        mask[:2, 2:] = -100.0
        scores = torch.softmax(query @ key.transpose(1, 2) + mask, -1)
        return x + self.out(torch.relu(scores @ value))


def layers(count: int) -> nn.Module:
    return Function(lambda model, x: model.blocks(x), blocks=nn.Sequential(*(Block() for _ in range(count))))


def compiled_names(count: int, folder: Path) -> list[str]:
    """The functions that are compiled for a model of equal layers."""
    names: list[str] = []
    folder.mkdir()

    def compile_many(batch: CompileBatch, on_progress: Callable[..., None]) -> tuple[CompileOutcome, ...]:
        names.extend(name for group in batch.groups for name in group.names)
        return compile_here(batch, on_progress)

    captured = capture_module(layers(count), torch.randn(1, 4, 16))
    ready, target = optimized(captured, make_context(folder)), captured.upload.target.llvm
    scheduled = schedule_rest(ready.module, target)
    compiler = Compiler(target, folder / "objects", compile_many)
    build_in_shares(scheduled, ready.module, folder / "model.so", compiler)
    return names


def test_equal_layers_are_compiled_once(tmp_path: Path) -> None:
    few, many = compiled_names(2, tmp_path / "few"), compiled_names(6, tmp_path / "many")

    assert len(many) == len(set(many)) == len(few)


def one_of(value: Any) -> te.Tensor:
    return te.compute((1,), lambda _: value)


def test_large_functions_are_compiled_first_and_a_failure_is_that_of_its_function(tmp_path: Path) -> None:
    started: list[str] = []

    def compile_many(batch: CompileBatch, on_progress: Callable[..., None]) -> tuple[CompileOutcome, ...]:
        started.extend(name for group in batch.groups for name in group.names)
        failed = CompileOutcome((ErrorCode.BUILD_FAILED, "too small"))
        return tuple(failed if group.names == ("small",) else CompileOutcome() for group in batch.groups)

    x = te.placeholder((8,), "float32", "x")
    sums = {"small": x[0], "large": sum(x[at] for at in range(8)), "medium": x[0] + x[1] + x[2]}
    functions = {name: te.create_prim_func([x, one_of(value)]) for name, value in sums.items()}
    objects = Objects(Compiler(LLVM, tmp_path, compile_many))
    with pytest.raises(JobError, match="function small: too small"):
        objects.compile(functions, dict.fromkeys(functions, 1.0))

    assert started == ["large", "medium", "small"]


def test_masks_are_computed_without_compiling_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[tvm.IRModule] = []
    building = sys.modules["tvm.tirx.build"]
    own: Callable[..., Any] = building.codegen_build

    def counted(module: tvm.IRModule, target: tvm.target.Target) -> Any:
        compiled.append(module)
        return own(module, target)

    monkeypatch.setattr(building, "codegen_build", counted)

    optimized(capture_module(layers(3), torch.randn(1, 4, 16)), make_context(tmp_path))

    assert not compiled


def test_a_model_file_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Path] = []
    own = file_format.check_archive

    def counted(path: Path) -> Archive:
        checked.append(path)
        return own(path)

    monkeypatch.setattr(file_format, "check_archive", counted)
    capture_file(exported(nn.Linear(4, 2).eval(), tmp_path / "model.pt2"))

    assert checked == [tmp_path / "model.pt2"]
