"""Whole models compute on the reference executor what torch computes, every kernel checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from stage_samples import capture_module, make_context, optimized
from torch import nn

from bessemer.contract.target import PresetTarget, resolve_target
from examples.models import EXAMPLES
from tests.gpu.run import assert_close, execute
from worker.compiler.pipeline.tune import tune

TARGET = resolve_target(PresetTarget(preset="cuda-sm_90"), "", 1)


class Residual(nn.Module):
    """Convolutions with normalization around a shortcut, pooled to classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.first = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16, bias=False), nn.BatchNorm2d(16))
        self.classes = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.max_pool2d(self.stem(x), 3, 2, 1)
        x = torch.relu(self.second(self.first(x)) + x)
        return self.classes(x.mean((2, 3)))


class Encoder(nn.Module):
    """A transformer's layer after an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.layer(self.embedding(tokens))


class Upsampler(nn.Module):
    """Down and up again, with a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(4, 8, 3, 2, 1)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.last(torch.cat((self.up(torch.relu(self.down(x))), x), 1)), 1)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "mlp": (EXAMPLES["mlp"].build, lambda: EXAMPLES["mlp"].example_inputs()[0]),
    "cnn": (EXAMPLES["cnn"].build, lambda: EXAMPLES["cnn"].example_inputs()[0]),
    "residual": (Residual, lambda: torch.randn(2, 3, 32, 32)),
    "encoder": (Encoder, lambda: torch.randint(50, (2, 12))),
    "upsampler": (Upsampler, lambda: torch.randn(1, 4, 16, 16)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_what_torch_computes(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    build, draw = MODELS[name]
    context = make_context(tmp_path)
    captured = capture_module(build(), draw(), target=TARGET)
    tuned = tune(optimized(captured, context), context)
    outputs = execute(tuned.module, captured.inputs)
    for found, expected in zip(outputs, captured.references, strict=True):
        assert_close(found, expected, 1e-4)
