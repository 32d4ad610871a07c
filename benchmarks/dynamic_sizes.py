"""Times models of dynamic sizes beside the same models of fixed sizes, and torch: ``make bench-dynamic``.

CASES="resnet18-batch llama-length" selects cases. All run in this process, in turns, on one thread, at the
size of the example. Prints the median processor time with dynamic sizes, and its median ratios to the time
with fixed sizes and to that of torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
import transformers
import tvm
from torch import nn
from torch.export import Dim
from tvm import relax

from benchmarks.architectures.entry import Inputs
from benchmarks.architectures.outcomes import Form
from benchmarks.architectures.survey import NO_CONSTANTS, stage_context, upload
from benchmarks.architectures.torchvision_models import declare_operators
from benchmarks.chains import seconds_of
from benchmarks.copies import published_model
from benchmarks.models.published import FirstOutput
from worker.compiler.codegen.executable import compile_module
from worker.compiler.pipeline.capture import capture
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.translate import translate
from worker.compiler.schedules.default import schedule_rest

ROUNDS = 10
_IMAGES = 8
_LENGTH = 64
_VOCABULARY = 2000


class Case(NamedTuple):
    """A model, an example of its input, and the dynamic axes of the input."""

    model: nn.Module
    inputs: Inputs
    axes: Mapping[int, Dim]


def _batch(name: str) -> Case:
    return Case(*published_model(name, _IMAGES), {0: Dim("batch", min=1, max=64)})


def _sides(name: str) -> Case:
    sides = Dim("height", min=64, max=512), Dim("width", min=64, max=512)
    return Case(*published_model(name, batch=1), {2: sides[0], 3: sides[1]})


def _sequence() -> Case:
    layers = (nn.Conv1d(80, 256, 3, padding=1), nn.GELU(), nn.Conv1d(256, 256, 3, padding=1), nn.GELU())
    return Case(nn.Sequential(*layers), (torch.randn(1, 80, 200),), {2: Dim("length", min=16, max=512)})


def _text(make: Callable[..., nn.Module], configuration: Any) -> Case:
    ids = torch.randint(0, _VOCABULARY, (1, _LENGTH))
    return Case(FirstOutput(make(configuration)), (ids,), {1: Dim("length", min=2, max=128)})


def _bert() -> Case:
    configuration = transformers.BertConfig(num_hidden_layers=4, vocab_size=_VOCABULARY)
    return _text(transformers.BertModel, configuration)


def _llama() -> Case:
    configuration = transformers.LlamaConfig(
        hidden_size=512, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, vocab_size=_VOCABULARY, use_cache=False,
    )  # fmt: skip
    return _text(transformers.LlamaForCausalLM, configuration)


CASES: Mapping[str, Callable[[], Case]] = {
    "resnet18-batch": partial(_batch, "resnet18"),
    "mobilenet_v2-batch": partial(_batch, "mobilenet_v2"),
    "densenet121-batch": partial(_batch, "densenet121"),
    "efficientnet_b0-batch": partial(_batch, "efficientnet_b0"),
    "resnet18-sides": partial(_sides, "resnet18"),
    "mobilenet_v2-sides": partial(_sides, "mobilenet_v2"),
    "conv1d-length": _sequence,
    "bert-length": _bert,
    "llama-length": _llama,
}


def main(names: tuple[str, ...]) -> None:
    """Print a line for each case."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    declare_operators()
    # Before any is translated: rules declare an operator of transformers that it then cannot declare.
    cases = {name: CASES[name]() for name in names}
    print("case                    dynamic ms  of fixed sizes  of torch")
    for name, case in cases.items():
        case.model.eval().requires_grad_(False)
        with TemporaryDirectory() as folder, torch.inference_mode():
            sides = [_compiled(case, axes, Path(folder)) for axes in (case.axes, {})]
            runs = (*sides, partial(case.model, *case.inputs))
            rounds = [[seconds_of(run, 1) for run in runs] for _ in range(ROUNDS)]
        dynamic, *others = zip(*rounds, strict=True)
        ratios = (median(one / other for one, other in zip(dynamic, side, strict=True)) for side in others)
        shown = "  ".join(f"{ratio:{width}.2f}" for ratio, width in zip(ratios, (14, 8), strict=True))
        print(f"{name:22}  {median(dynamic) * 1e3:10.2f}  {shown}", flush=True)


def _compiled(case: Case, axes: Mapping[int, Dim], folder: Path) -> Callable[[], object]:
    """A run of the library, which an export with these dynamic axes becomes."""
    path = folder / "model.pt2"
    with torch.no_grad():
        program = torch.export.export(case.model, case.inputs, dynamic_shapes=(dict(axes),), strict=False)
    torch.export.save(program, path)
    context = stage_context(folder)
    given = upload(path, Form.PT2, case.inputs, NO_CONSTANTS)
    given = replace(given, request=given.request.model_copy(update={"inputs": ()}))
    ready = optimize(translate(capture(given, context), context), context)
    target = ready.captured.upload.target.llvm
    machine = relax.VirtualMachine(compile_module(schedule_rest(ready.module, target), target), tvm.cpu())
    return partial(machine["main"], *(tvm.runtime.tensor(values.numpy()) for values in case.inputs))


if __name__ == "__main__":
    os.environ["TVM_NUM_THREADS"] = "1"
    main(tuple(sys.argv[1:]) or tuple(CASES))
