"""Quantized models are computed as torch computes them, by bytes where the processor multiplies bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from platform_samples import preset
from quantized_samples import (
    BYTE,
    UNSIGNED,
    Q,
    QuantizedConvolution,
    QuantizedLinear,
    Through,
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
from tvm import relax, tirx
from tvm.ir import GenericConst

from worker.compiler.checking.precision import computed_dtypes
from worker.compiler.codegen.generate import write_object
from worker.compiler.quantized_operators import IMPLEMENTATIONS, NAMESPACE
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.target import ResolvedTarget
from worker.compiler.values import Captured, StageContext

X = torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
ROWS = torch.arange(1, 7)[:, None] / 100
SHIFTS = torch.arange(-3, 3)[:, None]
ONE_SCALE, ONE_SHIFT = torch.tensor([0.05], dtype=torch.float64), torch.tensor([3])
BY_ROW = bytes_of(X)
GROUPS = (torch.arange(1, 25).reshape(6, 4) / 500, torch.arange(-12, 12, dtype=torch.int32).reshape(6, 4))

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


@pytest.mark.parametrize("overload", IMPLEMENTATIONS)
def test_an_operator_is_computed_as_by_torch(overload: str) -> None:
    name, _, variant = overload.partition(".")
    operator = getattr(getattr(torch.ops, NAMESPACE), name)

    expected = getattr(operator, variant)(*CALLS[overload])
    found = IMPLEMENTATIONS[overload](*CALLS[overload])

    torch.testing.assert_close(found, expected, rtol=0, atol=0)


THROUGH: dict[str, Through] = {
    "unsigned bytes": unsigned,
    "signed bytes": signed,
    "no zero point": symmetric,
    "the range of the tensor": dynamic,
    "the range of each row": by_token,
    "weights alone": unchanged,
}


def perceptron(through: Through, zero_point: int = 0) -> nn.Module:
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


def constants(captured: Captured, context: StageContext) -> list[str]:
    """The dtypes of the matrices of a model's library."""
    found: list[str] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, GenericConst) and len(expression.value.shape) > 1:
            found.append(str(expression.value.dtype))

    for function in optimized(captured, context).module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return sorted(found)


@pytest.mark.parametrize("mcpu", ["x86-64-v3", "cascadelake", "emeraldrapids"])
@pytest.mark.parametrize("name", THROUGH)
def test_the_library_holds_weights_as_bytes(name: str, mcpu: str, context: StageContext) -> None:
    captured = capture_module(perceptron(THROUGH[name]), X, target=target(mcpu))

    assert constants(captured, context) == ["int8", "int8"]


def test_the_library_holds_kernels_as_bfloat16_where_tiles_multiply_them(context: StageContext) -> None:
    model = nn.Sequential(QuantizedConvolution(3, 32), QuantizedConvolution(32, 64))
    captured = capture_module(model, torch.randn(1, 3, 12, 12), target=target("emeraldrapids"))

    kernels = [dtype for dtype in constants(captured, context) if dtype != "float32"]

    assert kernels == ["bfloat16"]


@pytest.mark.parametrize(
    ("name", "platform", "instruction"),
    [
        *((name, target("cascadelake"), "vpdpbusd") for name in THROUGH if name != "weights alone"),
        ("signed bytes", preset("neoverse-n1"), "sdot"),
        ("unsigned bytes", preset("neoverse-n1"), "sdot"),
        ("signed bytes", preset("neoverse-v1"), "smmla"),
        ("unsigned bytes", preset("neoverse-v1"), "usmmla"),
    ],
)
def test_bytes_are_multiplied_by_the_instruction_of_the_processor(
    name: str, platform: ResolvedTarget, instruction: str, context: StageContext, tmp_path: Path
) -> None:
    captured = capture_module(perceptron(THROUGH[name]), X, target=platform)
    llvm = captured.upload.target.llvm
    module = schedule_rest(optimized(captured, context).module, llvm)
    linear = [
        function.with_attr("global_symbol", str(variable.name_hint))
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and "linear" in str(variable.name_hint)
    ]

    for number, function in enumerate(linear):
        write_object(tvm.IRModule({"main": function}), llvm, tmp_path / f"{number}.o", with_sources=True)

    assert len(linear) == 2
    assert all(f"\t{instruction}\t" in (tmp_path / f"{number}.s").read_text() for number in range(2))


@pytest.mark.parametrize("name", ["unsigned bytes", "signed bytes", "no zero point"])
def test_the_kernel_of_bytes_also_corrects_and_scales_its_sums(name: str, context: StageContext) -> None:
    captured = capture_module(perceptron(THROUGH[name]), X, target=target("cascadelake"))

    functions = optimized(captured, context).module.get_global_vars()

    kernels = [name for each in functions if "linear" in (name := str(each.name_hint))]
    assert all(re.search(r"linear\d*_subtract\d*_cast", kernel) for kernel in kernels)
    assert len(kernels) == 2


def of_torchao(m: Any, x: torch.Tensor) -> torch.Tensor:
    """What torchao's ``quantize_`` computes, with its own operators decomposed."""
    scale = x.abs().amax(1, keepdim=True) / 127
    values = (x / scale).round().clamp(-128, 127).to(torch.int8)
    return torch._int_mm(values, m.layer.values.t()) * scale * m.layer.scales


def of_torchao_by_weights(m: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, m.layer.values.t().to(x.dtype)) * m.layer.scales


@pytest.mark.parametrize("body", [of_torchao, of_torchao_by_weights])
@pytest.mark.parametrize("mcpu", [TARGET.mcpu, "x86-64-v3"])
def test_products_without_dequantized_factors_are_right(
    body: Callable[..., torch.Tensor], mcpu: str, context: StageContext
) -> None:
    model = Function(body, layer=QuantizedLinear(64, 32, unchanged))
    captured = capture_module(model, torch.randn(24, 64), target=target(mcpu))

    compile_and_verify(captured, context)

    assert "int8" in constants(captured, context)


@pytest.mark.parametrize(
    "left",
    [
        lambda x: (x.to(torch.uint8).float() - 127.5) / 127.5,
        lambda x: (x.to(torch.uint8).float() - 300) / 127,
        lambda x: (x.to(torch.uint8).float() - torch.arange(64)) / 127,
        lambda x: x.to(torch.uint8).float() * torch.linspace(0.1, 1, 64),
        lambda x: x.to(torch.uint8).float() * 1e-38,
        lambda x: x.to(torch.int8).float(),
        lambda x: (x.to(torch.int8).double() * 0.1).float(),
        lambda x: (x[0].to(torch.int8).float() - 3) * torch.full((6, 1), 0.1),
    ],
    ids=["a half", "no byte", "by column", "scaled by column", "tiny", "no scale", "float64", "broadcast"],
)
def test_other_products_of_bytes_are_right(
    left: Callable[[torch.Tensor], torch.Tensor], context: StageContext
) -> None:
    model = nn.Sequential(Function(lambda _, x: left(x * 9)), QuantizedLinear(64, 8, unchanged))

    compile_and_verify(capture_module(model, X.abs()), context)


FAKE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a tensor": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.05, 3, -128, 127),
    "a channel": lambda x: torch.fake_quantize_per_channel_affine(
        x, ROWS[:, 0], SHIFTS[:, 0].int(), 0, -128, 127
    ),
    "parameters": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor(0.05), torch.tensor(3, dtype=torch.int32), 0, 255
    ),
}


@pytest.mark.parametrize("name", FAKE)
def test_fake_quantization_is_right(name: str, context: StageContext) -> None:
    body = FAKE[name]

    compile_and_verify(capture_module(Function(lambda _, x: body(x)), X), context)


@pytest.mark.parametrize("number", [3.0, 3.5, 1e9, float("nan")])
def test_a_zero_point_that_is_an_input_may_be_any_number(number: float, context: StageContext) -> None:
    model = Function(
        lambda m, x, z: m.layer((x.to(torch.uint8).float() - z) * 0.02),
        layer=QuantizedLinear(64, 8, unchanged),
    )
    values = (X.abs() * 40, torch.full((6, 1), number))

    compile_and_verify(capture_module(model, *values), context)


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
