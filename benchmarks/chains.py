"""Times pairs of consecutive functions as one function and as two: ``make bench-chains``.

CASES="vgg-stem mobilenet_v2" selects other cases: stems, and models of torchvision. MCPU=x86-64-v3 compiles
for another processor whose code this one runs. Both sides run in this process, in alternation, on one thread.
Prints the median processor time as one function, and its median ratio to the time as two.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import thread_time

import torch
import tvm
from torch import nn
from tvm import relax

from benchmarks.copies import SIZE, optimized, published_model
from worker.compiler.codegen.executable import compile_module
from worker.compiler.layout.choices import LayoutChoices
from worker.compiler.pipeline.optimize import lay_out
from worker.compiler.schedules.default import schedule_rest

STEMS = {
    "resnet-stem": lambda: (nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
    "vgg-stem": lambda: (nn.Conv2d(3, 64, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2, 2)),
    "alexnet-stem": lambda: (nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
}
MLPS = {
    "swin-mlp-1": (3136, 96),
    "swin-mlp-1x8": (8 * 3136, 96),
    "swin-mlp-2x8": (8 * 784, 192),
}
"""Rows and columns of feed-forward layers, whose hidden matrices are four times as wide."""
MODELS = ("mobilenet_v2", "shufflenet_v2_x1_0", "squeezenet1_1", "vgg11", "densenet121")
ROUNDS = 30
_ROUND_SECONDS = 5e-3


def main(names: tuple[str, ...]) -> None:
    """Print a line for each case."""
    print("case                 one function ms  of two functions")
    for name in names:
        model, inputs = _case(name)
        with TemporaryDirectory() as folder:
            sides = _sides(model, inputs, Path(folder))
        runs = max(1, int(_ROUND_SECONDS / min(seconds_of(sides[1], 1) for _ in range(3))))
        one, two = zip(*([seconds_of(side, runs) for side in sides] for _ in range(ROUNDS)), strict=True)
        ratio = median(together / apart for together, apart in zip(one, two, strict=True))
        print(f"{name:20} {median(one) * 1e3:15.3f}  {ratio:16.2f}", flush=True)


def _case(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    if name in STEMS:
        return _stem(name)
    return _mlp(*MLPS[name]) if name in MLPS else published_model(name, batch=1)


def _mlp(rows: int, columns: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    layers = nn.Linear(columns, 4 * columns), nn.GELU(), nn.Linear(4 * columns, columns)
    return nn.Sequential(*layers).eval().requires_grad_(False), (torch.randn(1, rows, columns),)


def _stem(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return nn.Sequential(*STEMS[name]()).eval().requires_grad_(False), (torch.randn(1, 3, SIZE, SIZE),)


def _sides(
    model: nn.Module, inputs: tuple[torch.Tensor, ...], folder: Path
) -> tuple[Callable[[], object], ...]:
    """A run with one function for each chain, and a run with two."""
    ready, context = optimized(model, inputs, folder, os.environ.get("MCPU", ""))
    apart = lay_out(ready, LayoutChoices(chains=False), context)
    target = ready.captured.upload.target.llvm
    arguments = [tvm.runtime.tensor(values) for values in ready.captured.inputs]
    return tuple(
        partial(
            relax.VirtualMachine(compile_module(schedule_rest(each.module, target), target), tvm.cpu())[
                "main"
            ],
            *arguments,
        )
        for each in (ready, apart)
    )


def seconds_of(run: Callable[[], object], runs: int) -> float:
    """The mean processor seconds of some runs, after one that is not counted."""
    run()
    start = thread_time()
    for _ in range(runs):
        run()
    return (thread_time() - start) / runs


if __name__ == "__main__":
    os.environ["TVM_NUM_THREADS"] = "1"
    main(tuple(sys.argv[1:]) or (*STEMS, *MLPS, *MODELS))
