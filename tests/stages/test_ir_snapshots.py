"""Snapshots of the module between the passes."""

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm
import zstandard
from stage_samples import TARGET, Perceptron, capture_module, make_context
from torch import nn

from bessemer.contract.ir import IR_INDEX, IR_TEXTS, IrListing, IrText
from bessemer.contract.stage import Stage
from worker.compiler.pipeline import optimize as optimizing
from worker.compiler.pipeline.optimize import Phase, default_phases, optimization_phases, optimize
from worker.compiler.pipeline.pipeline import finish_stage
from worker.compiler.pipeline.translate import translate
from worker.compiler.target import compile_target
from worker.compiler.values import StageContext, Translated
from worker.errors import JobError
from worker.snapshots import frames
from worker.snapshots import recorder as recording
from worker.snapshots.constants import constant_lines, constant_values, describe
from worker.snapshots.counts import count_module
from worker.snapshots.recorder import IrRecorder, unified_diff

MACHINE = compile_target(TARGET).machine


@pytest.fixture
def context(tmp_path: Path) -> StageContext:
    plain = make_context(tmp_path)
    return replace(plain, observer=IrRecorder(plain.output))


def translated(context: StageContext, module: nn.Module | None = None) -> Translated:
    value = translate(capture_module(module or Perceptron(), torch.randn(1, 16)), context)
    finish_stage(Stage.TRANSLATE, 0.5, value, context.observer)
    return value


def listing(context: StageContext) -> IrListing:
    return IrListing.model_validate_json((context.output / IR_INDEX).read_text())


def text(context: StageContext, part: IrText) -> str:
    data = (context.output / IR_TEXTS).read_bytes()[part.offset : part.offset + part.packed_bytes]
    return zstandard.decompress(data).decode() if part.packed_bytes else ""


def test_every_pass_leaves_a_snapshot_and_its_changes(context: StageContext) -> None:
    optimize(translated(context), context)
    steps = listing(context).items
    names = [step.info.name for phase in default_phases(MACHINE) for step in phase.passes]
    assert [step.name for step in steps] == ["translate", *names]
    assert [step.step for step in steps] == list(range(len(names) + 1))
    legalized = next(step for step in steps if step.name == "LegalizeOps")
    assert legalized.counts.operators == 0 < legalized.counts.calls
    added = [line for line in text(context, legalized.diff).splitlines() if line.startswith("+")]
    assert any("R.call_tir" in line for line in added)
    assert "R.call_tir" in text(context, legalized.text)
    for step in steps[1:]:
        assert step.changed == bool(text(context, step.diff))


def test_the_whole_file_unpacks_to_all_texts(context: StageContext) -> None:
    translated(context)
    (step,) = listing(context).items
    with (
        (context.output / IR_TEXTS).open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as reader,
    ):
        assert reader.read().decode() == text(context, step.text)


def test_elements_of_constants_are_counted_not_written(context: StageContext) -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 65_536)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    translated(context, Wide())
    (step,) = listing(context).items
    assert step.counts.constant_bytes == 17 * 65_536 * 4
    assert step.text.text_bytes < 2000


def test_constants_have_their_values_at_the_end_on_request(tmp_path: Path) -> None:
    class Constants(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 20)
            with torch.no_grad():
                self.layer.weight.copy_(torch.arange(320).reshape(20, 16))
                self.layer.bias.copy_(torch.arange(20) / 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * 0.5 - self.layer.bias

    plain = make_context(tmp_path)
    context = replace(plain, observer=IrRecorder(plain.output, with_constants=True))
    translated(context, Constants())
    (step,) = listing(context).items
    *_, weight, bias = text(context, step.text).splitlines()
    assert weight == '# metadata["ir.GenericConst"][0]: float32[20, 16], min 0.0, max 319.0, mean 159.5'
    assert bias.startswith('# metadata["ir.GenericConst"][1]: float32[20] = [0.0, 0.1, 0.2, ')


def test_constants_are_numbered_as_the_script_numbers_them(context: StageContext) -> None:
    """The script with all metadata has the constants in the order of the numbers."""
    module = optimize(
        translated(context, nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))), context
    ).module
    script = module.script(show_meta=True)
    arrays = re.search(r'metadata = tvm\.ir\.load_json\((""".*?""")\)', script, re.DOTALL)
    assert arrays is not None
    saved = tvm.ir.load_json(ast.literal_eval(arrays[1]))["ir.GenericConst"]
    short = str(module.script(show_meta=False))
    lines = constant_lines(short, constant_values(module, short, {}))
    assert [line.partition(": ")[2].strip() for line in lines] == [describe(one.value) for one in saved]
    assert len(lines) == 8


def test_constants_that_do_not_fit_the_script_are_not_named() -> None:
    assert constant_lines('metadata["ir.GenericConst"][1]', {})[0].startswith("# The values of the constants")
    assert constant_lines("no constants", {}) == []


def test_a_pass_that_fails_leaves_the_snapshots_from_before(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tvm.transform.module_pass(opt_level=0, name="Breaks")
    def breaks(module: tvm.IRModule, _context: Any) -> tvm.IRModule:
        raise ValueError("on purpose")

    phases = (optimization_phases(MACHINE)[0], Phase("broken", (breaks,)))
    monkeypatch.setattr(optimizing, "optimization_phases", lambda *_: phases)
    with pytest.raises(JobError, match="pass Breaks of phase 'broken'"):
        optimize(translated(context), context)
    steps = listing(context).items
    assert len(steps) == 1 + len(phases[0].passes)
    assert "R.matmul" in text(context, steps[-1].text)


def test_a_long_text_is_cut_at_a_line_and_marked_as_cut(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "MAX_TEXT_BYTES", 300)
    translated(context)
    (step,) = listing(context).items
    assert step.truncated
    assert step.text.text_bytes <= 300 < (step.text.whole_bytes or 0)
    assert text(context, step.text).endswith("\n")


def test_all_texts_together_are_bounded(context: StageContext, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = IrRecorder(context.output)
    monkeypatch.setattr(recorder._frames, "_left_bytes", 5000)
    bounded = replace(context, observer=recorder)
    optimize(translated(bounded), bounded)
    steps = listing(context).items
    assert sum(step.text.text_bytes + step.diff.text_bytes for step in steps) <= 5000
    assert steps[-1].truncated
    assert steps[-1].counts.kernels > 0


def test_functions_blocks_and_loops_are_counted(context: StageContext) -> None:
    counts = count_module(optimize(translated(context), context).module)
    assert (counts.functions, counts.kernels, counts.operators, counts.calls) == (1, 2, 0, 2)
    assert counts.loops >= counts.kernels
    assert counts.blocks >= counts.kernels


@pytest.mark.parametrize(
    ("before", "after", "diff"),
    [
        (["a\n"], ["a\n"], ""),
        (["a\n"], ["b\n"], "--- before\n+++ after\n@@ -1 +1 @@\n-a\n+b\n"),
        (["a\n"] * 3, ["b\n"] * 3, "# 3 lines became 3: too many to compare\n"),
    ],
)
def test_text_comparison_stops_when_it_gets_slow(
    before: list[str], after: list[str], diff: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_COMPARED_LINES", 5)
    assert unified_diff(before, after) == diff
