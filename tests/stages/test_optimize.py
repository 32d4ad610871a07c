import re
from pathlib import Path

import pytest
import torch
import tvm
from stage_samples import TARGET, Perceptron, capture_module, make_context, optimized
from torch import nn

from bessemer.contract.problem import ErrorCode
from worker.compiler.pipeline import optimize as stage
from worker.compiler.pipeline.optimize import Phase, default_phases, optimize
from worker.compiler.pipeline.translate import translate
from worker.compiler.target import compile_target
from worker.compiler.values import StageContext
from worker.errors import JobError

from examples.models import EXAMPLES  # isort: skip


@pytest.fixture
def context(tmp_path: Path) -> StageContext:
    return make_context(tmp_path)


def randomized(norm: nn.Module) -> nn.Module:
    """A batch norm whose parameters and statistics are all distinct."""
    for name in ("weight", "bias", "running_mean"):
        nn.init.normal_(getattr(norm, name).detach())
    norm.running_var.uniform_(0.5, 2)
    return norm


def calls(module: tvm.IRModule) -> list[str]:
    """The functions that main calls, in order."""
    return re.findall(r"R\.call_tir\(cls\.(\w+)", module.script(show_meta=False))


def test_every_pass_of_every_phase_is_timed_in_order(context: StageContext) -> None:
    passes = optimized(capture_module(Perceptron(), torch.randn(1, 16)), context).passes

    phases = default_phases(compile_target(TARGET).machine)
    expected = [(phase.name, step.info.name) for phase in phases for step in phase.passes]
    assert [(timed.phase, timed.name) for timed in passes] == expected
    assert passes[-1].functions == 3


def test_main_calls_fused_functions_only(context: StageContext) -> None:
    module = optimized(capture_module(Perceptron(), torch.randn(1, 16)), context).module

    assert calls(module) == ["fused_linear_add_relu", "fused_linear1_add1"]


def test_a_public_network_has_no_batch_norm_left(context: StageContext) -> None:
    example = EXAMPLES["resnet18"]
    translated = translate(capture_module(example.build(), *example.example_inputs()), context)
    assert translated.operators["nn.batch_norm"] > 15

    functions = calls(optimize(translated, context).module)

    assert not [function for function in functions if re.search("batch_norm|multiply|divide|sqrt", function)]
    assert (
        len([function for function in functions if "conv2d" in function]) == translated.operators["nn.conv2d"]
    )


def test_a_failing_pass_is_named_with_its_phase(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tvm.transform.module_pass(opt_level=0, name="Breaks")
    def breaks(_module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        raise ValueError("what went wrong\nand where")

    monkeypatch.setattr(stage, "optimization_phases", lambda *_: (Phase("fold", (breaks,)),))
    with pytest.raises(
        JobError, match=r"^pass Breaks of phase 'fold': \w*Error: .*what went wrong and where$"
    ) as raised:
        optimized(capture_module(Perceptron(), torch.randn(1, 16)), context)

    assert raised.value.code is ErrorCode.OPTIMIZE_FAILED


def test_a_pass_that_runs_out_of_memory_reports_the_limit(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tvm.transform.module_pass(opt_level=0, name="Devours")
    def devours(_module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        raise MemoryError

    monkeypatch.setattr(stage, "optimization_phases", lambda *_: (Phase("fold", (devours,)),))
    with pytest.raises(JobError) as raised:
        optimized(capture_module(Perceptron(), torch.randn(1, 16)), context)

    assert raised.value.code is ErrorCode.LIMIT_MEMORY


def test_constants_keep_their_dtype(context: StageContext) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), randomized(nn.BatchNorm2d(4))).double()

    script = optimized(
        capture_module(module, torch.randn(1, 3, 8, 8, dtype=torch.float64)), context
    ).module.script(show_meta=False)

    assert "float32" not in script
