"""Models compiled for other platforms, and the tools that run and read what comes out."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from bundle_samples import unpacked
from stage_samples import capture_module, compile_to_library
from torch import nn

from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.target import PRESETS_BY_NAME, ResolvedTarget
from worker.compiler.pipeline.package import package
from worker.compiler.pipeline.verify import verify
from worker.compiler.platforms import launcher_of
from worker.compiler.values import Benchmarked, Built, StageContext

NEEDS_READOBJ = pytest.mark.skipif(
    shutil.which("llvm-readobj") is None, reason="there is no llvm-readobj on this machine"
)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)


class Functions(nn.Module):
    """Functions for which generated code may call libm."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.erf() + x.exp() + x.lgamma() + x.round() + x.tan() + x.pow(x) + x.fmod(0.7)


class Halves(nn.Module):
    """Numbers that become float16: ordinary ones, infinite ones and subnormal ones."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = torch.relu(x.half() + 1)
        return wide, (x * 40000).half().float(), (x * 1e-6).half().float(), x.double().half()


MODELS = {
    "perceptron": (perceptron, (8, 64)),
    "convolutions": (convolutions, (1, 3, 32, 32)),
    "encoder": (encoder, (1, 32, 64)),
    "functions": (Functions, (4, 33)),
    "halves": (Halves, (4, 33)),
}


def preset(name: str, triple: str | None = None, cores: int = 2) -> ResolvedTarget:
    """A preset's target, on another system if ``triple`` names one."""
    found = PRESETS_BY_NAME[name]
    assert found.mcpu is not None
    return ResolvedTarget(
        name=name,
        kind="llvm",
        mcpu=found.mcpu,
        triple=triple or found.triple,
        features=found.features,
        cores=cores,
    )


def skip_unless_it_runs(triple: str) -> None:
    """Skip a test on a machine that cannot run programs for a triple."""
    if launcher_of(triple) is None:
        pytest.skip(f"there is no emulator or libc for {triple} on this machine")


def built_for(target: ResolvedTarget, model: str, context: StageContext, **request: object) -> Built:
    """A sample, compiled with default schedules."""
    make, shape = MODELS[model]
    captured = capture_module(make(), torch.randn(shape), target=target, **request)
    return compile_to_library(captured, context)


def bundle_of(built: Built, context: StageContext, folder: Path) -> Path:
    """The unpacked bundle of a library, verified if the request asks for it."""
    package(Benchmarked(verified=verify(built, context), result=None), context)
    return unpacked(context.output / ARCHIVE, folder)


def headers(path: Path, *options: str) -> str:
    """What ``llvm-readobj`` says of a file."""
    command = ("llvm-readobj", "--file-headers", *options, str(path))
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


MULTIPLY_ADDS = {
    "x86_64": r"\tvfmadd\d+ps\s.*(%[xyz]mm|[xyz]mm)",
    "aarch64": r"\tfmla\s+v\d+\.4s|\tfmla\.4s",
    "aarch64 scalable": r"\t(fmla|fmad)\s+z\d+\.s",
    "aarch64 groups": r"\t([us]+mmla|bfmmla|[us]dot)\s+v\d+\.4s",
    "riscv64": r"\tvfmacc\.v",
    "riscv64 scalar": r"\tfmadd\.s",
}
STACK = {"x86_64": r"\(%r[sb]p", "aarch64": r"\[sp|\[x29", "riscv64": r"\(sp\)"}


@dataclass(frozen=True)
class Loop:
    """A loop, or another basic block, of some machine code.

    Attributes:
        multiply_adds: how many of its instructions multiply and add vectors.
        instructions: how many it has.
        stack: how many of them use the stack.
    """

    multiply_adds: int
    instructions: int
    stack: int


def innermost_loops(assembly: str, kind: str) -> list[Loop]:
    """The loops of one basic block each, those with the most multiply-adds first."""
    loops = []
    for label, lines in _basic_blocks(assembly):
        ends = [at for at, line in enumerate(lines) if re.search(rf"[\s,]{re.escape(label)}$", line)]
        if ends:
            loops.append(_counted(lines[: ends[-1] + 1], kind))
    return sorted(loops, key=lambda loop: -loop.multiply_adds)


def straight_code(assembly: str, kind: str) -> list[Loop]:
    """The basic blocks, those with the most multiply-adds first: the taps of a small window are unrolled."""
    blocks = [_counted(lines, kind) for _, lines in _basic_blocks(assembly)]
    return sorted(blocks, key=lambda block: -block.multiply_adds)


def _basic_blocks(assembly: str) -> Iterator[tuple[str, list[str]]]:
    assembly = re.sub(r"^(\.Ltmp\d+:|\t\.).*\n", "", assembly, flags=re.MULTILINE)
    for label, body in re.findall(r"^(\.?L\w+):[^\n]*\n((?:[ \t#/].*\n)*)", assembly, re.MULTILINE):
        yield label, [line for line in body.splitlines() if re.match(r"\t[a-z]", line)]


def _counted(lines: Sequence[str], kind: str) -> Loop:
    stack = STACK[kind.partition(" ")[0]]
    adds = sum(re.match(MULTIPLY_ADDS[kind], line) is not None for line in lines)
    return Loop(adds, len(lines), sum(re.search(stack, line) is not None for line in lines))
