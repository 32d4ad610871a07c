from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from stage_samples import TARGET, Perceptron, make_workshop

from bessemer.contract.problem import ErrorCode, SourcePlace
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from worker.candidates.server import fork_server
from worker.errors import JobError, OperatorsUnsupportedError
from worker.pipeline import pipeline
from worker.pipeline.pipeline import FAILURES, PIPELINE, StageFailedError, as_job_error, run_pipeline
from worker.pipeline.types import Upload, Workshop


class Notes:
    """What the pipeline told."""

    def __init__(self) -> None:
        self.started: list[Stage] = []
        self.finished: list[Stage] = []

    def stage_started(self, stage: Stage) -> None:
        self.started.append(stage)

    def stage_finished(self, stage: Stage, seconds: float) -> None:
        assert seconds >= 0
        self.finished.append(stage)


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with fork_server(tmp_path) as candidates:
        yield make_workshop(tmp_path, candidates)


def upload(path: Path) -> Upload:
    request = CompilationRequest.model_validate(
        {"model": "0" * 64, "target": PresetTarget(preset="host"), "benchmark": {"seconds": 0.05}}
    )
    return Upload(path=path, request=request, target=TARGET)


def test_every_stage_of_the_contract_is_run_in_its_order() -> None:
    assert tuple(stage for stage, _ in PIPELINE) == tuple(Stage)
    assert set(FAILURES) == set(Stage)
    assert all(run.__name__ == stage.value for stage, run in PIPELINE)


def test_a_model_becomes_a_bundle(tmp_path: Path, workshop: Workshop) -> None:
    path, notes = tmp_path / "model", Notes()
    torch.export.save(torch.export.export(Perceptron().eval(), (torch.randn(1, 16),)), path)

    packaged = run_pipeline(upload(path), workshop, notes)

    assert notes.started == notes.finished == list(Stage)
    assert all((workshop.output / name).is_file() for name in packaged.files)


def test_a_refusal_says_in_which_stage_and_ends_the_run(tmp_path: Path, workshop: Workshop) -> None:
    path, notes = tmp_path / "model", Notes()
    path.write_bytes(b"no model at all")

    with pytest.raises(StageFailedError) as raised:
        run_pipeline(upload(path), workshop, notes)

    problem = raised.value.problem()
    assert (problem.code, problem.stage) == (ErrorCode.MODEL_NOT_RECOGNIZED, "capture")
    assert (notes.started, notes.finished) == ([Stage.CAPTURE], [])


@pytest.mark.parametrize(
    ("error", "code", "detail"),
    [
        (ValueError("broken\nin two lines"), ErrorCode.OPTIMIZE_FAILED, "ValueError: broken"),
        (KeyError(), ErrorCode.OPTIMIZE_FAILED, "KeyError"),
        (MemoryError(), ErrorCode.LIMIT_MEMORY, "an allocation failed in stage optimize"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
            ErrorCode.LIMIT_MEMORY,
            "an allocation failed in stage optimize",
        ),
        (JobError(ErrorCode.TUNE_FAILED, "as it was"), ErrorCode.TUNE_FAILED, "as it was"),
    ],
)
def test_what_a_stage_raises_becomes_a_stable_code(error: Exception, code: ErrorCode, detail: str) -> None:
    found = as_job_error(Stage.OPTIMIZE, error)

    assert (found.code, found.detail) == (code, detail)


def test_places_reach_the_problem(
    tmp_path: Path, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = SourcePlace(operator="aten.i0.default", module_path="inner")

    def refuses(_value: object, _workshop: Workshop) -> object:
        raise OperatorsUnsupportedError((place,))

    monkeypatch.setattr(pipeline, "PIPELINE", ((Stage.TRANSLATE, refuses),))
    with pytest.raises(StageFailedError) as raised:
        run_pipeline(upload(tmp_path), workshop, Notes())

    problem = raised.value.problem()
    assert (problem.code, problem.stage) == (ErrorCode.OPERATOR_UNSUPPORTED, "translate")
    assert problem.places == (place,)
