"""Joins and slices that share memory: no copies after lowering, and correct outputs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from stage_samples import Function, capture_module, make_context, optimized
from torch import nn
from tvm import tirx

from worker.candidates.client import CandidateClient
from worker.compiler.codegen.executable import LOWERING, build_library
from worker.compiler.schedules.annotations import SHARES
from worker.compiler.schedules.default import schedule_rest


def convolution(inputs: int, outputs: int, size: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2)


def fire(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return self.d(torch.cat([self.a(x).relu(), self.b(x)], 1))


def dense_block(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    features = [self.a(x)]
    for layer in (self.b, self.c):
        features.append(layer(torch.relu(torch.cat(features, 1))))
    return self.d(torch.cat(features, 1))


def split_and_grow(self: nn.Module, x: torch.Tensor) -> Any:
    left, right = self.a(x).chunk(2, 1)
    deep = self.b(right)
    return self.d(torch.cat([left, right, deep], 1)), deep


def joined_twice(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    a, b = self.a(x), self.b(x)
    return self.d(torch.cat([a, b], 1)) + self.d(torch.cat([b, a], 1))


def returned(self: nn.Module, x: torch.Tensor) -> Any:
    rows = self.a(x)
    return torch.cat([rows, self.b(x)], 0), rows[1:], rows


def images(batch: int) -> torch.Tensor:
    return torch.randn(batch, 16, 6, 10)


CASES: dict[str, tuple[nn.Module, torch.Tensor, int, int]] = {
    "parts of channels": (
        Function(fire, a=convolution(16, 32, 1), b=convolution(16, 16), d=convolution(48, 16)),
        images(1),
        1,
        0,
    ),
    "features that grow": (
        Function(
            dense_block,
            a=convolution(16, 32),
            b=convolution(32, 16),
            c=convolution(48, 16),
            d=convolution(64, 16),
        ),
        images(1),
        2,
        0,
    ),
    "halves that are read and joined again": (
        Function(split_and_grow, a=convolution(16, 64), b=convolution(32, 16), d=convolution(80, 16)),
        images(1),
        3,
        0,
    ),
    "two orders of the same parts": (
        Function(joined_twice, a=convolution(16, 32), b=convolution(16, 32), d=convolution(64, 16)),
        images(1),
        1,
        0,
    ),
    "channels that fill no block": (
        Function(fire, a=convolution(16, 33, 1), b=convolution(16, 15), d=convolution(48, 16)),
        images(1),
        1,
        0,
    ),
    "rows that the caller gets": (
        Function(returned, a=nn.Linear(32, 64), b=nn.Linear(32, 64)),
        torch.randn(5, 32),
        2,
        0,
    ),
}
"""A model, its input, and the numbers of marked copies and of copies left after lowering."""


def calls_of_copies(module: tvm.IRModule) -> int:
    """The number of calls in ``main`` of functions marked as copies."""
    copies = {
        variable
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and function.attrs and SHARES in function.attrs
    }
    values = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    called = [{getattr(value, "op", None), *getattr(value, "args", ())[:1]} for value in values]
    return sum(bool(names & copies) for names in called)


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_parts_are_written_in_place(server: CandidateClient, tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    model, x, marked, left = CASES[name]
    ready = optimized(capture_module(model, x), make_context(tmp_path))
    target = ready.captured.upload.target.llvm
    module = schedule_rest(ready.module, target)
    lowered = tvm.transform.Sequential(LOWERING[:4])(module)
    path = tmp_path / "model.so"
    build_library(module, target, path, tmp_path / "objects")
    with server.open_library(path, threads=2) as library:
        computed = [library.run(ready.captured.inputs) for _ in range(2)][-1]

    assert (calls_of_copies(module), calls_of_copies(lowered)) == (marked, left)
    for result, expected in zip(computed, ready.captured.references, strict=True):
        np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-4, atol=1e-5)
