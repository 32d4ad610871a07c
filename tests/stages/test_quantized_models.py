"""Quantized models are computed as torch computes them, by bytes where the processor multiplies bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from quantized_samples import (
    BYTE,
    UNSIGNED,
    Q,
    QuantizedConvolution,
    QuantizedLinear,
    by_token,
    bytes_of,
    dynamic,
    signed,
    symmetric,
    unchanged,
    unsigned,
)
from stage_samples import TARGET, Function, capture_module, compile_and_verify, optimized
from torch import nn
from tvm import relax
from tvm.ir import GenericConst

from worker.compiler.checking.precision import computed_dtypes
from worker.compiler.quantized_operators import COMPUTED, NAMESPACE
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.target import ResolvedTarget
from worker.compiler.values import StageContext

X = torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
ROWS = torch.arange(1, 7)[:, None] / 100
SHIFTS = torch.arange(-3, 3)[:, None]
ONE_SCALE, ONE_SHIFT = torch.tensor([0.05], dtype=torch.float64), torch.tensor([3])
BY_ROW = bytes_of(X)
GROUPS = (torch.rand(6, 4) / 50 + 0.01, torch.randint(-5, 5, (6, 4), dtype=torch.int32))

CALLS: dict[str, tuple[Any, ...]] = {
    "quantize_per_tensor.default": (X, 0.05, 3, *BYTE),
    "quantize_per_tensor.tensor": (X, ONE_SCALE, ONE_SHIFT, *UNSIGNED),
    "quantize_per_tensor.tensor2": (X, ONE_SCALE, ONE_SHIFT, torch.tensor(-8), torch.tensor(7), torch.int8),
    "quantize_per_channel.default": (X, ROWS[:, 0], SHIFTS[:, 0], 0, *BYTE),
    "quantize_per_token.default": (X, ROWS.double(), SHIFTS, *BYTE),
    "quantize_per_channel_group.default": (X, *GROUPS, *BYTE, 16),
    "dequantize_per_tensor.default": (BY_ROW.values, 0.05, 3, *BYTE),
    "dequantize_per_tensor.tensor": (BY_ROW.values, ONE_SCALE, ONE_SHIFT, *BYTE),
    "dequantize_per_tensor.tensor2": (
        BY_ROW.values,
        ONE_SCALE,
        ONE_SHIFT,
        torch.tensor(-128),
        torch.tensor(127),
        torch.int8,
    ),
    "dequantize_per_channel.default": (BY_ROW.values, BY_ROW.scales, SHIFTS[:, 0], 0, *BYTE),
    "dequantize_per_token.default": (BY_ROW.values, ROWS.double(), SHIFTS, *BYTE, torch.float32),
    "dequantize_per_channel_group.default": (BY_ROW.values, *GROUPS, *BYTE, 16, torch.float32),
    "fake_quant_per_channel.default": (X, ROWS[:, 0], SHIFTS[:, 0].int(), 0, -128, 127),
    "choose_qparams.tensor": (X, -128, 127, 1e-5, torch.int8),
    "choose_qparams_symmetric.tensor": (X, -127, 127, 1e-5, torch.uint8),
    "choose_qparams_per_token.default": (X, torch.int8),
    "choose_qparams_per_token_asymmetric.default": (X, torch.int8),
    "convert_element_type.no_fuse": (X, torch.float16),
}


@pytest.mark.parametrize("overload", COMPUTED)
def test_an_operator_is_computed_as_by_torch(overload: str) -> None:
    name, _, variant = overload.partition(".")
    operator = getattr(getattr(torch.ops, NAMESPACE), name)

    expected = getattr(operator, variant)(*CALLS[overload])
    found = COMPUTED[overload](*CALLS[overload])

    torch.testing.assert_close(found, expected, rtol=0, atol=0)


THROUGH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "unsigned bytes": unsigned,
    "signed bytes": signed,
    "no zero point": symmetric,
    "the range of the tensor": dynamic,
    "the range of each row": by_token,
    "weights alone": unchanged,
}


def perceptron(through: Callable[[torch.Tensor], torch.Tensor], zero_point: int = 0) -> nn.Module:
    first = QuantizedLinear(64, 96, through, zero_point)
    return nn.Sequential(first, nn.ReLU(), QuantizedLinear(96, 10, through, zero_point))


@pytest.mark.parametrize("name", THROUGH)
@pytest.mark.parametrize("rows", [1, 40])
def test_quantized_linear_layers_are_right(name: str, rows: int, context: StageContext) -> None:
    x = torch.randn(rows, 64)

    compile_and_verify(capture_module(perceptron(THROUGH[name]), x), context)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(QuantizedConvolution(3, 32), nn.ReLU(), QuantizedConvolution(32, 64), nn.ReLU()),
        nn.Sequential(QuantizedConvolution(3, 32), QuantizedConvolution(32, 32, groups=32)),
        nn.Sequential(QuantizedConvolution(3, 64, rank=1), nn.ReLU(), QuantizedConvolution(64, 32, rank=1)),
    ],
    ids=["dense", "depthwise", "one dimension"],
)
def test_quantized_convolutions_are_right(model: nn.Sequential, context: StageContext) -> None:
    image = torch.randn(1, 3, *([12] * (len(model[0].values.shape) - 2)))

    compile_and_verify(capture_module(model, image), context)


def target(mcpu: str) -> ResolvedTarget:
    return ResolvedTarget(name=mcpu, kind="llvm", mcpu=mcpu, triple=TARGET.triple, features=(), cores=2)


def constants(captured: Any, context: StageContext) -> list[str]:
    """The dtypes of the matrices of a model's library."""
    found: list[str] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, GenericConst) and len(expression.value.shape) > 1:
            found.append(str(expression.value.dtype))

    for function in optimized(captured, context).module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return found


@pytest.mark.parametrize("mcpu", ["x86-64-v3", "cascadelake", "emeraldrapids"])
@pytest.mark.parametrize("name", THROUGH)
def test_the_library_holds_weights_as_bytes(name: str, mcpu: str, context: StageContext) -> None:
    captured = capture_module(perceptron(THROUGH[name]), X, target=target(mcpu))

    assert constants(captured, context) == ["int8", "int8"]


@pytest.mark.parametrize("name", [name for name in THROUGH if name != "weights alone"])
def test_bytes_are_multiplied_where_an_instruction_does_it(name: str, context: StageContext) -> None:
    captured = capture_module(perceptron(THROUGH[name]), X, target=target("cascadelake"))

    scheduled = schedule_rest(optimized(captured, context).module, captured.upload.target.llvm)

    assert "vpdpbusd" in scheduled.script()


def test_weights_with_a_zero_point_are_computed_as_floats(context: StageContext) -> None:
    captured = capture_module(perceptron(unsigned, zero_point=5), X)

    compile_and_verify(captured, context)

    assert constants(captured, context) == ["float32", "float32"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda _, x: unsigned(x) * 2, "bfloat16"),
        (lambda _, x: by_token(x).relu(), "bfloat16"),
        (lambda _, x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), "bfloat16"),
        (
            lambda _, x: Q.dequantize_per_tensor(
                Q.quantize_per_tensor(x, 0.1, 0, *BYTE).reshape(-1), 0.1, 0, *BYTE
            ),
            "bfloat16",
        ),
        (lambda m, x: m.layer(x), "float32"),
    ],
    ids=["per tensor", "per token", "fake", "moved", "weights alone"],
)
def test_what_is_computed_from_bytes_has_the_tolerance_of_bfloat16(
    body: Callable[..., torch.Tensor], expected: str
) -> None:
    captured = capture_module(Function(body, layer=QuantizedLinear(64, 8, unchanged)), X)

    assert [str(dtype) for dtype in computed_dtypes(captured)] == [expected]
    assert np.isfinite(captured.references[0]).all()
