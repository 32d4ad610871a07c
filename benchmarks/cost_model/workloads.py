"""The functions that the cost model learns from: those of models, and layers of drawn sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.relax_integration import extract_tasks

from examples.models import EXAMPLES
from worker.compiler.pipeline.optimize import default_phases
from worker.compiler.schedules.blocks import has_dynamic_sizes
from worker.compiler.schedules.default import is_scheduled
from worker.compiler.schedules.processors import machine_of

MODELS = ("cnn", "resnet18", "mobilenet_v2", "bert", "vit_tiny", "gpt2_block", "unet", "resnet50")
LAYERS = "layers"
_LAYERS_AT_ONCE = 4
_SIDES = (7, 10, 14, 20, 28, 40, 56)
_CHANNELS = (16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512)
_ROWS = (1, 2, 4, 8, 16, 32, 49, 64, 100, 128, 196, 197, 256)
_WIDTHS = (64, 96, 128, 192, 256, 320, 384, 512, 768, 1024)
_MOST_FLOPS = 2e8


class Source(NamedTuple):
    """A module of functions: of a model, or of layers; ``build`` gives it for a target."""

    name: str
    build: Callable[[tvm.target.Target], tvm.IRModule]


def sources(seed: int, layers: int) -> list[Source]:
    """Models and layers in turns, so that any beginning of the list has both."""
    draws = Random(seed)
    drawn = [_drawn_layers(draws, number) for number in range(layers)]
    models = [Source(name, _model(name)) for name in MODELS]
    every = max(1, len(drawn) // len(models))
    mixed: list[Source] = []
    for place, source in enumerate(drawn):
        mixed.append(source)
        if place % every == 0 and models:
            mixed.append(models.pop(0))
    return mixed + models


def functions_of(module: tvm.IRModule, target: tvm.target.Target) -> Iterator[tuple[str, tvm.IRModule]]:
    """The distinct functions of fixed sizes, each as ``main`` of a module, with their names."""
    for task in extract_tasks(module, target):
        function = task.dispatched[0]["main"]
        if not has_dynamic_sizes(function) and not is_scheduled(function):
            yield str(task.task_name), task.dispatched[0]


def _model(name: str) -> Callable[[tvm.target.Target], tvm.IRModule]:
    def build(target: tvm.target.Target) -> tvm.IRModule:
        example = EXAMPLES[name]
        return _optimized(_exported(example.build(), example.example_inputs()), target)

    return build


def _drawn_layers(draws: Random, number: int) -> Source:
    layers = [_draw(draws) for _ in range(_LAYERS_AT_ONCE)]

    def build(target: tvm.target.Target) -> tvm.IRModule:
        inputs = tuple(torch.zeros(shape) for _, shape in layers)
        return _optimized(_exported(_Beside([layer for layer, _ in layers]), inputs), target)

    return Source(f"{LAYERS}-{number}", build)


class _Beside(nn.Module):
    """Independent layers, each with an input of its own."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(given) for layer, given in zip(self.layers, inputs, strict=True))


def _draw(draws: Random) -> tuple[nn.Module, tuple[int, ...]]:
    """A layer and the shape of its input."""
    kinds = (_convolution, _convolution, _pointwise, _depthwise, _grouped, _linear, _linear, _norm)
    while True:
        layer, shape, flops = draws.choice(kinds)(draws)
        if flops <= _MOST_FLOPS:
            return layer, shape


Drawn = tuple[nn.Module, tuple[int, ...], float]


def _convolution(draws: Random) -> Drawn:
    inputs, outputs, side = draws.choice(_CHANNELS), draws.choice(_CHANNELS), draws.choice(_SIDES)
    taps, stride = draws.choice((3, 3, 3, 5)), draws.choice((1, 1, 2))
    layer = nn.Sequential(nn.Conv2d(inputs, outputs, taps, stride, taps // 2), nn.ReLU())
    return layer, (1, inputs, side, side), 2.0 * inputs * outputs * taps**2 * (side / stride) ** 2


def _pointwise(draws: Random) -> Drawn:
    inputs, outputs, side = draws.choice(_CHANNELS), draws.choice(_CHANNELS), draws.choice(_SIDES)
    stride = draws.choice((1, 1, 1, 2))
    layer = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride), nn.ReLU6())
    return layer, (1, inputs, side, side), 2.0 * inputs * outputs * (side / stride) ** 2


def _depthwise(draws: Random) -> Drawn:
    channels, side = draws.choice(_CHANNELS), draws.choice((*_SIDES, 112))
    taps, stride = draws.choice((3, 3, 5)), draws.choice((1, 1, 2))
    layer = nn.Sequential(nn.Conv2d(channels, channels, taps, stride, taps // 2, groups=channels), nn.ReLU6())
    return layer, (1, channels, side, side), 2.0 * channels * taps**2 * side**2


def _grouped(draws: Random) -> Drawn:
    channels, side = draws.choice((64, 96, 128, 192, 256)), draws.choice(_SIDES)
    groups = draws.choice((8, 16, 32))
    layer = nn.Sequential(nn.Conv2d(channels, channels, 3, 1, 1, groups=groups), nn.ReLU())
    return layer, (1, channels, side, side), 18.0 * channels**2 / groups * side**2


def _linear(draws: Random) -> Drawn:
    rows, inputs, outputs = draws.choice(_ROWS), draws.choice(_WIDTHS), draws.choice(_WIDTHS)
    layer = nn.Sequential(nn.Linear(inputs, outputs), draws.choice((nn.ReLU(), nn.GELU(), nn.Identity())))
    return layer, (rows, inputs), 2.0 * rows * inputs * outputs


def _norm(draws: Random) -> Drawn:
    rows, width = draws.choice(_ROWS), draws.choice(_WIDTHS)
    return draws.choice((nn.LayerNorm(width), nn.Softmax(-1))), (rows, width), 10.0 * rows * width


def _exported(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tvm.IRModule:
    program = torch.export.export(model.eval(), inputs)
    return relax.transform.DecomposeOpsForInference()(from_exported_program(program))


def _optimized(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    with target, tvm.transform.PassContext(opt_level=3):
        for phase in default_phases(machine_of(target)):
            for step in phase.passes:
                module = step(module)
    return module


def arguments_of(module: tvm.IRModule) -> list[tvm.runtime.Tensor]:
    """Drawn numbers for the parameters of ``main``; zeros for integers, which may be indices."""
    draws = np.random.default_rng(1)
    found = []
    for kind in ArgInfo.from_entry_func(module):
        shape, dtype = [int(size) for size in kind.shape], str(kind.dtype)
        drawn = draws.standard_normal(shape) if dtype.startswith("float") else np.zeros(shape)
        found.append(tvm.runtime.tensor(drawn.astype(dtype)))
    return found
