import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from stage_samples import TARGET, Perceptron

from bessemer.bundle.manifest import LIBRARY, REPORT
from bessemer.contract.problem import ErrorCode, SourcePlace
from bessemer.contract.report import Report
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from worker.compiler.pipeline import pipeline
from worker.compiler.pipeline.pipeline import FAILURES, PIPELINE, StageFailedError, run_pipeline
from worker.compiler.values import StageContext, Upload
from worker.errors import OperatorsUnsupportedError
from worker.job.compilation import compiled
from worker.snapshots.machine_code import ASSEMBLY, LLVM_IR


class Notes:
    """Records the pipeline's progress."""

    def __init__(self) -> None:
        self.started: list[Stage] = []
        self.finished: list[Stage] = []

    def stage_started(self, stage: Stage) -> None:
        self.started.append(stage)

    def stage_finished(self, stage: Stage, seconds: float, value: object) -> None:
        assert seconds >= 0
        assert value is not None
        self.finished.append(stage)


def upload(path: Path, **fields: Any) -> Upload:
    request = CompilationRequest.model_validate(
        {"model": "0" * 64, "target": PresetTarget(preset="host"), "benchmark": {"seconds": 0.05}, **fields}
    )
    return Upload(path=path, request=request, target=TARGET)


def test_every_stage_of_the_contract_runs_in_order() -> None:
    assert tuple(stage for stage, _ in PIPELINE) == tuple(Stage)
    assert set(FAILURES) == set(Stage)
    assert all(run.__name__ == stage.value for stage, run in PIPELINE)


def test_each_stage_takes_the_previous_stages_result() -> None:
    annotations = [inspect.get_annotations(run) for _, run in PIPELINE]
    taken = [next(iter(annotation.values())) for annotation in annotations]
    returned = [annotation["return"] for annotation in annotations]

    assert taken == ["Upload", *returned[:-1]]
    assert returned[-1] == "Packaged"


def test_a_model_becomes_a_bundle(tmp_path: Path, context: StageContext) -> None:
    path, notes = tmp_path / "model", Notes()
    torch.export.save(torch.export.export(Perceptron().eval(), (torch.randn(1, 16),)), path)

    reached = run_pipeline(upload(path), context, notes)

    assert reached.stage is Stage.PACKAGE
    assert notes.started == notes.finished == list(Stage)
    assert all((context.output / name).is_file() for name in reached.value.files)


@pytest.mark.parametrize(
    ("last", "files", "verified"),
    [
        (Stage.CAPTURE, {REPORT}, None),
        (Stage.BUILD, {REPORT, LIBRARY, LLVM_IR, ASSEMBLY}, None),
        (Stage.BENCHMARK, {REPORT, LIBRARY, LLVM_IR, ASSEMBLY}, True),
    ],
)
def test_a_run_stops_after_the_requested_stage_and_keeps_its_results(
    tmp_path: Path, context: StageContext, last: Stage, files: set[str], verified: bool | None
) -> None:
    path, notes = tmp_path / "model", Notes()
    torch.export.save(torch.export.export(Perceptron().eval(), (torch.randn(1, 16),)), path)
    wanted = upload(path, stop_after=last, inspect={"assembly": True})

    result = compiled(run_pipeline(wanted, context, notes), context, TARGET)

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
        run_pipeline(upload(path), context, notes)

    problem = raised.value.problem()
    assert (problem.code, problem.stage) == (ErrorCode.MODEL_NOT_RECOGNIZED, "capture")
    assert (notes.started, notes.finished) == ([Stage.CAPTURE], [])


def test_an_unexpected_error_is_the_stages_failure(
    tmp_path: Path, context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_value: object, _workshop: StageContext) -> object:
        raise ValueError("unforeseen")

    monkeypatch.setattr(pipeline, "PIPELINE", ((Stage.OPTIMIZE, breaks),))
    with pytest.raises(StageFailedError, match="ValueError: unforeseen") as raised:
        run_pipeline(upload(tmp_path), context, Notes())

    assert raised.value.code is ErrorCode.OPTIMIZE_FAILED


def test_places_reach_the_problem(
    tmp_path: Path, context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = SourcePlace(operator="aten.special_airy_ai.default", module_path="inner")

    def refuses(_value: object, _workshop: StageContext) -> object:
        raise OperatorsUnsupportedError((place,), "")

    monkeypatch.setattr(pipeline, "PIPELINE", ((Stage.TRANSLATE, refuses),))
    with pytest.raises(StageFailedError) as raised:
        run_pipeline(upload(tmp_path), context, Notes())

    problem = raised.value.problem()
    assert (problem.code, problem.stage) == (ErrorCode.OPERATOR_UNSUPPORTED, "translate")
    assert problem.places == (place,)
