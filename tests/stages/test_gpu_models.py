"""Whole models compute on the reference executor what torch computes, every kernel checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from stage_samples import capture_module, make_context, optimized
from torch import nn
from tvm import tirx

import tests.gpu.instructions  # noqa: F401
from bessemer.contract.target import PresetTarget, resolve_target
from examples.models import EXAMPLES
from tests.gpu.run import GPU, assert_close, execute
from worker.compiler.codegen.cuda.kernels import lower_for_gpu
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


@pytest.mark.sampled
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


@dataclass(frozen=True)
class Rounded:
    """A model in a precision, what kernels must contain, and the error that may remain (root mean square)."""

    model: str
    dtype: torch.dtype = torch.float32
    contains: str = "mma"
    error: float = 5e-4


class Stem(nn.Module):
    """The first layers of a ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Gray(nn.Module):
    """A convolution of one channel, and one of two."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Conv2d(2, 16, (3, 5), (1, 2), (1, 2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


ROUNDED_MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    **MODELS,
    "stem": (Stem, lambda: torch.randn(1, 3, 30, 26)),
    "gray": (Gray, lambda: torch.randn(2, 1, 9, 14)),
}
ROUNDED = {
    "residual in bfloat16": Rounded("residual", torch.bfloat16, "packed_image", 5e-3),
    "encoder in bfloat16": Rounded("encoder", torch.bfloat16, error=2e-2),
    "stem in float16": Rounded("stem", torch.float16, "packed_image"),
    "gray in float16": Rounded("gray", torch.float16, "packed_image"),
    "residual in tf32": Rounded("residual", contains="packed_image"),
    "encoder in tf32": Rounded("encoder", contains="tf32"),
    "gray in tf32": Rounded("gray", contains="packed_image"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", ROUNDED)
def test_a_rounded_model_stays_close_to_float64(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    case = ROUNDED[name]
    build, draw = ROUNDED_MODELS[case.model]
    module, x = build().eval().to(case.dtype), draw()
    x = x.to(case.dtype) if x.is_floating_point() else x
    products = "tf32" if case.dtype is torch.float32 else "exact"
    context = make_context(tmp_path)
    captured = capture_module(module, x, target=TARGET, optimize={"float32_products": products})
    tuned = tune(optimized(captured, context), context)
    (found,) = execute(tuned.module, captured.inputs)
    with torch.inference_mode():
        exact = module.double()(x.double() if x.is_floating_point() else x).numpy()

    functions = {
        str(variable.name_hint): function
        for variable, function in tuned.module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }
    assert case.contains in lower_for_gpu(functions, GPU).source
    error = np.linalg.norm(found.astype(np.float64) - exact) / np.linalg.norm(exact)
    assert error < case.error
