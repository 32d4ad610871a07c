"""Libraries with separate parameters: one library runs with the weights of any training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from capture_samples import capture_file
from stage_samples import Function, Perceptron, capture_module, compile_to_library, optimized
from torch import nn
from tvm import relax

from bessemer.bundle.manifest import LIBRARY, PARAMETERS, REPORT
from bessemer.contract.base import now
from bessemer.contract.stage import Stage
from worker.candidates.client import LibraryCrashedError
from worker.compiler.layout.separate_parameters import PREPARE, without_preparation
from worker.compiler.pipeline.pipeline import Reached
from worker.compiler.pipeline.verify import compare_outputs, verify
from worker.compiler.values import Built, StageContext
from worker.job.compilation import write_stopped
from worker.parameters import ParameterFile, in_one_file, separable, write_parameters


def randomized(module: nn.Module, seed: int) -> nn.Module:
    """The module with other parameters and statistics."""
    torch.manual_seed(seed)
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape) + 0.5 if "var" in name else torch.randn(tensor.shape) / 2)
    return module.eval()


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 40, 3),
        nn.BatchNorm2d(40),
        nn.ReLU(),
        nn.Conv2d(40, 40, 3, groups=40, bias=False),
        nn.BatchNorm2d(40),
        nn.Conv2d(40, 24, 1),
        nn.Flatten(),
        nn.Linear(24 * 16, 45),
        nn.BatchNorm1d(45),
        nn.Linear(45, 5),
    )


def attentive() -> nn.Module:
    attention = nn.MultiheadAttention(16, 2, batch_first=True)
    return Function(lambda self, x: self.attend(x, x, x, need_weights=False)[0], attend=attention)


def tied() -> nn.Module:
    first, second = nn.Linear(16, 16), nn.Linear(16, 16)
    second.weight = first.weight
    model = Function(lambda self, x: self.b(self.a(x)) + self.c, a=first, b=second)
    model.register_buffer("c", torch.ones(16))
    return model


def by_parameters(self: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros_like(x[0]) + self.layer.weight, self.layer.bias


MODELS = {
    "perceptron": (Perceptron, (3, 16)),
    "convolutional": (convolutional, (1, 3, 8, 8)),
    "attentive": (attentive, (2, 5, 16)),
    "tied": (tied, (3, 16)),
    "results of parameters alone": (lambda: Function(by_parameters, layer=nn.Linear(16, 8)), (3, 16)),
}


def built_separately(module: nn.Module, shape: tuple[int, ...], context: StageContext) -> Built:
    captured = capture_module(module, torch.randn(shape), parameters="separate")
    return compile_to_library(captured, context)


def test_a_job_that_stops_after_build_keeps_the_parameters(context: StageContext) -> None:
    built = built_separately(Perceptron(), (3, 16), context)

    files = write_stopped(Reached(Stage.BUILD, built), context, now())

    assert files == (REPORT, LIBRARY, PARAMETERS)
    assert all((context.output / name).is_file() for name in files)


def test_functions_that_prepare_parameters_are_not_searched(context: StageContext) -> None:
    captured = capture_module(Perceptron(), torch.randn(3, 16), parameters="separate")
    searched = without_preparation(optimized(captured, context).module)
    names = {str(variable.name_hint) for variable in searched.get_global_vars()}
    assert names == {"main", "fused_linear_add_relu", "fused_linear1_add1"}


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_other_weights_change_the_result_without_another_library(name: str, context: StageContext) -> None:
    make, shape = MODELS[name]
    built = built_separately(randomized(make(), 1), shape, context)
    assert verify(built, context).comparisons[0].mismatches == 0

    other = randomized(make(), 2)
    expected = capture_module(other, *map(torch.from_numpy, built.captured.inputs)).references
    swapped = write_parameters(context.scratch / "other.safetensors", other.state_dict())
    assert built.parameters is not None
    assert {spec.name for spec in built.parameters.tensors} == set(other.state_dict())
    parameters = replace(built.parameters, path=swapped.path)
    with context.candidates.open_library(built.library, 2, parameters) as library:
        sample = replace(built.captured.example, references=expected)
        compare_outputs(library.run(sample.inputs), built.captured, sample)


class Scaled(nn.Module):
    """Takes a dictionary and a number, and returns a dictionary and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, batch: dict[str, torch.Tensor], scale: float) -> tuple[dict[str, torch.Tensor], int]:
        return {"y": self.module(batch["x"]) * scale + self.shift}, 3


def test_parameters_have_the_names_of_the_model_whatever_its_arguments_are(tmp_path: Path) -> None:
    model, x = Scaled().eval(), {"x": torch.ones(2, 4)}
    torch.export.save(torch.export.export(model, (x, 2.0), strict=False), tmp_path / "model.pt2")
    torch.jit.save(torch.jit.script(model), tmp_path / "model.pt")

    saved = capture_file(tmp_path / "model.pt2").program
    scripted = capture_file(tmp_path / "model.pt", "batch.x=2x4", constants={"scale": 2.0}).program

    assert set(separable(saved)) == set(separable(scripted)) == set(model.state_dict())


def test_a_run_packs_no_weights(context: StageContext) -> None:
    captured = capture_module(randomized(convolutional(), 1), torch.randn(1, 3, 8, 8), parameters="separate")

    module = optimized(captured, context).module

    def calls(name: str) -> set[str]:
        found: set[str] = set()

        def visit(node: relax.Expr) -> None:
            if isinstance(node, relax.Call) and getattr(node.op, "name", "") == "relax.call_tir":
                found.add(str(node.args[0].name_hint))

        relax.analysis.post_order_visit(module[name], visit)
        return found

    assert not any("pack" in name or "transpose" in name or "sqrt" in name for name in calls("main"))
    assert len(calls("main")) == 6
    assert calls(PREPARE)


def test_a_model_without_parameters_has_no_parameter_file(context: StageContext) -> None:
    built = built_separately(Function(lambda _, x: x + 1), (2, 3), context)

    assert built.parameters is None
    assert verify(built, context).comparisons[0].mismatches == 0


def test_a_mismatched_parameter_file_is_refused_with_a_reason(context: StageContext) -> None:
    built = built_separately(Perceptron().eval(), (1, 16), context)
    assert built.parameters is not None
    state = Perceptron().state_dict()
    state["second.bias"] = state["second.bias"].double()
    other: ParameterFile = write_parameters(context.scratch / "other.safetensors", state)

    with pytest.raises(LibraryCrashedError, match=r"it has second.bias=4:float64, expected second.bias=4:f"):
        context.candidates.open_library(built.library, 1, replace(built.parameters, path=other.path))


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        ("__metadata__", torch.ones(2), "cannot hold a tensor named '__metadata__'"),
        ("n" * 1025, torch.ones(2), "cannot hold a tensor named 'nnn"),
        (
            "mask",
            torch.ones(2, dtype=torch.uint16),
            "'mask' has the element type uint16, which Bessemer cannot write",
        ),
    ],
)
def test_parameters_that_a_file_cannot_hold_are_refused(
    tmp_path: Path, name: str, tensor: torch.Tensor, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        write_parameters(tmp_path / "params.safetensors", {name: tensor})


def test_the_names_in_one_file_are_distinct() -> None:
    one, two, three = (torch.full((2,), float(number)) for number in range(3))
    first = {"weight": one, "decode.weight": two}
    second = {"weight": three, "decode.weight": two, "decode.decode.weight": one}
    named = in_one_file([("prefill", first), ("decode", second)])
    assert named[0] == first
    names = ["decode.decode.decode.weight", "decode.weight", "decode.decode.weight"]
    assert list(named[1]) == names
    assert all(found is given for found, given in zip(named[1].values(), second.values(), strict=True))
