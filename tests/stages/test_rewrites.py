"""Rewrites on what torch exports: which forms they find, and what the report says of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from stage_samples import Function, Perceptron, capture_module, make_context
from torch import nn

from bessemer.contract.options import OptimizeOptions
from bessemer.contract.report import RewriteResult
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.translate import translate
from worker.compiler.values import Optimized

ROW = torch.linspace(0.5, 1.5, 8)
X = torch.linspace(-3, 3, 32).reshape(1, 4, 8)

Body = Callable[[Any, torch.Tensor], torch.Tensor]


def erf_product(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x * (0.5 * (1 + torch.erf(x * math.sqrt(0.5))))


def erf_quotient(_: Any, x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (torch.erf(x / math.sqrt(2)) + 1)


def tanh_power(_: Any, x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def tanh_products(_: Any, x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def tanh_growing(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 * (1 + torch.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x)))


def layer_norm_by_root(self: Any, x: torch.Tensor) -> torch.Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered / torch.sqrt(centered.pow(2).mean(-1, keepdim=True) + 1e-5) * self.row + self.row


def layer_norm_by_variance(self: Any, x: torch.Tensor) -> torch.Tensor:
    variance = x.var(-1, keepdim=True, unbiased=False)
    return self.row * (x - x.mean(-1, keepdim=True)) * torch.rsqrt(variance + 1e-5)


def plain_layer_norm(_: Any, x: torch.Tensor) -> torch.Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered * (centered * centered).mean(-1, keepdim=True).add(1e-5).rsqrt()


def rms_norm_scaled(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.row * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rms_norm_divided(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)


RECOGNIZED: dict[str, tuple[Body, str]] = {
    "gelu-erf-product": (erf_product, "gelu_erf"),
    "gelu-erf-quotient": (erf_quotient, "gelu_erf"),
    "gelu-tanh-power": (tanh_power, "gelu_tanh"),
    "gelu-tanh-products": (tanh_products, "gelu_tanh"),
    "gelu-tanh-growing": (tanh_growing, "gelu_tanh"),
    "layer-norm-root": (layer_norm_by_root, "layer_norm"),
    "layer-norm-variance": (layer_norm_by_variance, "layer_norm"),
    "layer-norm-plain": (plain_layer_norm, "layer_norm"),
    "rms-norm-scaled": (rms_norm_scaled, "rms_norm"),
    "rms-norm-divided": (rms_norm_divided, "rms_norm"),
}

NOT_QUITE: dict[str, Body] = {
    "gelu of another scale": lambda _, x: x * 0.5 * (1 + torch.erf(x * 0.9)),
    "gelu of another cube": lambda _, x: (
        0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.05 * x**3)))
    ),
    "norm along another axis": lambda _, x: x / torch.sqrt((x * x).mean(1, keepdim=True) + 1e-6),
    "norm of two tensors": lambda _, x: (
        (x.exp() - x.mean(-1, keepdim=True)) / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    ),
    "gelu with another dimension": lambda _, x: (
        x * torch.tensor([[[[0.5]]]]) * (1 + torch.erf(x * math.sqrt(0.5)))
    ),
    "norm with another dimension": lambda _, x: (
        x * ROW.reshape(1, 1, 1, 8) / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    ),
    "norm of one column": lambda _, x: (
        x[..., :1] * ROW / torch.sqrt(x[..., :1].pow(2).mean(-1, keepdim=True) + 1e-6)
    ),
    "mean of cubes": lambda _, x: x / torch.sqrt(x.pow(3).mean(-1, keepdim=True) + 1e-6),
}


def rewritten(tmp_path: Path, module: nn.Module, *inputs: torch.Tensor, **options: Any) -> Optimized:
    context = make_context(tmp_path)
    captured = capture_module(module, *inputs, optimize=OptimizeOptions(**options))
    return optimize(translate(captured, context), context)


def fired(optimized: Optimized) -> dict[str, int]:
    return {rewrite.name: rewrite.count for rewrite in optimized.rewrites if rewrite.count}


def result_of(optimized: Optimized, name: str) -> RewriteResult:
    (found,) = (rewrite for rewrite in optimized.rewrites if rewrite.name == name)
    return found


def calls(optimized: Optimized) -> list[str]:
    return re.findall(r"R\.call_tir\(cls\.(\w+)", optimized.module.script(show_meta=False))


def with_row(body: Body) -> nn.Module:
    return Function(body, row=nn.Parameter(ROW, requires_grad=False))


@pytest.mark.parametrize("name", RECOGNIZED)
def test_a_function_written_out_by_hand_is_recognized(name: str, tmp_path: Path) -> None:
    body, rewrite = RECOGNIZED[name]

    optimized = rewritten(tmp_path, with_row(body), X)

    assert fired(optimized) == {rewrite: 1}
    assert len(calls(optimized)) == 1


@pytest.mark.parametrize("name", NOT_QUITE)
def test_a_function_that_differs_slightly_is_left_alone(name: str, tmp_path: Path) -> None:
    assert fired(rewritten(tmp_path, Function(NOT_QUITE[name]), X)) == {}


def test_a_place_names_operator_module_and_line(tmp_path: Path) -> None:
    class Written(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return erf_product(self, x)

    (place,) = result_of(rewritten(tmp_path, nn.Sequential(Written()), X), "gelu_erf").places

    assert (place.operator, place.module_path, place.file) == ("aten.mul.Tensor", "0", __file__)
    assert place.line is not None


def test_a_disabled_rewrite_does_not_run(tmp_path: Path) -> None:
    optimized = rewritten(tmp_path, Function(erf_product), X, disable=("gelu_erf",))

    assert "gelu_erf" not in {rewrite.name for rewrite in optimized.rewrites}


def test_without_fusion_every_operator_is_a_function(tmp_path: Path) -> None:
    optimized = rewritten(tmp_path, Perceptron(), torch.randn(1, 16), enable=("linear",), fusion="none")

    assert calls(optimized) == ["linear", "add", "relu", "linear1", "add1"]
    assert fired(optimized) == {}


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [layer(x).view(1, 6, 2, 8).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        return nn.functional.scaled_dot_product_attention(*heads)


def test_attention_reads_the_parts_of_joint_projections(tmp_path: Path) -> None:
    optimized = rewritten(tmp_path, SelfAttention(), torch.randn(1, 6, 16), enable=("projections",))

    assert fired(optimized) == {"projections": 1, "attention": 1}
    assert calls(optimized) == ["fused_linear_add", "attention"]
    assert result_of(optimized, "attention").places[0].operator == (
        "aten.scaled_dot_product_attention.default"
    )
