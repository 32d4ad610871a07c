"""Advice for a job that timed out."""

import pytest

from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from worker.supervisor.outcome import with_remedy


def advice(code: ErrorCode, stage: Stage | None, **tune: object) -> str:
    request = CompilationRequest.model_validate({"model": "0" * 64, "target": "host", "tune": tune})
    problem = make_problem(code, "60.0 s of 60.0 s", stage=stage.value if stage else None)
    return with_remedy(problem, request).advice


@pytest.mark.parametrize("code", [ErrorCode.TIMEOUT, ErrorCode.LIMIT_WALL_CLOCK])
@pytest.mark.parametrize("stage", Stage)
def test_no_advice_drops_trials_that_were_not_requested(code: ErrorCode, stage: Stage) -> None:
    assert "trials" not in advice(code, stage)


@pytest.mark.parametrize(
    ("stage", "tune", "expected"),
    [
        (Stage.CAPTURE, {}, "in torch"),
        (Stage.TRANSLATE, {}, "graph smaller"),
        (Stage.OPTIMIZE, {}, "rewrite"),
        (Stage.TUNE, {}, "graph smaller"),
        (Stage.TUNE, {"trials": 64}, "`tune.seconds`"),
        (Stage.TUNE, {"trials": 64, "seconds": 50.0}, "fewer `tune.trials` or `tune.seconds`"),
        (Stage.BUILD, {"trials": 64}, "the message names smaller"),
        (Stage.VERIFY, {}, "smaller inputs"),
        (Stage.BENCHMARK, {}, "`benchmark.seconds`"),
        (Stage.PACKAGE, {}, "disk"),
    ],
)
def test_the_advice_names_what_to_reduce_for_the_stage(
    stage: Stage, tune: dict[str, object], expected: str
) -> None:
    assert expected in advice(ErrorCode.TIMEOUT, stage, **tune)


@pytest.mark.parametrize(
    ("code", "expected"),
    [(ErrorCode.TIMEOUT, "timeout_seconds"), (ErrorCode.LIMIT_WALL_CLOCK, "BESSEMER_LIMIT_WALL_SECONDS")],
)
def test_the_advice_names_the_limit_that_was_reached(code: ErrorCode, expected: str) -> None:
    assert expected in advice(code, Stage.BUILD)
    assert expected in advice(code, None)


def test_other_problems_keep_their_advice() -> None:
    problem = make_problem(ErrorCode.LIMIT_MEMORY, "much", stage="build")
    request = CompilationRequest.model_validate({"model": "0" * 64, "target": "host"})
    assert with_remedy(problem, request) == problem
