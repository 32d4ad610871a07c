"""The assignment of spaces to functions by name, and a request's options for spaces."""

from typing import Any

import pytest
from pydantic import ValidationError

from bessemer.cli.arguments import read_draft
from bessemer.contract.options import MAX_TRIALS, TuneOptions
from bessemer.contract.problem import ErrorCode
from bessemer.contract.request import CompilationRequest
from worker.compiler.tuning.assignment import Assignment, assign, nearest_function
from worker.errors import JobError
from worker.report.view import changed_options

KNOWN = ("course-matmul", "plans")
FUNCTIONS = (("linear",), ("max_pool", "max_pool1"))


@pytest.mark.parametrize(
    ("wanted", "spaces"),
    [
        ({}, [None, None]),
        ({"linear": "course-matmul"}, ["course-matmul", None]),
        ({"max_pool1": "plans"}, [None, "plans"]),
        ({"lin*": "course-matmul", "*": "plans"}, ["course-matmul", "plans"]),
        ({"*": "plans", "lin*": "course-matmul"}, ["plans", "plans"]),
    ],
)
def test_the_first_pattern_that_fits_names_the_space(
    wanted: dict[str, str], spaces: list[str | None]
) -> None:
    assigned = assign(FUNCTIONS, wanted)
    assert [None if one is None else one.choice for one in assigned] == spaces


@pytest.mark.parametrize(("pattern", "may_skip"), [("linear", False), ("lin*", True), ("linea[r]", True)])
def test_only_a_pattern_may_match_functions_that_its_space_does_not_fit(pattern: str, may_skip: bool) -> None:
    assert Assignment(pattern, "course-matmul").may_skip is may_skip


def test_a_pattern_without_a_match_is_refused_with_the_function_names() -> None:
    with pytest.raises(JobError) as caught:
        assign(FUNCTIONS, {"*": "plans", "conv*": "plans"})
    assert (caught.value.code, caught.value.detail) == (
        ErrorCode.FUNCTION_UNKNOWN,
        "no function matches 'conv*'; these can be searched: linear, max_pool, max_pool1",
    )


MLP = ("fused_linear1_add1", "fused_linear_add_relu")
CNN = ("fused_conv2d_add_relu", "fused_linear1_add2", "max_pool")


@pytest.mark.parametrize(
    ("pattern", "names", "nearest"),
    [
        ("fused_conv*", MLP, None),
        ("fused_linera*", MLP, "fused_linear1_add1"),
        ("linear*", MLP, "fused_linear1_add1"),
        ("fused_linear_add_rleu", MLP, "fused_linear_add_relu"),
        ("fusd_linear", ("fused_linear_add",), "fused_linear_add"),
        ("conv*", CNN, "fused_conv2d_add_relu"),
        ("fused_max_pool", CNN, "max_pool"),
        ("nope", CNN, None),
        ("*", (), None),
    ],
)
def test_only_a_similar_function_is_suggested(pattern: str, names: tuple[str, ...], nearest: str) -> None:
    assert nearest_function(pattern, names) == (f"; did you mean '{nearest}'?" if nearest else "")


@pytest.mark.parametrize(
    "options",
    [{"spaces": {"f": "plans"}}, {"force": True, "trials": 1}, {"trials": 1, "spaces": {"f": ""}}],
)
def test_spaces_need_trials_and_force_needs_spaces(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TuneOptions.model_validate(options)


@pytest.mark.parametrize(
    ("options", "trials"),
    [
        ({}, 0),
        ({"seconds": 10.0}, MAX_TRIALS),
        ({"seconds": 10.0, "trials": 0}, 0),
        ({"seconds": 10.0, "trials": 8}, 8),
        ({"seconds": None}, 0),
        ({"seconds": 10.0, "spaces": {"f": "plans"}}, MAX_TRIALS),
    ],
)
def test_a_time_limit_alone_leaves_the_trials_unlimited(options: dict[str, Any], trials: int) -> None:
    read = TuneOptions.model_validate(options)
    assert read.trials == trials
    assert read.is_without_trials is (trials == MAX_TRIALS)
    assert TuneOptions.read_json(read.model_dump_json()) == read


def test_a_command_line_with_seconds_alone_searches() -> None:
    assert read_draft("host", (), ["tune.seconds=10"]).request.tune.trials == MAX_TRIALS


def test_the_command_line_reads_the_reports_spaces() -> None:
    spaces = {"lin*": "course-matmul", "*": "plans"}
    tune = {"trials": 8, "spaces": spaces, "force": True}
    request = CompilationRequest.model_validate({"model": "0" * 64, "target": "host", "tune": tune})

    options = [f"{name}={value}" for name, value in changed_options(request)]

    assert options[1:3] == ["tune.spaces.lin*=course-matmul", "tune.spaces.*=plans"]
    assert read_draft("host", (), options).request.tune == request.tune
