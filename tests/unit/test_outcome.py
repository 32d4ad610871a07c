import signal
from dataclasses import replace

import pytest

from bessemer.contract.model import Inspection, ModelFormat, Signature
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from worker.protocol.messages import Compiled, Failed, Inspected, ProgressMade
from worker.supervisor.outcome import JobOutcome, conclude, refuse_early_end
from worker.supervisor.watch import Termination

INSPECTED = Inspected(
    inspection=Inspection(format=ModelFormat.PT2, signature=Signature(input_names=("x",), parameters=1))
)
MISMATCH = Failed(code=ErrorCode.VERIFY_MISMATCH, detail="off", stage=Stage.VERIFY)
CANCELLED = Termination(ErrorCode.CANCELLED, "cancelled")
TOO_BIG = Termination(ErrorCode.LIMIT_MEMORY, "9 of 8 GiB")


def outcome(
    *,
    last: Inspected | Failed | None = None,
    termination: Termination | None = None,
    violation: str | None = None,
    status: int = 0,
    number: int = 0,
) -> JobOutcome:
    return JobOutcome(last, termination, violation, status, number, Stage.TUNE, "some output")


@pytest.mark.parametrize(
    ("code", "total", "detail"),
    [
        (ErrorCode.TIMEOUT, 7, "60.1 s of 60.0 s; build was at 6 of 7: fused_add"),
        (ErrorCode.LIMIT_WALL_CLOCK, 7, "60.1 s of 60.0 s; build was at 6 of 7: fused_add"),
        (ErrorCode.LIMIT_WALL_CLOCK, 0, "60.1 s of 60.0 s; build was at 6: fused_add"),
        (ErrorCode.LIMIT_MEMORY, 7, "60.1 s of 60.0 s"),
    ],
)
def test_a_job_that_timed_out_names_its_stage(code: ErrorCode, total: int, detail: str) -> None:
    progress = ProgressMade(stage=Stage.BUILD, done=6, total=total, detail="fused_add")
    given = replace(outcome(termination=Termination(code, "60.1 s of 60.0 s")), progress=progress)
    problem = conclude(given)
    assert isinstance(problem, Problem)
    assert problem.detail == detail


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (outcome(last=INSPECTED, termination=CANCELLED), ErrorCode.CANCELLED),
        (outcome(last=INSPECTED, termination=TOO_BIG), ErrorCode.LIMIT_MEMORY),
        (outcome(last=INSPECTED, violation="not JSON"), ErrorCode.CHILD_MISBEHAVED),
        (outcome(last=MISMATCH, status=1), ErrorCode.VERIFY_MISMATCH),
        (outcome(last=INSPECTED, number=signal.SIGSEGV), ErrorCode.CHILD_CRASHED),
        (outcome(number=signal.SIGSEGV), ErrorCode.CHILD_CRASHED),
        (outcome(number=signal.SIGXCPU), ErrorCode.LIMIT_CPU),
        (outcome(number=signal.SIGXFSZ), ErrorCode.LIMIT_DISK),
        (outcome(), ErrorCode.CHILD_CRASHED),
        (outcome(status=3), ErrorCode.CHILD_CRASHED),
    ],
)
def test_the_supervisors_findings_override_the_childs_report(given: JobOutcome, code: ErrorCode) -> None:
    problem = conclude(given)
    assert isinstance(problem, Problem)
    assert problem.code == code


def test_a_child_that_sent_its_result_and_exited_cleanly_succeeded() -> None:
    assert conclude(outcome(last=INSPECTED)) is INSPECTED


def test_a_crash_names_its_signal_and_the_end_of_the_log() -> None:
    problem = conclude(outcome(number=signal.SIGSEGV))
    assert isinstance(problem, Problem)
    assert "SIGSEGV" in problem.detail
    assert "some output" in problem.detail
    assert problem.stage == "tune"


def test_a_crash_by_a_signal_without_a_name_gives_its_number() -> None:
    problem = conclude(outcome(number=40))
    assert isinstance(problem, Problem)
    assert problem.code is ErrorCode.CHILD_CRASHED
    assert "signal 40" in problem.detail


def test_a_childs_problem_has_its_codes_own_words() -> None:
    assert conclude(outcome(last=MISMATCH)) == make_problem(ErrorCode.VERIFY_MISMATCH, "off", stage="verify")


@pytest.mark.parametrize(
    ("stopped_after", "requested", "is_refused"),
    [
        (Stage.TRANSLATE, Stage.TRANSLATE, False),
        (Stage.TRANSLATE, None, True),
        (Stage.TRANSLATE, Stage.PACKAGE, True),
        (Stage.CAPTURE, Stage.TRANSLATE, True),
    ],
)
def test_only_a_job_with_an_early_stop_may_stop_early(
    stopped_after: Stage, requested: Stage | None, is_refused: bool
) -> None:
    stopped = Compiled(verified=None, figures=None, files=("report.json",), stopped_after=stopped_after)
    request = CompilationRequest(model="0" * 64, target=PresetTarget(preset="host"), stop_after=requested)
    result = refuse_early_end(stopped, request)
    assert isinstance(result, Problem) == is_refused
    assert is_refused or result is stopped
