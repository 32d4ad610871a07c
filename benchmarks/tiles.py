"""Times the tiles of convolutions' plans in alternation, on one thread: ``make bench-tiles``.

LAYERS="256x14x1024 256x28x256x3x2" selects other layers: input channels, pixels of a side, output channels,
and, if not 1, taps and strides of a side. MCPU=x86-64-v3 compiles for another processor whose code this one
runs. Prints the processor time of the tile that the model prefers, and of the fastest.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import thread_time
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax, s_tir, tirx

from worker.compiler.codegen.flops import find_products
from worker.compiler.codegen.generate import generate_code
from worker.compiler.codegen.link import link_shared
from worker.compiler.pipeline.optimize import optimization_phases
from worker.compiler.schedules.default import default_schedule, plans_of
from worker.compiler.schedules.families.convolution.conv2d import ConvolutionPlan
from worker.compiler.schedules.plans import PLAN, numbers_of
from worker.compiler.schedules.processors import machine_of
from worker.compiler.target import host_mcpu

LAYERS = ("64x56x256", "256x14x1024", "512x7x2048", "96x14x576", "384x27x64", "512x14x512x3x2")
TILES = 32
SHOWN = 4
ROUNDS = 30
_ROUND_SECONDS = 4e-4
_GIGA = 1e9


class Layer(NamedTuple):
    """A convolution with a bias and a ReLU, of an image in blocks."""

    inputs: int
    size: int
    outputs: int
    taps: int = 1
    stride: int = 1


class Timed(NamedTuple):
    """A plan and its seconds."""

    seconds: float
    plan: ConvolutionPlan


def main(layers: tuple[str, ...]) -> None:
    """Print the preferred and the fastest tiles of each layer."""
    mcpu = os.environ.get("MCPU") or host_mcpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "num-cores": 2})
    for text in layers:
        function, flops = _function(Layer(*map(int, text.split("x"))), target)
        plans = {plan.tile: plan for plan in reversed(plans_of(function, target) or ())}
        chosen = list(reversed(plans.values()))[:TILES]
        with TemporaryDirectory() as folder:
            timed = _times(function, chosen, target, Path(folder))
        fastest = sorted(timed)[:SHOWN]
        lost = timed[0].seconds / fastest[0].seconds
        print(f"{text} for {mcpu}: the preferred tile takes {lost:.2f} times as long as the fastest")
        for seconds, plan in (timed[0], *fastest):
            print(
                f"  {seconds * 1e6:8.1f} us  {flops / seconds / _GIGA:6.1f} GFLOP/s  {plan.tile}", flush=True
            )


def _function(layer: Layer, target: tvm.target.Target) -> tuple[tirx.PrimFunc, int]:
    """The layer's function, and its floating-point operations."""
    draws = np.random.default_rng(0)

    def constant(*shape: int) -> relax.Constant:
        return relax.const(draws.standard_normal(shape).astype(np.float32))

    builder = relax.BlockBuilder()
    image = relax.Var("x", relax.TensorType((1, 1, layer.size, layer.size), "float32"))
    border = (layer.taps // 2,) * 4
    with builder.function("main", [image]):
        with builder.dataflow():
            channels = builder.emit(relax.op.nn.conv2d(image, constant(layer.inputs, 1, 1, 1)))
            weights = constant(layer.outputs, layer.inputs, layer.taps, layer.taps)
            sums = builder.emit(
                relax.op.nn.conv2d(channels, weights, strides=(layer.stride,) * 2, padding=border)
            )
            biased = builder.emit(relax.op.add(sums, constant(1, layer.outputs, 1, 1)))
            result = builder.emit_output(relax.op.nn.relu(biased))
        builder.emit_func_output(result)
    module = builder.get()
    with target, tvm.transform.PassContext(opt_level=3):
        for phase in optimization_phases(machine_of(target)):
            for step in phase.passes:
                module = step(module)
    functions = [each for _, each in module.functions_items() if isinstance(each, tirx.PrimFunc)]
    worked = [(sum(product.flops for product in find_products(each)), each) for each in functions]
    flops, function = max(worked, key=lambda each: each[0])
    return function, flops


def _times(
    function: tirx.PrimFunc, plans: list[ConvolutionPlan], target: tvm.target.Target, folder: Path
) -> list[Timed]:
    """The least seconds of each plan. Medians would include more of the machine's other work."""
    scheduled = {f"plan{number}": _with_plan(function, plan, target) for number, plan in enumerate(plans)}
    named = {name: each.with_attr("global_symbol", name) for name, each in scheduled.items()}
    built = generate_code(tvm.IRModule(named), target)
    path = folder / "plans.so"
    built.export_library(str(path), fcompile=link_shared, workspace_dir=str(folder))
    library = tvm.runtime.load_module(str(path))
    draws = np.random.default_rng(1)
    arguments = [
        tvm.runtime.tensor(draws.standard_normal([int(size) for size in each.shape]).astype(np.float32))
        for each in function.params
    ]
    kernels = [library[name] for name in named]
    runs = max(1, int(_ROUND_SECONDS / median(_seconds(kernels[0], arguments, 1) for _ in range(3))))
    rounds = [[_seconds(kernel, arguments, runs) for kernel in kernels] for _ in range(ROUNDS)]
    return [Timed(min(of_plan), plan) for of_plan, plan in zip(zip(*rounds, strict=True), plans, strict=True)]


def _with_plan(function: tirx.PrimFunc, plan: ConvolutionPlan, target: tvm.target.Target) -> tirx.PrimFunc:
    schedule = s_tir.Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    for name, number in numbers_of(plan).items():
        schedule.annotate(schedule.get_sblock("root"), PLAN + name, number)
    return default_schedule(schedule.mod["main"], target)


def _seconds(kernel: Any, arguments: list[Any], runs: int) -> float:
    kernel(*arguments)
    start = thread_time()
    for _ in range(runs):
        kernel(*arguments)
    return (thread_time() - start) / runs


if __name__ == "__main__":
    os.environ["TVM_NUM_THREADS"] = "1"
    main(tuple(sys.argv[1:]) or LAYERS)
