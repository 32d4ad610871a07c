import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from stage_samples import TARGET, Perceptron

from bessemer.bundle.manifest import LIBRARY, REPORT
from bessemer.contract.code import CODE_INDEX, CODE_TEXTS
from bessemer.contract.problem import ErrorCode, SourcePlace
from bessemer.contract.report import Report
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from worker.compiler.pipeline import pipeline
from worker.compiler.pipeline.pipeline import PIPELINE, Pipeline, StageFailedError, run_pipeline
from worker.compiler.target import compile_target
from worker.compiler.values import StageContext, Upload
from worker.errors import OperatorsUnsupportedError
from worker.job.compilation import compiled
from worker.protocol.observer import JobObserver
from worker.snapshots.machine_code import ASSEMBLY, LLVM_IR


class Notes(JobObserver):
    """The stages that the pipeline reported."""

    def __init__(self) -> None:
        self.started: list[Stage] = []
        self.finished: list[Stage] = []

    def stage_started(self, stage: Stage) -> None:
        self.started.append(stage)

    def stage_finished(self, stage: Stage, seconds: float) -> None:
        assert seconds >= 0
        self.finished.append(stage)


def upload(path: Path, **fields: Any) -> Upload:
    request = CompilationRequest.model_validate(
        {"model": "0" * 64, "target": PresetTarget(preset="host"), "benchmark": {"seconds": 0.05}, **fields}
    )
    return Upload(path=path, request=request, target=compile_target(TARGET))


def test_every_stage_of_the_contract_runs_in_order() -> None:
    assert tuple(step.stage for step in PIPELINE.steps) == tuple(Stage)
    assert all(step.run.__name__.startswith(step.stage.value) for step in PIPELINE.steps)


CHAIN = """
from bessemer.contract.problem import ErrorCode
from bessemer.contract.stage import Stage
from worker.compiler.pipeline.capture import capture
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.pipeline import Pipeline
from worker.compiler.pipeline.translate import translate
from worker.compiler.values import Upload

Pipeline[Upload]().then(Stage.CAPTURE, capture, ErrorCode.CAPTURE_FAILED).then(
    Stage.{0}, {1}, ErrorCode.{0}_FAILED
).then(Stage.{2}, {3}, ErrorCode.{2}_FAILED)
"""


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("order", "errors"),
    [(("translate", "optimize"), 0), (("optimize", "translate"), 2)],
    ids=["right", "swapped"],
)
def test_mypy_reports_stages_in_the_wrong_order(tmp_path: Path, order: tuple[str, str], errors: int) -> None:
    snippet = tmp_path / "chain.py"
    snippet.write_text(CHAIN.format(*(text for name in order for text in (name.upper(), name))))

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", str(snippet)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )

    assert len(re.findall(r"chain\.py:\d+: error: .*\[arg-type\]", checked.stdout)) == errors, checked.stdout
    assert checked.returncode == bool(errors), checked.stderr


def test_a_model_becomes_a_bundle(tmp_path: Path, context: StageContext) -> None:
    path, notes = tmp_path / "model", Notes()
    torch.export.save(torch.export.export(Perceptron().eval(), (torch.randn(1, 16),)), path)

    reached = run_pipeline(upload(path), replace(context, observer=notes))

    assert reached.stage is Stage.PACKAGE
    assert notes.started == notes.finished == list(Stage)
    assert all((context.output / name).is_file() for name in reached.value.files)


@pytest.mark.parametrize(
    ("last", "files", "verified"),
    [
        (Stage.CAPTURE, {REPORT}, None),
        (Stage.BUILD, {REPORT, LIBRARY, LLVM_IR, ASSEMBLY, CODE_INDEX, CODE_TEXTS}, None),
        (Stage.BENCHMARK, {REPORT, LIBRARY, LLVM_IR, ASSEMBLY, CODE_INDEX, CODE_TEXTS}, True),
    ],
)
def test_a_run_stops_after_the_requested_stage_and_keeps_its_results(
    tmp_path: Path, context: StageContext, last: Stage, files: set[str], verified: bool | None
) -> None:
    path, notes = tmp_path / "model", Notes()
    torch.export.save(torch.export.export(Perceptron().eval(), (torch.randn(1, 16),)), path)
    wanted = upload(path, stop_after=last, inspect={"assembly": True})

    result = compiled(run_pipeline(wanted, replace(context, observer=notes)), context, wanted)

    report = Report.model_validate_json((context.output / REPORT).read_text())
    assert notes.finished == list(Stage)[: list(Stage).index(last) + 1]
    assert (result.stopped_after, result.verified, set(result.files)) == (last, verified, files)
    assert (report.stopped_after, report.verified) == (last, bool(verified))
    assert (report.benchmark is not None) == (result.figures is not None) == (last is Stage.BENCHMARK)
    assert all((context.output / name).stat().st_size for name in files)


def test_a_refusal_names_its_stage_and_ends_the_run(tmp_path: Path, context: StageContext) -> None:
    path, notes = tmp_path / "model", Notes()
    path.write_bytes(b"no model at all")

    with pytest.raises(StageFailedError) as raised:
        run_pipeline(upload(path), replace(context, observer=notes))

    problem = raised.value.problem()
    assert (problem.code, problem.stage) == (ErrorCode.MODEL_NOT_RECOGNIZED, "capture")
    assert (notes.started, notes.finished) == ([Stage.CAPTURE], [])


def test_an_unexpected_error_is_the_stages_failure(
    tmp_path: Path, context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_value: object, _context: StageContext) -> object:
        raise ValueError("unforeseen")

    monkeypatch.setattr(
        pipeline, "PIPELINE", Pipeline[Upload]().then(Stage.OPTIMIZE, breaks, ErrorCode.OPTIMIZE_FAILED)
    )
    with pytest.raises(StageFailedError, match="ValueError: unforeseen") as raised:
        run_pipeline(upload(tmp_path), context)

    assert raised.value.code is ErrorCode.OPTIMIZE_FAILED


def test_places_reach_the_problem(
    tmp_path: Path, context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = SourcePlace(operator="aten.special_airy_ai.default", module_path="inner")

    def refuses(_value: object, _context: StageContext) -> object:
        raise OperatorsUnsupportedError((place,), "")

    monkeypatch.setattr(
        pipeline, "PIPELINE", Pipeline[Upload]().then(Stage.TRANSLATE, refuses, ErrorCode.TRANSLATE_FAILED)
    )
    with pytest.raises(StageFailedError) as raised:
        run_pipeline(upload(tmp_path), context)

    problem = raised.value.problem()
    assert (problem.code, problem.stage) == (ErrorCode.OPERATOR_UNSUPPORTED, "translate")
    assert problem.places == (place,)
