"""Preflight: the findings for a model without compiling it."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_samples import capture_file, graph
from stage_samples import TARGET, Function, Perceptron, capture_module, make_context
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bessemer.bundle.manifest import REPORT
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Preflight, Report
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from examples.models import EXAMPLES
from worker.compiler.pipeline.pipeline import StageFailedError, run_pipeline
from worker.compiler.target import compile_target
from worker.compiler.values import Upload
from worker.job.compilation import compiled
from worker.protocol.observer import JobObserver
from worker.report.preflight import make_preflight


class FinishedStages(JobObserver):
    """The stages that a supervisor would see finish."""

    def __init__(self) -> None:
        self.finished: list[Stage] = []

    def stage_finished(self, stage: Stage, seconds: float) -> None:
        self.finished.append(stage)


class Strange(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(x) @ x + torch.special.airy_ai(x)


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, k)


def preflight(folder: Path, module: nn.Module, *inputs: torch.Tensor, stop: str = "translate") -> Report:
    path, observer = folder / "model", FinishedStages()
    torch.export.save(torch.export.export(module.eval(), inputs), path)
    fields = {"model": "0" * 64, "target": PresetTarget(preset="host"), "stop_after": stop}
    context = replace(make_context(folder), observer=observer)
    wanted = Upload(
        path=path, request=CompilationRequest.model_validate(fields), target=compile_target(TARGET)
    )
    reached = run_pipeline(wanted, context)
    result = compiled(reached, context, wanted)
    assert result.files == (REPORT,)
    assert observer.finished == [Stage.CAPTURE, Stage.TRANSLATE]
    return Report.model_validate_json((context.output / REPORT).read_text())


def found(report: Report) -> Preflight:
    assert report.preflight is not None
    return report.preflight


def test_a_model_that_translates_has_its_operators_listed(tmp_path: Path) -> None:
    report = preflight(tmp_path, Perceptron(), torch.randn(1, 16))
    uses = {use.name: (use.calls, use.flops, use.supported) for use in found(report).operators}
    assert uses == {
        "aten.linear.default": (2, 2 * (16 * 8 + 8 * 4), True),
        "aten.relu.default": (1, 0, True),
    }
    assert found(report).compiles
    assert found(report).problems == ()
    assert (found(report).parameters, found(report).parameter_bytes) == (172, 4 * 172)
    assert report.operators == {"permute_dims": 2, "matmul": 2, "add": 2, "nn.relu": 1}
    assert (report.stopped_after, report.tune, report.benchmark) == (Stage.TRANSLATE, None, None)


def test_a_preflight_reports_unsupported_operators_without_failing(tmp_path: Path) -> None:
    report = preflight(tmp_path, Strange(), torch.randn(3, 3))
    (problem,) = found(report).problems
    unsupported = {use.name for use in found(report).operators if not use.supported}
    assert not found(report).compiles
    assert problem.code is ErrorCode.OPERATOR_UNSUPPORTED
    assert {place.operator for place in problem.places} == unsupported
    assert unsupported == {"aten.special_bessel_j0.default", "aten.special_airy_ai.default"}
    assert all(place.file == __file__ for place in problem.places)
    assert found(report).flops == 2 * 27
    assert report.operators == {}


def test_a_compilation_fails_for_the_reason_that_preflight_reports(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError) as raised:
        preflight(tmp_path, Strange(), torch.randn(3, 3), stop="optimize")
    assert raised.value.code is ErrorCode.OPERATOR_UNSUPPORTED


@pytest.mark.parametrize(
    ("module", "shapes"),
    [
        (EXAMPLES["mlp"].build(), [(1, 784)]),
        (EXAMPLES["cnn"].build(), [(1, 1, 28, 28)]),
        (nn.Conv2d(4, 8, 3, groups=2, padding=1), [(1, 4, 9, 9)]),
        (nn.ConvTranspose2d(4, 8, 3, stride=2), [(1, 4, 9, 9)]),
        (Function(lambda _, x, y: torch.bmm(x, y)), [(2, 3, 4), (2, 4, 5)]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_floating_point_operations_agree_with_torchs_count(
    module: nn.Module, shapes: list[tuple[int, ...]]
) -> None:
    inputs = tuple(torch.randn(shape) for shape in shapes)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        deepcopy(module).to("meta")(*(tensor.to("meta") for tensor in inputs))
    assert make_preflight(capture_module(module, *inputs), None).flops == counter.get_total_flops()


def test_attention_counts_as_two_products() -> None:
    captured = capture_module(Attention(), torch.randn(1, 2, 7, 16), torch.randn(1, 2, 5, 16))
    assert make_preflight(captured, None).flops == 2 * 2 * (7 * 16 * 5 + 7 * 5 * 16)


@pytest.mark.parametrize(
    ("body", "peak_floats"),
    [
        (lambda _, x: x + 1, 200),
        (lambda _, x: torch.exp(torch.exp(torch.exp(x))), 200),
        (lambda _, x: torch.exp(x.reshape(10, 10)), 200),
        (lambda _, x: x + torch.exp(torch.exp(x)), 300),
        (lambda _, x: torch.cat([x, x]), 300),
    ],
    ids=["sum", "chain", "view", "kept", "larger"],
)
def test_an_activation_lives_until_its_last_use(body: Any, peak_floats: int) -> None:
    captured = capture_module(Function(body), torch.randn(100))
    assert make_preflight(captured, None).peak_activation_bytes == 4 * peak_floats


@pytest.mark.parametrize(
    ("dimension", "rows"), [("batch=1..64", 4), ("batch=1..64@8", 8), ("batch=1..64@1", 2)]
)
def test_the_work_holds_for_the_named_dynamic_sizes(tmp_path: Path, dimension: str, rows: int) -> None:
    graph(nn.Linear(16, 8), tmp_path / "model")
    captured = capture_file(tmp_path / "model", "input=batchx16", dimensions=(dimension,))
    found = make_preflight(captured, None)
    assert (found.sizes, found.flops) == ({"batch": rows}, 2 * rows * 16 * 8)


@pytest.mark.parametrize("rows", [1, 3])
def test_the_work_holds_for_the_sizes_of_the_export(tmp_path: Path, rows: int) -> None:
    inputs, dims = (torch.randn(rows, 16),), ({0: torch.export.Dim("rows", min=1, max=8)},)
    with torch.fx.experimental._config.patch(backed_size_oblivious=True):
        program = torch.export.export(nn.Linear(16, 8), inputs, dynamic_shapes=dims)
    torch.export.save(program, tmp_path / "model.pt2")
    found = make_preflight(capture_file(tmp_path / "model.pt2"), None)
    assert (found.sizes, found.flops) == ({"input_0": rows}, 2 * rows * 16 * 8)
