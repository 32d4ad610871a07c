from pathlib import Path

import pytest
import torch
import tvm
from stage_samples import Function, capture_module, make_context, optimized
from torch import nn

from bessemer.contract.report import FunctionTime
from worker.compiler.codegen.flops import find_products
from worker.compiler.pipeline.benchmark import count_products


def products(module: nn.Module, tmp_path: Path, *inputs: torch.Tensor) -> list[tuple[int, str]]:
    ready = optimized(capture_module(module, *inputs), make_context(tmp_path)).module
    functions = (entry for _, entry in ready.functions_items() if isinstance(entry, tvm.tirx.PrimFunc))
    return [(product.flops, product.shapes) for entry in functions for product in find_products(entry)]


def test_a_matrix_product_has_two_operations_for_each_pair(tmp_path: Path) -> None:
    module = Function(lambda self, x, y: torch.relu(x @ y))
    found = products(module, tmp_path, torch.randn(5, 7), torch.randn(7, 3))
    assert found == [(2 * 5 * 7 * 3, "5x7 · 7x3 → 5x3")]


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_counts_every_tap_of_its_windows(stride: int, tmp_path: Path) -> None:
    module = nn.Conv2d(16, 32, 3, padding=1, stride=stride)
    ((flops, _),) = products(module, tmp_path, torch.randn(1, 16, 6, 6))
    assert flops == 2 * (6 // stride) ** 2 * 32 * 16 * 9


def test_a_transposed_convolution_counts_the_taps_that_are_met(tmp_path: Path) -> None:
    module = nn.ConvTranspose2d(16, 32, 2, stride=2)
    ((flops, _),) = products(module, tmp_path, torch.randn(1, 16, 6, 6))
    assert flops == 2 * 6 * 6 * 32 * 16 * 4


@pytest.mark.parametrize(
    "body", [lambda self, x: torch.softmax(x, 1), lambda self, x: (x * x).sum(1)], ids=["softmax", "squares"]
)
def test_other_sums_do_not_count_as_products(body: object, tmp_path: Path) -> None:
    assert products(Function(body), tmp_path, torch.randn(4, 8)) == []  # type: ignore[arg-type]


def test_a_function_is_counted_for_each_of_its_calls(tmp_path: Path) -> None:
    module = nn.Linear(8, 4)
    ready = optimized(capture_module(module, torch.randn(2, 8)), make_context(tmp_path)).module
    time = FunctionTime(name="fused_linear_add", calls=3, milliseconds=1.0, share=0.5)
    other = time.model_copy(update={"name": "runtime"})
    counted, left = count_products((time, other), ready)
    assert counted.flops >= 3 * 2 * 2 * 8 * 4
    assert left == other
