"""Prints the share of models' time in functions without products: ``make bench-copies``.

MODELS="densenet121 shufflenet_v2_x1_0" selects other models of torchvision, and BATCH=8 more images. Each is
compiled for this machine without trials and runs on one thread. The time of a function is the processor time
of its fastest run, so that other programs on the machine hardly count.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time
from typing import Any, NamedTuple

import torch
import tvm
from torch import nn
from tvm import relax, tirx

from benchmarks.architectures.entry import Inputs
from benchmarks.architectures.outcomes import Form
from benchmarks.architectures.survey import NO_CONSTANTS, save, stage_context, upload
from benchmarks.architectures.torchvision_models import declare_operators
from benchmarks.architectures.weights import calibrate, enliven
from worker.compiler.codegen.executable import compile_module
from worker.compiler.codegen.flops import find_products
from worker.compiler.pipeline.capture import capture
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.translate import translate
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.target import compile_target
from worker.compiler.values import Optimized, StageContext

MODELS = ("mobilenet_v2", "resnet18", "densenet121")
SIZE = 224
RUNS = 40
SHOWN = 3
_RUNTIME = ("vm.builtin.", "check_input_", "bessemer_parameter")


class Call(NamedTuple):
    """A call of a function in a run."""

    name: str
    seconds: float


def main(names: tuple[str, ...], batch: int) -> None:
    """Print a line for each model."""
    print("model                 total ms  without products  of these pools  slowest of them")
    for name in names:
        print(_row(name, *_profile(*published_model(name, batch))), flush=True)


def published_model(name: str, batch: int) -> tuple[nn.Module, Inputs]:
    """A model of torchvision with random weights, and images for it."""
    declare_operators()
    from torchvision import models

    torch.manual_seed(0)
    model = getattr(models, name)(weights=None).eval()
    inputs = (torch.randn(batch, 3, SIZE, SIZE),)
    with torch.no_grad():
        enliven(model)
        calibrate(model, inputs)
    return model.requires_grad_(False), inputs


def optimized(
    model: nn.Module, inputs: Inputs, folder: Path, mcpu: str = ""
) -> tuple[Optimized, StageContext]:
    """A model after the stage `optimize`, for one thread of this machine or of another processor."""
    path = save(model, inputs, Form.PT2, folder)
    context = stage_context(folder)
    given = upload(path, Form.PT2, inputs, NO_CONSTANTS)
    if mcpu:
        resolved = given.target.resolved.model_copy(update={"mcpu": mcpu})
        given = replace(given, target=compile_target(resolved))
    return optimize(translate(capture(given, context), context), context), context


def _profile(model: nn.Module, inputs: Inputs) -> tuple[Mapping[str, float], frozenset[str]]:
    """The seconds of each function in a run, and the functions with products."""
    with TemporaryDirectory() as folder:
        ready, _ = optimized(model, inputs, Path(folder))
        target = ready.captured.upload.target.llvm
        executable = compile_module(schedule_rest(ready.module, target), target)
    functions = ready.module.functions_items()
    multiply = frozenset(
        str(name.name_hint)
        for name, function in functions
        if isinstance(function, tirx.PrimFunc) and find_products(function)
    )
    machine = relax.VirtualMachine(executable, tvm.cpu())
    arguments = [tvm.runtime.tensor(values) for values in ready.captured.inputs]
    calls: list[Call] = []
    start = 0.0

    def record(_function: Any, name: str, is_before: bool, *_rest: Any) -> int:
        nonlocal start
        if is_before:
            start = thread_time()
        else:
            calls.append(Call(str(name), thread_time() - start))
        return 0

    machine.set_instrument(record)
    runs = []
    for _ in range(RUNS):
        calls.clear()
        machine["main"](*arguments)
        runs.append(tuple(calls))
    return _fastest(runs), multiply


def _fastest(runs: list[tuple[Call, ...]]) -> dict[str, float]:
    """The seconds of each function, by the fastest run of each call, less the time of observing it."""
    best = [min(alike, key=lambda call: call.seconds) for alike in zip(*runs, strict=True)]
    observing = min(call.seconds for call in best)
    seconds: dict[str, float] = defaultdict(float)
    for call in best:
        if not call.name.startswith(_RUNTIME):
            seconds[call.name] += call.seconds - observing
    return seconds


def _row(name: str, seconds: Mapping[str, float], multiply: frozenset[str]) -> str:
    total = sum(seconds.values())
    others = {function: took for function, took in seconds.items() if function not in multiply}
    pools = sum(took for function, took in others.items() if "pool" in function)
    slowest = sorted(others, key=lambda function: -others[function])[:SHOWN]
    shown = ", ".join(f"{function} {others[function] / total:.1%}" for function in slowest)
    share, pooled = sum(others.values()) / total, pools / total
    return f"{name:20}  {total * 1e3:8.2f}  {share:16.1%}  {pooled:14.1%}  {shown}"


if __name__ == "__main__":
    os.environ["TVM_NUM_THREADS"] = "1"
    main(tuple(sys.argv[1:]) or MODELS, int(os.environ.get("BATCH", "1")))
