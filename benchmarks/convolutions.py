"""Times convolutions, direct and by Winograd's algorithm, in alternation: ``make bench-convolutions``.

Convolutions have 3x3 taps, or 3 taps for sequences. LAYERS="64x56x64" selects other layers: input channels,
pixels of a side, output channels; "64x1x3000x64" is a sequence: input channels, 1, pixels, output channels.
Prints for each layer the median time of its kernel, the median ratio of neighboring runs' times per tile, and
what the processor's model chooses. All sides run in this process, so their threads do not disturb each other.
Before each run, one thread reads as many bytes as a model's other weights have, so that the layer's own
weights come from memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax

from worker.compiler.codegen.executable import build_library
from worker.compiler.layout.blocked import convolution_rule
from worker.compiler.pipeline.optimize import default_phases
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.schedules.families.convolution import layers
from worker.compiler.schedules.families.convolution.conv2d import ConvolutionShape
from worker.compiler.schedules.families.convolution.winograd_plan import WinogradShape, faster_by_winograd
from worker.compiler.schedules.families.convolution.winograd_points import POINTS, TAPS
from worker.compiler.schedules.processors import Machine, machine_of
from worker.compiler.target import host_mcpu, host_triple

LAYERS = ("64x56x64", "128x28x128", "256x14x256", "512x7x512", "80x1x3000x512", "256x1x500x256")
"""The four of ResNet-18, Whisper's first, and one of a text-to-speech model."""
ROUNDS = 40
OTHERS_BYTES = 1 << 26
"""The bytes that are read between two runs: in a model, the other layers' weights fill the caches."""
DIRECT = 0
_CLOCK = process_time if len(os.sched_getaffinity(0)) == 1 else perf_counter
"""With one thread, processor time leaves out other processes."""


class Layer(NamedTuple):
    """A convolution with a border, a bias and a ReLU."""

    inputs: int
    sizes: tuple[int, ...]
    outputs: int


def _layer(text: str) -> Layer:
    inputs, *sizes, outputs = map(int, text.split("x"))
    return Layer(inputs, tuple(sizes * 2 if len(sizes) == 1 else sizes[1:]), outputs)


def main(texts: tuple[str, ...]) -> None:
    """Print a line for each layer."""
    cores = len(os.sched_getaffinity(0))
    host = {"kind": "llvm", "mtriple": host_triple(), "mcpu": host_mcpu(), "num-cores": cores}
    target = tvm.target.Target(host)
    tiles = "  ".join(f"F({side}x{side})/direct" for side in POINTS)
    print(f"layer          direct us  {tiles}  chosen")
    for text in texts:
        layer = _layer(text)
        with TemporaryDirectory() as folder:
            times = _times(layer, target, Path(folder))
        ratios = [
            f"{median(ours / theirs for ours, theirs in zip(times[side], times[DIRECT], strict=True)):14.2f}"
            for side in POINTS
        ]
        chosen = [shape.side for shape in _candidates(layer, machine_of(target))]
        name = f"F({chosen[0]}x{chosen[0]})" if chosen else "direct"
        print(f"{text:14} {median(times[DIRECT]) * 1e6:9.0f}  {'  '.join(ratios)}  {name}", flush=True)


def _times(layer: Layer, target: tvm.target.Target, folder: Path) -> dict[int, list[float]]:
    """Seconds of the kernel's runs, direct and by the sides of tiles."""
    draws = np.random.default_rng(0)
    pixels = draws.standard_normal((1, layer.inputs, *layer.sizes)).astype(np.float32)
    times: dict[int, list[float]] = {}
    machines = []
    for side in (DIRECT, *POINTS):
        times[side] = []
        with _forced(side):
            machine = relax.VirtualMachine(_compiled(layer, target, folder / f"{side}.so"), tvm.cpu())
        machine.set_instrument(partial(_record, times[side]))
        machines.append(machine)
    image, others = tvm.runtime.tensor(pixels), np.ones(OTHERS_BYTES // 4, np.float32)
    for _ in range(ROUNDS):
        for machine in machines:
            others.sum()
            machine["main"](image)
    return {side: _differences(moments) for side, moments in times.items()}


def _record(moments: list[float], _function: Any, name: str, *_rest: Any) -> None:
    """Note when a kernel begins and ends."""
    if "conv" in str(name):
        moments.append(_CLOCK())


def _differences(moments: list[float]) -> list[float]:
    return [end - start for start, end in zip(moments[::2], moments[1::2], strict=True)]


@contextmanager
def _forced(side: int) -> Iterator[None]:
    """Compute every convolution with tiles of this side, or directly."""

    def choose(direct: ConvolutionShape, machine: Machine) -> tuple[WinogradShape, ...]:
        found = faster_by_winograd(direct, machine, least_gain=float("inf"))
        return tuple(shape for shape in found if shape.side == side)

    original = convolution_rule.faster_by_winograd
    convolution_rule.faster_by_winograd = choose  # type: ignore[assignment]
    try:
        yield
    finally:
        convolution_rule.faster_by_winograd = original


def _candidates(layer: Layer, machine: Machine) -> tuple[WinogradShape, ...]:
    lanes = machine.lanes(32)
    inputs, outputs = -(-layer.inputs // lanes), -(-layer.outputs // lanes)
    height, width = (1, *layer.sizes)[-2:]
    known = layers.Layer(1, inputs, height, width, outputs, height, width, lanes, len(layer.sizes))
    return faster_by_winograd(known.direct, machine)


def _compiled(layer: Layer, target: tvm.target.Target, path: Path) -> tvm.runtime.Module:
    draws, dimensions = np.random.default_rng(1), len(layer.sizes)
    weights = draws.standard_normal((layer.outputs, layer.inputs, *(TAPS,) * dimensions)).astype(np.float32)
    bias = draws.standard_normal((1, layer.outputs, *(1,) * dimensions)).astype(np.float32)
    convolve = relax.op.nn.conv1d if dimensions == 1 else relax.op.nn.conv2d
    builder = relax.BlockBuilder()
    image = relax.Var("x", relax.TensorType((1, layer.inputs, *layer.sizes), "float32"))
    with builder.function("main", [image]):
        with builder.dataflow():
            sums = builder.emit(convolve(image, relax.const(weights), padding=(1,) * 2 * dimensions))
            biased = builder.emit(relax.op.add(sums, relax.const(bias)))
            result = builder.emit_output(relax.op.nn.relu(biased))
        builder.emit_func_output(result)
    module = builder.get()
    with target, tvm.transform.PassContext(opt_level=3):
        for phase in default_phases(machine_of(target)):
            for step in phase.passes:
                module = step(module)
    build_library(schedule_rest(module, target), target, path, path.with_suffix(".objects"))
    return tvm.runtime.load_module(str(path))


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or LAYERS)
