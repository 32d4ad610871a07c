"""Times grouped 3x3 convolutions beside other runtimes in alternation, on one thread: ``make bench-grouped``.

LAYERS="128x56x32 256x56x32x2" selects other layers: channels, pixels of a side, groups, and, if not 1, the
stride. Each is a model of one convolution and a ReLU, from plain image to plain image. Prints for each layer
the median processor time and the median ratio of ours to that of the same convolution as a dense one with
merged groups, of ONNX Runtime, and of OpenVINO. All sides run in this process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import NamedTuple

import numpy as np
import onnxruntime
import openvino
import torch
import tvm
from torch import nn
from tvm import relax

from worker.compiler.codegen.executable import build_library
from worker.compiler.layout.blocked import convolution_rule
from worker.compiler.pipeline.optimize import default_phases
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.schedules.processors import machine_of
from worker.compiler.target import host_mcpu, host_triple

LAYERS = ("128x56x32", "256x56x32x2", "256x28x32", "512x28x32x2", "512x14x32", "1024x14x32x2", "1024x7x32")
"""The layers of ResNeXt-50."""
OURS, MERGED = "ours", "merged"
ROUNDS = 30
_ROUND_SECONDS = 5e-3
_TOLERANCE = 1e-5

Call = Callable[[], object]


class Layer(NamedTuple):
    """A convolution of 3x3 taps with a border and a bias, and a ReLU."""

    channels: int
    size: int
    groups: int
    stride: int = 1

    def module(self) -> nn.Module:
        """The layer with the same weights every time."""
        torch.manual_seed(0)
        convolution = nn.Conv2d(self.channels, self.channels, 3, self.stride, 1, groups=self.groups)
        return nn.Sequential(convolution, nn.ReLU()).eval()


def main(layers: tuple[str, ...]) -> None:
    """Print a line for each layer."""
    torch.set_num_threads(1)
    target = tvm.target.Target(
        {
            "kind": "llvm",
            "mtriple": host_triple(),
            "mcpu": host_mcpu(),
            "num-cores": len(os.sched_getaffinity(0)),
        }
    )
    print("layer             ours us  GFLOP/s  of merged  of ONNX Runtime  of OpenVINO")
    for text in layers:
        layer = Layer(*map(int, text.split("x")))
        image = torch.randn(1, layer.channels, layer.size, layer.size)
        with TemporaryDirectory() as folder:
            sides = _sides(layer, image, target, Path(folder))
            times = _times(sides)
        others = [
            median(ours / theirs for ours, theirs in zip(times[OURS], times[name], strict=True))
            for name in times
            if name != OURS
        ]
        ours = median(times[OURS])
        flops = 2 * 9 * layer.channels**2 // layer.groups * (-(-layer.size // layer.stride)) ** 2
        ratios = "  ".join(f"{ratio:11.2f}" for ratio in others)
        print(f"{text:15} {ours * 1e6:9.0f} {flops / ours / 1e9:8.0f}  {ratios}", flush=True)


def _sides(layer: Layer, image: torch.Tensor, target: tvm.target.Target, folder: Path) -> dict[str, Call]:
    """All runtimes of a layer, whose outputs agree."""
    module, pixels = layer.module(), image.numpy()
    path = folder / "model.onnx"
    torch.onnx.export(module, (image,), str(path), dynamo=False)
    ours = _compiled(layer, target, folder / "ours.so")
    with _without_bundles():
        merged = _compiled(layer, target, folder / "merged.so")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: pixels}
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": 1,
    }
    core = openvino.Core()
    request = core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()
    request.set_input_tensor(0, openvino.Tensor(pixels))
    given, expected = tvm.runtime.tensor(pixels), module(image).detach().numpy()
    for machine in (ours, merged):
        error = np.abs(machine["main"](given).numpy() - expected).max() / np.abs(expected).max()
        if not error <= _TOLERANCE:
            raise SystemExit(f"{layer}: the output differs from torch's by {error:.1e}")
    return {
        OURS: partial(ours["main"], given),
        MERGED: partial(merged["main"], given),
        "ONNX Runtime": partial(session.run, None, feed),
        "OpenVINO": partial(request.infer, share_outputs=True),
    }


def _times(sides: dict[str, Call]) -> dict[str, list[float]]:
    """Seconds of processor time of a run, by round."""
    runs = {name: max(1, int(_ROUND_SECONDS / _seconds(call, 3))) for name, call in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, call in sides.items():
            times[name].append(_seconds(call, runs[name]))
    return times


def _seconds(call: Call, runs: int) -> float:
    call()
    start = process_time()
    for _ in range(runs):
        call()
    return (process_time() - start) / runs


@contextmanager
def _without_bundles() -> Iterator[None]:
    original = convolution_rule.prefers_bundles
    convolution_rule.prefers_bundles = lambda *_: False  # type: ignore[assignment]
    try:
        yield
    finally:
        convolution_rule.prefers_bundles = original


def _compiled(layer: Layer, target: tvm.target.Target, path: Path) -> relax.VirtualMachine:
    convolution = layer.module()[0]  # type: ignore[index]
    weights, bias = (each.detach().numpy() for each in (convolution.weight, convolution.bias))
    builder = relax.BlockBuilder()
    shape = (1, layer.channels, layer.size, layer.size)
    image = relax.Var("x", relax.TensorType(shape, "float32"))
    window = {"strides": (layer.stride,) * 2, "padding": (1,) * 4, "groups": layer.groups}
    with builder.function("main", [image]):
        with builder.dataflow():
            sums = builder.emit(relax.op.nn.conv2d(image, relax.const(weights), **window))
            biased = builder.emit(relax.op.add(sums, relax.const(bias.reshape(1, -1, 1, 1))))
            result = builder.emit_output(relax.op.nn.relu(biased))
        builder.emit_func_output(result)
    module = builder.get()
    with target, tvm.transform.PassContext(opt_level=3):
        for phase in default_phases(machine_of(target)):
            for step in phase.passes:
                module = step(module)
    build_library(schedule_rest(module, target), target, path, path.with_suffix(".objects"))
    return relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())


if __name__ == "__main__":
    os.environ["TVM_NUM_THREADS"] = "1"
    main(tuple(sys.argv[1:]) or LAYERS)
