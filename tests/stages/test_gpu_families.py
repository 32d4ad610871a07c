"""Every family of schedules for GPUs computes what torch computes, each access of its threads checked."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm
from stage_samples import Function, capture_module, make_context, optimized
from torch import nn
from torch.nn import functional

from bessemer.contract.target import PresetTarget, resolve_target
from tests.gpu.faults import Fault, KernelFault
from tests.gpu.intrinsics import INTRINSICS
from tests.gpu.run import assert_close, execute
from worker.compiler.pipeline.tune import tune
from worker.compiler.values import Captured

TARGET = resolve_target(PresetTarget(preset="cuda-sm_90"), "", 1)
BARRIER = "tvm_storage_sync"
Body = Callable[[torch.Tensor], torch.Tensor]

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(64, 48), (20, 64)),
    "linear of odd sizes": (lambda: nn.Linear(33, 47), (21, 33)),
    "convolution": (lambda: nn.Conv2d(6, 9, 3, 1, 2, 2), (2, 6, 12, 12)),
    "convolution of one pixel": (lambda: nn.Conv2d(32, 48, 1), (1, 32, 14, 14)),
    "convolution with stride": (lambda: nn.Conv2d(3, 16, 5, 2, 2), (1, 3, 20, 20)),
    "convolution of groups": (lambda: nn.Conv2d(8, 12, 3, 1, 1, 1, 4), (2, 8, 12, 12)),
    "depthwise convolution": (lambda: nn.Conv2d(8, 8, 5, 2, 2, groups=8), (1, 8, 17, 17)),
    "convolution of sequences": (lambda: nn.Conv1d(6, 9, 5, 2, 2), (2, 6, 40)),
    "convolution of volumes": (lambda: nn.Conv3d(3, 4, 3), (1, 3, 6, 7, 8)),
    "transposed convolution": (lambda: nn.ConvTranspose1d(6, 4, 4, 2, 1), (1, 6, 13)),
    "maximum of windows": (lambda: nn.MaxPool3d(2), (1, 2, 8, 8, 8)),
    "mean of windows": (lambda: nn.AvgPool2d(3, 2, 1), (1, 3, 15, 15)),
    "normalization of groups": (lambda: nn.GroupNorm(2, 8), (2, 8, 9, 9)),
    "normalization of rows": (lambda: nn.LayerNorm(96), (2, 7, 96)),
    "normalization of long rows": (lambda: nn.LayerNorm(300), (4, 300)),
    "recurrent layer": (lambda: nn.GRU(12, 16, batch_first=True), (1, 4, 12)),
}

FUNCTIONS: dict[str, tuple[Body, tuple[int, ...]]] = {
    "batches of products": (lambda x: torch.einsum("bij,bkj->bik", x, x), (3, 20, 30)),
    "attention": (lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True), (1, 2, 40, 32)),
    "softmax": (lambda x: functional.softmax(x, 1), (3, 7, 50)),
    "softmax of long rows": (lambda x: functional.softmax(x, -1), (3, 5000)),
    "variance": (lambda x: x.var(1), (5, 600)),
    "maximum's index": (lambda x: x.argmax(-1), (5, 600)),
    "running sum": (lambda x: x.cumsum(1), (5, 60)),
    "elements": (lambda x: torch.where(x > 0, x.sin(), functional.gelu(x)), (100, 33)),
    "integers": (lambda x: ((x * 100).int() // 7 % 5) ^ 3, (3, 32)),
    "reflection": (lambda x: functional.pad(x, (2, 3), mode="reflect"), (2, 3, 20)),
    "gathered elements": (lambda x: x.gather(1, (x[:, :5] * 3).long().abs() % 33), (3, 33)),
    "scattered elements": (
        lambda x: torch.zeros(3, 40).scatter_add(1, (x * 3).long().abs() % 40, x),
        (3, 33),
    ),
}


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")  # torch's, of recurrent layers
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_torch_computes(name: str, tmp_path: Path) -> None:
    build, shape = LAYERS[name]
    _check(build, shape, tmp_path)


@pytest.mark.sampled
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_computes_what_torch_computes(name: str, tmp_path: Path) -> None:
    body, shape = FUNCTIONS[name]
    _check(lambda: Function(lambda _, x: body(x)), shape, tmp_path)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["linear", "convolution", "normalization of rows"])
def test_a_layer_of_16_bits_computes_what_torch_computes(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    build, shape = LAYERS[name]
    _check(lambda: build().to(dtype), shape, tmp_path, dtype, 3e-2)


@pytest.mark.parametrize("name", ["linear", "normalization of long rows", "normalization of groups"])
def test_each_barrier_of_a_schedule_is_missed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, shape = LAYERS[name]
    module, captured = _tuned(build, shape, tmp_path)
    translate = INTRINSICS[BARRIER]

    def execute_without(removed: int | None) -> int:
        numbers = count()

        def translate_others(translator: Any, node: Any) -> Any:
            return (lambda _: None) if next(numbers) == removed else translate(translator, node)

        monkeypatch.setitem(INTRINSICS, BARRIER, translate_others)
        execute(module, captured.inputs)
        return next(numbers)

    barriers = execute_without(None)
    assert barriers > 0
    for removed in range(barriers):
        with pytest.raises(KernelFault) as caught:
            execute_without(removed)
        assert caught.value.fault is Fault.RACE


def _check(
    build: Callable[[], nn.Module],
    shape: tuple[int, ...],
    folder: Path,
    dtype: torch.dtype = torch.float32,
    tolerance: float = 1e-4,
) -> None:
    module, captured = _tuned(build, shape, folder, dtype)
    outputs = execute(module, captured.inputs)
    for found, expected in zip(outputs, captured.references, strict=True):
        assert_close(found, expected, tolerance)


def _tuned(
    build: Callable[[], nn.Module], shape: tuple[int, ...], folder: Path, dtype: torch.dtype = torch.float32
) -> tuple[tvm.IRModule, Captured]:
    torch.manual_seed(0)
    context = make_context(folder)
    captured = capture_module(build(), torch.randn(shape).to(dtype), target=TARGET)
    return tune(optimized(captured, context), context).module, captured
