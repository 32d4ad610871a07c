"""Which space each function gets, by names alone; and what a request may say of spaces."""

from typing import Any

import pytest
from pydantic import ValidationError

from bessemer.cli.options import request_fields
from bessemer.contract.problem import ErrorCode
from bessemer.contract.request import CompilationRequest, TuneOptions
from worker.errors import JobError
from worker.report.view import changed_options
from worker.tuning.assignment import assign_spaces

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
    assert assign_spaces(FUNCTIONS, wanted, KNOWN) == spaces


@pytest.mark.parametrize(
    ("wanted", "code", "detail"),
    [
        (
            {"*": "course"},
            ErrorCode.SPACE_UNKNOWN,
            "no space 'course'; there are: course-matmul, plans",
        ),
        (
            {"*": "plans", "conv*": "plans"},
            ErrorCode.FUNCTION_UNKNOWN,
            "no function fits 'conv*'; those that can be searched: linear, max_pool, max_pool1",
        ),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(
    wanted: dict[str, str], code: ErrorCode, detail: str
) -> None:
    with pytest.raises(JobError) as caught:
        assign_spaces(FUNCTIONS, wanted, KNOWN)
    assert (caught.value.code, caught.value.detail) == (code, detail)


@pytest.mark.parametrize(
    "options",
    [{"spaces": {"f": "plans"}}, {"force": True, "trials": 1}, {"trials": 1, "spaces": {"f": ""}}],
)
def test_spaces_need_trials_and_force_needs_spaces(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TuneOptions.model_validate(options)


def test_the_command_line_reads_what_the_report_writes() -> None:
    spaces = {"lin*": "course-matmul", "*": "plans"}
    tune = {"trials": 8, "spaces": spaces, "force": True}
    request = CompilationRequest.model_validate({"model": "0" * 64, "target": "host", "tune": tune})

    options = [f"{name}={value}" for name, value in changed_options(request)]

    assert options[1:3] == ["tune.spaces.lin*=course-matmul", "tune.spaces.*=plans"]
    fields = request_fields("host", (), options)
    assert CompilationRequest.model_validate({"model": "0" * 64, **fields}).tune == request.tune
